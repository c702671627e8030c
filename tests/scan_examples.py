"""Arguments for every scan, and their outputs with all gradients."""

import functools

import torch

from ssmbook import scans


def draw(*shape, dtype=torch.float64, seed=0):
    """Normal numbers, the same in every precision."""
    wide = torch.complex128 if dtype.is_complex else torch.float64
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, dtype=wide, generator=generator).to(dtype)


def examples(T=70, dtype=torch.float64, batch=(2,)):
    """Name -> (scan, naive twin, arguments with a state, the time dimension of each or None)."""
    a, x, B, C = (draw(*batch, T, m, dtype=dtype, seed=m) for m in (3, 3, 4, 4))
    A, D, state = -draw(3, 4, dtype=dtype).abs(), draw(3, dtype=dtype), draw(*batch, 3, 4, dtype=dtype)
    z, w, c = (torch.complex(t, t.flip(-1)) for t in (a, x, state[..., 0]))
    heads, keys = draw(*batch, T, 2, 3, dtype=dtype), draw(*batch, T, 2, 4, dtype=dtype)
    start = draw(*batch, 2, 3, 4, dtype=dtype)
    system = 0.97 * torch.linalg.qr(draw(4, 4))[0].to(dtype), A.mT.contiguous(), A[:2]
    selective = [x, a.abs(), A, B, C, D, state], [-2, -2, None, -2, -2, None, None]
    selective_scans = scans.selective_scan, scans.selective_scan_naive
    mixed = [functools.partial(f, discretization="mixed") for f in selective_scans]
    log = [functools.partial(f, log=True) for f in (scans.diagonal_scan, scans.diagonal_scan_naive)]
    diagonal, lti = (scans.diagonal_scan, scans.diagonal_scan_naive), scans.lti_scan_naive
    return {
        "diagonal": (*diagonal, [2 * a.sigmoid() - 1, x, state[..., 0]], [-2, -2, None]),
        "complex": (*diagonal, [0.97 * z.sgn(), w, c], [-2, -2, None]),
        "logarithms": (*log, [0.05 - 0.3 * a.abs(), x, state[..., 0]], [-2, -2, None]),
        "selective": (*mixed, *selective),
        "zero-order hold": (*selective_scans, *selective),
        "ssd": (
            *(scans.ssd_scan, scans.ssd_scan_naive),
            [heads, 0.05 - a[..., :2].abs(), keys, keys.flip(-1), start],
            [-3, -2, -3, -3, None],
        ),
        "lti": (scans.lti_scan, lti, [*system, x, state[..., 0, :]], [None, None, None, -2, None]),
        "chunked": (
            *(functools.partial(scans.lti_scan, method="chunked"), lti),
            [*system, x, state[..., 0, :]],
            [None, None, None, -2, None],
        ),
    }


NAMES = list(examples())


def with_gradients(scan, arguments):
    """Outputs, and the gradient of a random functional of them in every argument."""
    leaves = [t.detach().clone().requires_grad_() for t in arguments]
    outputs = scan(*leaves)
    weights = [draw(*out.shape, dtype=out.dtype, seed=5).to(out.device) for out in outputs]
    pairs = [(out, w) for out, w in zip(outputs, weights, strict=True) if out.requires_grad]
    outputs_, weights_ = zip(*pairs, strict=True)
    gradients = torch.autograd.grad(outputs_, leaves, weights_, materialize_grads=True)
    return [*(out.detach() for out in outputs), *gradients]


def assert_same(found, wanted, tolerance):
    """Shapes, dtypes, and numbers relative to the largest of each tensor."""
    for i, (got, want) in enumerate(zip(found, wanted, strict=True)):
        assert got.shape == want.shape and got.dtype == want.dtype, i
        if want.numel():
            assert (got - want).abs().max() <= tolerance * max(want.abs().max(), 1e-3), i
