"""One contract, kept by every kind of interaction operator (the kinds stand in conftest.py)."""

import pytest
import torch

from ssmbook.operators import DenseOperator, operator_span

BATCHES = [(), (2,), (3, 2), (0,)]
LENGTHS = [0, 1, 5, 7]


def dense_singular_values(W):
    dense = W.to_dense().to(torch.float64)
    return torch.linalg.svdvals(dense.reshape(*W.batch_shape, W.n * W.n, W.p * W.d))


def assert_same_spectrum(spectrum, wanted, tol):
    shared = min(spectrum.shape[-1], wanted.shape[-1])
    scale = wanted.amax() if wanted.numel() else 1.0
    assert torch.allclose(spectrum[..., :shared], wanted[..., :shared], rtol=0, atol=float(tol * scale))
    assert bool((spectrum[..., shared:] <= tol * scale).all())
    assert bool((wanted[..., shared:] <= tol * scale).all())


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("batch", BATCHES)
def test_apply_is_the_sum_over_dense_blocks(kind, batch, n):
    W, random = kind.operator(batch, n)
    dense = W.to_dense()
    assert dense.shape == (*batch, n, n, kind.p, kind.d) and W.batch_shape == batch
    for x_batch in {batch, ()}:
        x = random(*x_batch, n, kind.d)
        before = x.clone()
        wanted = torch.einsum("...ijpd,...jd->...ip", dense, x)
        y = W.apply(x)
        assert y.shape == (*batch, n, kind.p) and torch.equal(x, before)
        assert torch.allclose(y, wanted, rtol=1e-12, atol=1e-12)


def test_an_unbatched_operator_takes_any_batch(kind):
    W, random = kind.operator()
    x = random(2, 3, 5, kind.d)
    wanted = torch.einsum("ijpd,...jd->...ip", W.to_dense(), x)
    assert torch.allclose(W.apply(x), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("batch", BATCHES)
def test_spectrum_and_rank_are_those_of_the_dense_rows(kind, batch, n):
    W, _ = kind.operator(batch, n)
    wanted, spectrum = dense_singular_values(W), W.spectrum()
    assert spectrum.dtype == torch.float64 and not spectrum.requires_grad
    assert W.span_matrix().shape[:-2] == batch and W.span_matrix().shape[-2] <= kind.p * kind.d
    assert_same_spectrum(spectrum, wanted, 1e-12)
    counts = (wanted > 1e-10 * wanted.amax(-1, keepdim=True)).sum(-1) if n else torch.zeros(batch)
    rank = W.interaction_rank()
    assert isinstance(rank, int) if batch == () else rank.dtype == torch.int64
    assert torch.equal(torch.as_tensor(rank), counts.to(torch.int64))


@pytest.mark.parametrize("batch", [(), (2,)])
def test_spectrum_is_the_same_when_read_in_many_parts(kind, batch, monkeypatch):
    monkeypatch.setattr("ssmbook.operators.ranks._PART_ENTRIES", 1)
    W, _ = kind.operator(batch, 25)
    assert_same_spectrum(W.spectrum(), dense_singular_values(W), 1e-12)


def test_joint_rank_is_that_of_all_blocks_of_the_batch(kind):
    W, _ = kind.operator((2,), 3)
    matrix = W.to_dense().reshape(-1, kind.p * kind.d)
    joint = W.interaction_rank(joint=True)
    assert isinstance(joint, int) and joint == int(torch.linalg.matrix_rank(matrix))
    assert joint >= int(W.interaction_rank().max())
    basis = operator_span(W).reshape(joint, -1)
    assert torch.allclose(basis @ basis.mT, torch.eye(joint, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(matrix @ basis.mT @ basis, matrix, atol=1e-11)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_rows_columns_norms_and_block_matrix(kind, batch):
    W, random = kind.operator(batch)
    dense = W.to_dense()
    assert torch.allclose(W.block_norms(), torch.linalg.matrix_norm(dense), rtol=1e-12, atol=1e-12)
    for k, row in enumerate(W.rows()):
        assert torch.allclose(row, dense[..., k, :, :, :], rtol=1e-12, atol=1e-12)
        assert torch.allclose(W.row(k), dense[..., k, :, :, :], rtol=1e-12, atol=1e-12)
        assert torch.allclose(W.column(k), dense[..., :, k, :, :], rtol=1e-12, atol=1e-12)
        by_row = torch.linalg.matrix_rank(dense[..., k, :, :, :].reshape(*batch, 5, -1))
        by_column = torch.linalg.matrix_rank(dense[..., :, k, :, :].reshape(*batch, 5, -1))
        assert torch.equal(torch.as_tensor(W.row_rank(k)), by_row)
        assert torch.equal(torch.as_tensor(W.column_rank(k)), by_column)
    x = random(*batch, 5, kind.d)
    stacked = W.to_block_matrix() @ x.reshape(*batch, 5 * kind.d, 1)
    assert torch.allclose(stacked.reshape(*batch, 5, kind.p), W.apply(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_best_heads_leave_exactly_the_eckart_young_tail(kind, batch, n):
    W, _ = kind.operator(batch, n)
    sigma, dense = dense_singular_values(W), W.to_dense()
    for H in range(min(n * n, kind.p * kind.d) + 1):
        heads = W.best_heads(H)
        assert heads.H == H and heads.alpha.shape == (*batch, H, n, n)
        error = (dense - heads.to_dense()).square().sum((-4, -3, -2, -1))
        tail = sigma[..., H:].square().sum(-1)
        assert torch.allclose(error, tail, rtol=1e-9, atol=1e-20 + float(1e-24 * sigma.max() ** 2))
        flat = heads.V.flatten(-2)
        assert torch.allclose(flat @ flat.mT, torch.eye(H, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_device_are_kept(kind, dtype):
    W, random = kind.operator((2,), dtype=dtype)
    heads = W.best_heads(2)
    results = [W.apply(random(2, 5, kind.d)), W.to_dense(), W.row(1), W.column(1), W.block_norms()]
    results += [heads.alpha, heads.V, operator_span(W), (0.5 * W).to_dense()]
    assert all(result.dtype == dtype and result.device == W.device for result in results)
    assert W.dtype == dtype
    assert_same_spectrum(W.spectrum(), dense_singular_values(W), 1e-12 if dtype == torch.float64 else 1e-6)


def test_gradients_flow_through_apply(kind):
    W, random = kind.operator((2,), 3)
    x = random(2, 3, kind.d).requires_grad_()
    assert torch.autograd.gradcheck(W.apply, (x,))
    (grad,) = torch.autograd.grad(W.apply(x).square().sum(), x)
    dense = W.to_dense()
    wanted = torch.einsum("...ijpd,...ip->...jd", dense, 2 * W.apply(x).detach())
    assert torch.allclose(grad, wanted, rtol=1e-10, atol=1e-12)


def test_sums_compositions_and_multiples(kind):
    W, random = kind.operator((2,))
    other = DenseOperator(random(2, 5, 5, kind.p, kind.d))
    after = DenseOperator(random(5, 5, 2, kind.p))
    same, _ = kind.operator((2,), seed=1)
    x = random(2, 5, kind.d)
    wanted = W.apply(x) + other.apply(x)
    assert torch.allclose((W + other).apply(x), wanted) and torch.allclose((other + W).apply(x), wanted)
    assert torch.allclose((W + same).to_dense(), W.to_dense() + same.to_dense())
    assert torch.allclose((W - same).apply(x), W.apply(x) - same.apply(x))
    assert torch.allclose((-W).apply(x), -W.apply(x)) and torch.allclose((W * 3).apply(x), 3 * W.apply(x))
    chained = after @ W
    assert (chained.p, chained.d) == (2, kind.d)
    assert torch.allclose(chained.apply(x), after.apply(W.apply(x)))
    assert_same_spectrum(chained.spectrum(), dense_singular_values(chained), 1e-12)
    assert_same_spectrum((W + other).spectrum(), dense_singular_values(W + other), 1e-12)
    square, _ = kind.operator((2,), d=kind.d, p=kind.d)
    before = W @ square
    product = DenseOperator(W.to_dense()) @ DenseOperator(square.to_dense())
    assert torch.allclose(before.apply(x), W.apply(square.apply(x)), rtol=1e-11, atol=1e-11)
    assert torch.allclose(before.to_dense(), product.to_dense(), rtol=1e-11, atol=1e-11)


def test_non_finite_blocks_are_refused_by_everything_that_ranks(kind):
    W, _ = kind.operator()
    (float("nan") * W).apply(torch.zeros(5, kind.d, dtype=torch.float64))
    for bad in (float("nan"), float("inf")):
        broken = bad * W
        calls = [broken.spectrum, broken.interaction_rank, broken.span_matrix, broken.rank_report]
        calls += [lambda b=broken: b.best_heads(1), lambda b=broken: b.row_rank(4)]
        calls += [lambda b=broken: b.column_rank(0), lambda b=broken: operator_span(b)]
        for call in calls:
            with pytest.raises(ValueError, match="must be finite; got"):
                call()
