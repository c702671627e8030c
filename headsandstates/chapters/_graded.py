"""What the graders of several chapters share: random numbers, ranks, counts, and results that are heads."""

from collections.abc import Iterator

import torch

f64 = torch.float64


def seeded(seed: int) -> dict:
    """What ``torch.randn`` takes to draw the same float64 numbers each time."""
    return {"generator": torch.Generator().manual_seed(seed), "dtype": f64}


def seeded_cases(*sizes: tuple) -> Iterator[tuple[dict, tuple]]:
    """Each of these sizes after what ``torch.randn`` takes to draw numbers of its own."""
    return ((seeded(seed), size) for seed, size in enumerate(sizes))


def block_rows(W: torch.Tensor) -> torch.Tensor:
    """The blocks of an operator (n, n, p, d) as rows (n², p d)."""
    return W.flatten(0, 1).flatten(1)


def fewest(energies: torch.Tensor, eps: float) -> int:
    """How many energies, the largest first, until those left are at most ``eps`` of all."""
    left = energies.sort()[0].cumsum(0)
    return int((left > eps * left[-1]).sum())


def missed(M: torch.Tensor, H: int, *, repeated: bool = True, power: int = 2) -> float:
    """The share of the energy that H heads miss of lags M (n, ...), each as often as it occurs."""
    rows = M.flatten(1)
    if repeated:
        rows = rows * torch.arange(len(M), 0, -1, dtype=f64).sqrt()[:, None]
    sigma = torch.linalg.svdvals(rows) ** power
    return float(sigma[H:].sum() / sigma.sum())


def rank(matrix) -> int:
    """Singular values above 1e-9 of the largest."""
    return int(torch.linalg.matrix_rank(matrix, rtol=1e-9))


def misshaped(found, **shapes) -> str | None:
    """What is wrong with the form of a tuple of tensors that should have these names and shapes."""
    names = ", ".join(shapes)
    if not isinstance(found, tuple) or len(found) != len(shapes):
        return f"return the tuple ({names}); got {type(found).__name__}"
    for part, (name, shape) in zip(found, shapes.items(), strict=True):
        got = tuple(part.shape) if isinstance(part, torch.Tensor) else type(part).__name__
        if got != tuple(shape):
            return f"{name} must have shape {tuple(shape)}; got {got}"
    return None


def summed(heads, *case):
    """The operator (n, n, p, d) of heads (alpha (H, n, n), V (H, p, d)): the view of graders of heads."""
    alpha, V = (part.to(f64) for part in heads)
    return torch.einsum("hij,hpd->ijpd", alpha, V)
