"""Graders of *factorized*: a natural mistake gets its own sentence, the formula only from the second call."""

import torch

from ssmbook.exercises import check


def reduced(rows, others):
    """Fewest independent rows, with ``others`` (H, m) mixed so that the sum of rows x others stays."""
    U, sigma, Vh = torch.linalg.svd(rows, full_matrices=False)
    k = int((sigma > 1e-10 * sigma[0]).sum())
    return Vh[:k], (U[:, :k] * sigma[:k]).T @ others


def value_maps_alone(alpha, V):
    maps, tables = reduced(V.flatten(1), alpha.flatten(1))
    return tables.reshape(-1, *alpha.shape[1:]), maps.reshape(-1, *V.shape[1:])


def tables_alone(alpha, V):
    tables, maps = reduced(alpha.flatten(1), V.flatten(1))
    return tables.reshape(-1, *alpha.shape[1:]), maps.reshape(-1, *V.shape[1:])


def test_fewest_heads(each_mistake):
    assert check("factorized/fewest-heads", lambda alpha, V: tables_alone(*value_maps_alone(alpha, V)))
    with_zeros = lambda alpha, V: (torch.cat([alpha, 0 * alpha]), torch.cat([V, 0 * V]))  # noqa: E731
    kept = {
        "you reduced the value maps alone, and tables may be dependent too": value_maps_alone,
        "you reduced the tables alone, and value maps may be dependent too": tables_alone,
        "value maps may be dependent, and so may tables": with_zeros,
    }
    each_mistake("factorized/fewest-heads", kept)
    for answer, words in (
        (lambda alpha, V: alpha, "return the pair (alpha, V); got Tensor"),
        (lambda alpha, V: (alpha, V.mT), "the operator must stay one of n = 6, p = 3, d = 4; got"),
        (lambda alpha, V: (alpha, 2 * V), "on 1 heads your pair gives another operator"),
    ):
        assert words in check("factorized/fewest-heads", answer).hint


def energies(blocks):
    rows = blocks.reshape(-1, 9)
    return torch.linalg.eigvalsh(rows.T @ rows).clamp(min=0)


def first_enough(sizes, eps):
    """How many of the sizes (rising) must be kept, added up from the smallest."""
    left = 0.0
    for lost, size in enumerate(sizes.tolist()):
        left += size
        if left > eps * float(sizes.sum()):
            return len(sizes) - lost
    return 0


COMMON = [
    lambda blocks, eps: first_enough(energies(blocks).sqrt(), eps),
    lambda blocks, eps: max(common_count(one, eps) for one in blocks),
    lambda blocks, eps: common_count(blocks.sum(0), eps),
    lambda blocks, eps: int((energies(blocks) > eps**2 * energies(blocks)[-1]).sum()),
    lambda blocks, eps: max(first_enough(energies(blocks), eps), 1) - 1,
]


def common_count(blocks, eps):
    """By the eigenvalues of the second moment, one head after the other."""
    rows = blocks.reshape(-1, 9)
    values, maps = torch.linalg.eigh(rows.T @ rows)
    for H in range(10):
        Q = maps[:, 9 - H :]
        if float((rows - rows @ Q @ Q.T).square().sum()) <= eps * float(rows.square().sum()):
            return H


def test_common_count(each_mistake):
    assert check("factorized/common-count", common_count)
    each_mistake("factorized/common-count", anew=COMMON)
    assert "your number is 7, wanted" in check("factorized/common-count", lambda blocks, eps: 7).hint


def gauge(V, V_new):
    """By the normal equations."""
    rows = V.flatten(1)
    return torch.linalg.solve(rows @ rows.T, rows @ V_new.flatten(1).T).T


def test_gauge(each_mistake):
    assert check("factorized/gauge", gauge)
    inverse = lambda V, V_new: torch.linalg.inv(gauge(V, V_new))  # noqa: E731
    products = lambda V, V_new: torch.einsum("hpd,gpd->hg", V_new, V)  # noqa: E731
    wrong = [lambda *given: gauge(*given).T, inverse, products]
    each_mistake("factorized/gauge", anew=wrong)
    assert (
        "entry (0, 0) is 0, wanted"
        in check("factorized/gauge", lambda V, _: torch.zeros(len(V), len(V))).hint
    )
