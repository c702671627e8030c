"""What proves a count: one class for every count of heads."""

from types import SimpleNamespace


class Evidence(SimpleNamespace):
    """What proves a count: ``kind`` in one word, and the numbers behind it by name.

    Each class of coefficients has its own numbers, which `head_count` lists.

    >>> Evidence(kind="tokens", k=2)
    Evidence(kind='tokens', k=2)
    """
