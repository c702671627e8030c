"""What the graders of several chapters are made of: random numbers, a rank, heads judged by their sum."""

import torch

from ssmbook.exercises import agrees, judged

f64 = torch.float64


def seeded(seed: int) -> dict:
    """What ``torch.randn`` takes to draw the same float64 numbers each time."""
    return {"generator": torch.Generator().manual_seed(seed), "dtype": f64}


def rank(matrix) -> int:
    """Singular values above 1e-9 of the largest."""
    return int(torch.linalg.matrix_rank(matrix, rtol=1e-9))


def no_pair(heads) -> str | None:
    """What to say of an answer that should be the pair (alpha, V) and is none."""
    if not isinstance(heads, tuple) or len(heads) != 2:
        return f"return the pair (alpha, V); got {type(heads).__name__}"
    return None


def heads_agree(answer, wanted, cases, sizes, hint, **options):
    """``agrees`` for an answer that returns heads (alpha (H, n, n), V (H, p, d)): their sums are compared.

    ``sizes(*case)`` gives H, n, p, d.
    """

    def misshaped(answer, *case):
        heads, (H, n, p, d) = answer(*case), sizes(*case)
        if problem := no_pair(heads):
            return problem
        found, right = [tuple(torch.as_tensor(part).shape) for part in heads], [(H, n, n), (H, p, d)]
        if found != right:
            return f"alpha must have shape {right[0]} and V {right[1]}; got {found[0]} and {found[1]}"
        return None

    def assembled(*case):
        return summed(*(torch.as_tensor(part).to(f64) for part in answer(*case)))

    return judged(answer, misshaped, cases) or agrees(assembled, wanted, cases, hint, **options)


def summed(alpha, V):
    """The operator (n, n, p, d) of heads."""
    return torch.einsum("hij,hpd->ijpd", alpha, V)
