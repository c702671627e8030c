"""What proves a count: one class for every count of heads."""

from types import SimpleNamespace


class Evidence(SimpleNamespace):
    """The proof behind a count: its ``kind`` in one word, ``k`` = dim span{M_tau}, and numbers by name.

    The class of coefficients decides which numbers:

    - "softmax" and "sinkless": ``reason`` in words, and except for kind "eigenvalue" the ``margin`` by
      which the proof holds, relative to |M_tau|. Kind "separating" has a ``U`` (p, d) with <U, M_tau> > 0 for
      every lag; "dependency" has ``weights`` (n,) >= 0 of sum 1 with sum_tau weights_tau M_tau/|M_tau| = 0.
      Without a sink the blocks W_ij take the place of the lags, and ``spread`` is the largest difference of
      row sums, relative to the largest block. Where it is too large there is no ``k``.
    - "fixed" with a ``value_rank``: the heads that attain the upper end, ``V`` (H, p, d), ``coefficients``
      (H, n) by lag and their ``relative_error``; ``bounds``, the lower bounds by name.
    - "any": ``almost``, the count for almost every input.
    - `eigenvalue_test`: ``verdict``, ``reason``, ``nu``, ``modes``, and ``n0_low``, ``n0_high`` for the
      verdict "k+1".

    Other counts with fixed coefficients have a `SpectrumReport` or an `ExactCertificate` instead.

    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> proof = head_count(turn.lags(3), coefficients="softmax").evidence
    >>> proof.kind, proof.k, proof.margin
    ('dependency', 2, 0.0)
    """
