"""What proves a count: one class for every count of heads."""

from types import SimpleNamespace


class Evidence(SimpleNamespace):
    """What proves a count: ``kind`` in one word, and numbers by name, different for each class of heads.

    - softmax, sinkless: ``k``, ``reason`` in words, ``margin``; ``U`` (p, d), positive on every lag, or
      ``weights`` (n,) of a positive combination of the lags that is zero; sinkless: ``spread`` of row sums
    - value maps of limited rank: ``bounds``, the lower bounds by name, and the heads that attain the upper:
      ``V`` (H, p, d), ``coefficients`` (H, n) by lag, ``relative_error``
    - pairwise: ``k`` and ``spectrum``; any: ``k`` and ``almost``, the count for almost every input
    - `eigenvalue_test`: ``verdict``, ``reason``, ``k``, ``nu``, ``modes``, ``n0_low``, ``n0_high``

    The counts with fixed coefficients have a `SpectrumReport` or an `ExactCertificate` instead.

    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> proof = head_count(turn.lags(3), coefficients="softmax").evidence
    >>> proof.kind, proof.k, proof.margin
    ('dependency', 2, 0.0)
    """
