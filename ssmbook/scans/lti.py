"""A linear time-invariant system along a sequence, and its kernel.

    h_t = A h_{t-1} + B x_t,  y_t = C h_t    or, without states,    y_i = sum over j <= i of K_{i-j} x_j

with the lags K_tau = C A^tau B. The recurrence is the scan, the list of all K_tau is the
kernel of the same map as a convolution.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from ssmbook._checks import check_choice, check_integer, check_tensors
from ssmbook.scans._shared import check_scan, half_in_float32
from ssmbook.scans.fast.engines import loops_for
from ssmbook.scans.fast.lti import by_chunks, by_steps, dense, lags_by_powers, squarings
from ssmbook.scans.fast.operation import active_transform

Method = Literal["auto", "recurrence", "chunked"]
METHODS = get_args(Method)  # once: torch.compile of PyTorch 2.6 cannot follow it
QUICK = 8e6  # rows times steps times (N + 4)^2: up to here the compiled recurrence is ahead of products


@half_in_float32
def lti_scan_naive(
    A: Tensor, B: Tensor, C: Tensor, x: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The recurrence of :func:`lti_scan` as it is written, one step at a time.

    Parameters
    ----------
    A, B, C : Tensor (N, N), (N, d), (p, N)
        The system.
    x : Tensor (..., T, d)
        Inputs.
    state : Tensor (..., N), optional
        The initial state, zero if None.

    Returns
    -------
    y : Tensor (..., T, p)
        The outputs.
    end : Tensor (..., N)
        The last state.

    Raises
    ------
    ValueError, TypeError
        For shapes that differ, and for mixed dtypes.
    """
    _check(A, B, C, x, state)
    h = x.new_zeros((*x.shape[:-2], A.shape[0])) if state is None else state
    y = []
    for x_t in x.unbind(-2):
        h = h @ A.mT + x_t @ B.mT
        y.append(h @ C.mT)
    return torch.stack(y, -2) if y else x.new_zeros((*x.shape[:-1], C.shape[0])), h


@half_in_float32
def lti_scan(
    A: Tensor,
    B: Tensor,
    C: Tensor,
    x: Tensor,
    state: Tensor | None = None,
    method: Method = "auto",
) -> tuple[Tensor, Tensor]:
    """Run h_t = A h_{t-1} + B x_t, y_t = C h_t along dim -2 of x.

    Chunks take powers of A: where these grow, where numbers are not finite, and inside
    ``torch.compile``, ``torch.func`` and ``vmap`` it is the recurrence, whatever
    ``method``. After `dao2024transformers` (chunked).

    Parameters
    ----------
    A, B, C : Tensor (N, N), (N, d), (p, N)
        The system. All arguments have one dtype, real or complex; float16 and bfloat16 are
        computed, and their states kept, in float32.
    x : Tensor (..., T, d)
        Inputs.
    state : Tensor (..., N), optional
        The initial state h_0, zero if None.
    method : {"auto", "recurrence", "chunked"}, default "auto"
        "recurrence": one step at a time; "chunked": a kernel inside each chunk and the state between
        chunks, all matrix products; "auto" picks by sizes.

    Returns
    -------
    y : Tensor (..., T, p)
        The outputs, differentiable in everything.
    end : Tensor (..., N)
        The last state.

    Raises
    ------
    ValueError
        For shapes that differ, and for another method.
    TypeError
        For mixed dtypes.

    Examples
    --------
    >>> A, B, C = torch.tensor([[0.5]]), torch.ones(1, 1), torch.ones(1, 1)
    >>> y, state = lti_scan(A, B, C, torch.ones(3, 1))
    >>> y.flatten().tolist(), lti_scan(A, B, C, torch.ones(1, 1), state)[0].item()  # and on from there
    ([1.0, 1.5, 1.75], 1.875)
    """
    _check(A, B, C, x, state)
    check_choice("method", method, METHODS)
    T = x.shape[-2]
    state = x.new_zeros((*x.shape[:-2], A.shape[0])) if state is None else state
    if T == 0:
        return (x @ B.mT) @ C.mT, state.clone()
    given = A, B, C, x, state
    if method == "recurrence" or active_transform(*given) or T < 3 or not state.numel():
        return by_steps(*given)
    chunked = method == "chunked"
    if method == "auto":
        work = state[..., 0].numel() * T * (A.shape[0] + 4) ** 2
        chunked = work > QUICK if loops_for(x) else T >= 64
    return by_chunks(*given) if chunked else by_steps(*given)


def _check(A, B, C, x, state) -> None:
    matrices = {"A": (A, "N N"), "B": (B, "N d"), "C": (C, "p N")}
    check_scan(complex_ok=True, **matrices, x=(x, "... T d"), state=(state, "... N"))


# --- The kernel ---------------------------------------------------------------------------------------


def lti_kernel_naive(A: Tensor, B: Tensor, C: Tensor, n: int) -> Tensor:
    """The kernel of :func:`lti_kernel` as it is written, one power of A at a time.

    Parameters
    ----------
    A, B, C : Tensor (..., N, N), (..., N, d), (..., p, N)
        The system.
    n : int
        The number of lags.

    Returns
    -------
    Tensor (..., n, p, d)
        The lags.

    Raises
    ------
    ValueError, TypeError
        For shapes that differ, mixed dtypes, and an n that is no number of lags.
    """
    n = _check_kernel(A, B, C, n)
    column, kernel = B, []
    for _ in range(n):
        kernel.append(C @ column)
        column = A @ column
    return torch.stack(kernel, -3) if kernel else A.new_zeros((*A.shape[:-2], 0, C.shape[-2], B.shape[-1]))


def lti_kernel(A: Tensor, B: Tensor, C: Tensor, n: int) -> Tensor:
    """Compute the kernel K_tau = C A^tau B of a linear time-invariant system for tau = 0 ... n - 1.

    From powers of A at two levels, A^(iL+j) = A^(iL) A^j with L near sqrt(n)
    (`prop-two-level-powers`), where these stay bounded, else one step at a time: never less exact than
    that. A power that overflows gives lags that are not finite.

    Parameters
    ----------
    A, B, C : Tensor (..., N, N), (..., N, d), (..., p, N)
        The system, of one dtype, real or complex.
    n : int
        The number of lags.

    Returns
    -------
    Tensor (..., n, p, d)
        The lags in that dtype, differentiable in A, B and C.

    Raises
    ------
    ValueError
        For shapes that differ, and for a negative n.
    TypeError
        For mixed dtypes, and for an n that is no integer.

    Examples
    --------
    >>> turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    >>> lti_kernel(turn, torch.eye(2), torch.eye(2), 4)[:, 0].tolist()  # first rows of I, the turn, …
    [[1.0, 0.0], [0.0, -1.0], [-1.0, 0.0], [0.0, 1.0]]
    """
    return lags(A, B, C, _check_kernel(A, B, C, n))


def _check_kernel(A, B, C, n) -> int:
    check_tensors(one_batch=True, complex_ok=True, A=(A, "... N N"), B=(B, "... N d"), C=(C, "... p N"))
    return check_integer("n", n, low=0)


def lags(A: Tensor, B: Tensor, C: Tensor, n: int) -> Tensor:
    """:func:`lti_kernel`, unchecked."""
    if n > 2 and active_transform(A, B, C) is None and A.numel():
        if powers := squarings(A, n, n):
            return lags_by_powers(powers, B, C, n)
    if n < 2 or A.dim() > 2:
        return lti_kernel_naive(A, B, C, n)
    states, _ = dense(A, B.new_zeros(B.shape[-1], n - 1, B.shape[-2]), B.mT)  # from each column of B
    return torch.cat(((C @ B).unsqueeze(0), (states @ C.mT).permute(1, 2, 0)))
