"""Results of the experiments that come with the book."""

from __future__ import annotations

from importlib import resources

from ssmbook.experiments._runs import Results


def measurement(name: str) -> Results:
    """Return the results of an experiment as they come with the book: settings, versions, numbers.

    ``name``: "learning-heads", "gradient-flow" or "tasks". The attribute ``results`` holds the numbers by
    job, ``command`` how to make them again, ``settings``, ``versions`` and ``machine`` what made these.
    Raises ``ValueError`` for another name. Introduced in *learning-heads*.
    """
    folder = resources.files("ssmbook.experiments") / "measured"
    known = {"learning-heads", "gradient-flow", "tasks"}
    if name not in known:
        raise ValueError(f"name must be one of {', '.join(sorted(known))}; got {name!r}")
    with resources.as_file(folder / f"{name}.json") as path:
        return Results.load(path)
