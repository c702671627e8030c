"""What the blocks of an operator span: ranks, spectra, best heads, and what fewer heads miss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import torch

from ssmbook._checks import check_eps, check_finite, check_flags, check_integer, check_shape, check_wide
from ssmbook.numerics import RankReport, numerical_rank, plain, rank_report, tolerance
from ssmbook.operators.ranks import compress, leading_row_directions, tail_energies, triangle

if TYPE_CHECKING:
    from ssmbook.operators.factorized import FactorizedOperator


class Spectral:
    """What every ``InteractionOperator`` can count, detached and in float64, from its blocks W_ij.

    For who writes a kind: ``_span_blocks`` are the rows vec W_ij or fewer rows with the same singular values
    and row space. A kind whose blocks all lie in a known subspace gives ``_width`` coordinates in it, with
    ``_as_blocks`` as the way back. Introduced in *interaction-operator*.

    >>> W = LagOperator(torch.eye(2).repeat(4, 1, 1)) + 1e-3 * PointwiseOperator(torch.ones(4, 2, 2))
    >>> W.interaction_rank(), W.epsilon_heads(0.01)  # exactly, and up to a hundredth of the energy
    (2, 1)
    """

    # The kinds that operators are made into, entered by the files that define them.
    _made_of: ClassVar[dict[str, type]] = {}

    def _as_blocks(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the blocks (..., p, d) of coordinates (..., width); orthonormal rows stay orthonormal."""
        return rows.unflatten(-1, (self.p, self.d))

    def _span_blocks(self) -> Iterator[torch.Tensor]:
        """Yield matrices (..., r, width) with, stacked, the singular values and row space of all vec W_ij."""
        for row in self.rows():
            yield row.flatten(-2)

    def _row_vectors(self, i: int) -> torch.Tensor:
        return self.row(i).flatten(-2)

    def _column_vectors(self, j: int) -> torch.Tensor:
        return self.column(j).flatten(-2)

    # False where the blocks of different batch elements are rotated differently: such rows do not line up.
    _rows_line_up = True

    def _reduced(self) -> torch.Tensor:
        check_wide("W", self)
        empty = torch.zeros(*self.batch_shape, 0, self._width, dtype=torch.float64, device=self.device)
        return compress(self._span_blocks(), empty)

    @torch.no_grad()
    def span_matrix(self) -> torch.Tensor:
        """Return a small matrix with the singular values and row space of the rows vec W_ij (row-major vec).

        Shape (..., m, p·d) with m ≤ p·d, float64, detached. Raises ``ValueError`` when a block is not finite:
        its rank would mean nothing. Introduced in *interaction-operator*.
        """
        return self._as_blocks(self._reduced()).flatten(-2)

    @torch.no_grad()
    def spectrum(self, joint: bool = False) -> torch.Tensor:
        """Return the singular values of the rows vec W_ij: float64, descending, (..., m) with m ≤ p·d.

        They are the singular values of W rearranged as a sum of Kronecker products (Van Loan–Pitsianis).
        ``joint=True``: one spectrum for the whole batch, shape (m,). Raises as ``span_matrix``.
        Introduced in *interaction-operator*.

        >>> heads = FactorizedOperator(torch.ones(1, 4, 4), torch.eye(2)[None])
        >>> [round(value, 3) for value in heads.spectrum().tolist()]  # one head, of norm 4 · √2
        [5.657]
        """
        check_flags(joint=joint)
        return torch.linalg.svdvals(_joined(self._reduced()) if joint else self._reduced())

    def rank_report(self, rtol: float | None = None, joint: bool = False) -> RankReport:
        """Return the interaction rank with spectrum, tolerance and gap; arguments as ``interaction_rank``."""
        rtol = tolerance(rtol, self.dtype)
        return rank_report(self.spectrum(joint), rtol)

    def interaction_rank(self, rtol: float | None = None, joint: bool = False) -> int | torch.Tensor:
        """Return k, the dimension of the operator span of all W_ij.

        ``rtol``: singular values at most ``rtol`` times the largest count as zero; by default
        ``default_rtol`` of the operator's dtype (1e-10 in float64): rounding above that counts, so the
        difference of two nearly equal operators has the rank of its rounding. Returns an ``int``, or int64
        (...) when batched; ``joint=True`` takes one span over the whole batch and returns an ``int``. Raises
        as ``span_matrix``, and ``ValueError`` for ``rtol`` outside [0, 1). Introduced in
        *interaction-operator*.

        >>> turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
        >>> M = torch.stack([torch.linalg.matrix_power(turn, lag) for lag in range(8)])
        >>> LagOperator(M).interaction_rank()  # I and the quarter turn span all eight lags
        2
        """
        return self.rank_report(rtol, joint).rank

    @torch.no_grad()
    def row_rank(self, i: int, rtol: float | None = None) -> int | torch.Tensor:
        """Return the dimension of span_j W_ij for one output token: ``int``, or int64 (...) when batched.

        Raises as ``interaction_rank`` and ``row``. Introduced in *zoo*.
        """
        return self._blocks_rank(self._row_vectors(i), rtol)

    @torch.no_grad()
    def column_rank(self, j: int, rtol: float | None = None) -> int | torch.Tensor:
        """Return the dimension of span_i W_ij for one input token: ``int``, or int64 (...) when batched.

        Raises as ``interaction_rank`` and ``column``. Introduced in *zoo*.
        """
        return self._blocks_rank(self._column_vectors(j), rtol)

    @torch.no_grad()
    def floor(
        self,
        H: int | None = None,
        *,
        time_covariance: torch.Tensor | None = None,
        channel_covariance: torch.Tensor | None = None,
    ) -> float | torch.Tensor:
        """Return the relative squared error of the best H heads, ‖W − best_heads(H)‖² / ‖W‖².

        ``H``: a number of heads (the result is a float, or float64 (...) when batched), or ``None`` for the
        whole curve H = 0 … m as float64 (..., m + 1), m the length of ``spectrum()``; more heads than m miss
        nothing. It is the expected error of the output over its expected energy for white inputs; with
        ``time_covariance`` (n, n) and ``channel_covariance`` (d, d), symmetric positive semidefinite, for
        inputs with E x_i x_jᵀ = time_covariance[i, j] · channel_covariance (``None``: white; any floating
        dtype). A zero operator has floor 0. Raises ``ValueError``/``TypeError`` for a bad ``H`` or
        covariance, and as ``span_matrix``. Source: `eckart1936approximation`. Introduced in
        *head-count*.

        >>> W = LagOperator(torch.tensor([[[3.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 4.0]]]))
        >>> round(W.floor(1), 4), W.floor(2)  # energies 2 · 3² and 4²: without the second, 16 / 34 is missed
        (0.4706, 0.0)
        """
        curve = tail_energies(self._weighted(time_covariance, channel_covariance).spectrum())
        if H is None:
            return curve
        return plain(curve[..., min(check_integer("H", H, low=0), curve.shape[-1] - 1)])

    def epsilon_heads(
        self,
        eps: float,
        *,
        time_covariance: torch.Tensor | None = None,
        channel_covariance: torch.Tensor | None = None,
    ) -> int | torch.Tensor:
        """Return k_ε, the fewest heads whose relative squared error ``floor`` is at most ``eps``.

        ``eps``: a number, at least 0; the covariances as in ``floor``. Returns an ``int``, or int64 (...)
        when batched. Raises ``TypeError``/``ValueError`` for a bad ``eps``, and as ``floor``. Introduced in
        *head-count*.

        >>> W = LagOperator(torch.tensor([[[3.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 4.0]]]))
        >>> W.epsilon_heads(0.5), W.epsilon_heads(0.1)
        (1, 2)
        """
        check_eps(eps)
        curve = self.floor(time_covariance=time_covariance, channel_covariance=channel_covariance)
        return plain((curve > eps).sum(-1))

    @torch.no_grad()
    def past_future_rank(self, rtol: float | None = None) -> int | torch.Tensor:
        """Return the past–future rank of a causal operator: the widest memory that some cut in time needs.

        It is the largest rank, over the cuts 0 < t < n, of the block of W that takes the tokens before t to
        the outputs from t on; a recurrence with N states has at most N. ``rtol`` is relative to the largest
        singular value of all these blocks. Returns an ``int``, or int64 (...) when batched. A recurrence
        is read from its states; other kinds need n − 1 dense singular value decompositions. For a wide layer
        ask for its heads or channels: ``W.mixing.past_future_rank()``, ``W.channels.past_future_rank()``.
        Raises ``ValueError`` when a
        block W_ij with j > i is not zero, and as ``interaction_rank``. Introduced in *structured-dynamics*.

        >>> W = LagOperator(0.5 ** torch.arange(8.0).reshape(8, 1, 1))  # one state carries the past
        >>> W.past_future_rank()
        1
        """
        check_wide("W", self)
        rtol = tolerance(rtol, self.dtype)
        spectra = [torch.linalg.svdvals(block) for block in self._cuts()]
        largest = [torch.nn.functional.pad(sigma, (0, 1)).amax((-2, -1)) for sigma in spectra]
        if not largest:
            return plain(torch.zeros(self.batch_shape, dtype=torch.int64, device=self.device))
        scale = torch.stack(largest).amax(0)[..., None]
        ranks = [torch.as_tensor(numerical_rank(sigma, rtol, scale)).sum(-1) for sigma in spectra]
        return plain(torch.stack(ranks).amax(0))

    def _cuts(self) -> Iterator[torch.Tensor]:
        """Yield, for t = 1 … n−1, matrices (..., k, r, c) whose ranks add up to that of W from < t to ≥ t."""
        blocks = self.to_dense().to(torch.float64)
        check_finite("W", blocks)
        future = torch.ones(self.n, self.n, dtype=torch.bool, device=self.device).triu(1)
        if bool((blocks[..., future, :, :] != 0).any()):
            raise ValueError(
                "W must be causal, W_ij = 0 for j > i, for a cut in time; got a block that is not 0"
            )
        matrix = blocks.transpose(-3, -2)
        for t in range(1, self.n):
            block = matrix[..., t:, :, :t, :]
            yield block.reshape(*self.batch_shape, 1, (self.n - t) * self.p, t * self.d)

    @torch.no_grad()
    def best_heads(self, H: int) -> FactorizedOperator:
        """Return the H-head operator nearest to W in Frobenius norm, as a ``FactorizedOperator``.

        Truncated Kronecker SVD (Van Loan–Pitsianis; the optimum is Eckart–Young, `eckart1936approximation`):
        orthonormal V (..., H, p, d) and alpha^h_ij = ⟨W_ij, V_h⟩ (..., H, n, n), in the operator's dtype,
        detached. Raises ``ValueError`` for H below 0 or above min(n², p·d), and as ``span_matrix``.
        Introduced in *interaction-operator*.

        >>> W = DenseOperator(torch.randn(6, 6, 3, 3, dtype=torch.float64))
        >>> two = W.best_heads(2)
        >>> missed = (W - two).block_norms().square().sum() / W.block_norms().square().sum()
        >>> two.interaction_rank(), abs(missed.item() - W.floor(2)) < 1e-12
        (2, True)
        """
        V = self.leading_value_maps(H)
        return self._made_of["heads"](self.coefficients(V), V)

    @torch.no_grad()
    def leading_value_maps(self, H: int) -> torch.Tensor:
        """Return the H orthonormal value maps (..., H, p, d) of ``best_heads(H)``; raises as that does.

        Introduced in *interaction-operator*.
        """
        H = check_integer("H", H, low=0, high=min(self.n**2, self.p * self.d))
        return self._as_blocks(leading_row_directions(self._reduced(), H)).to(self.dtype)

    # Small parts
    def _weighted(self, time_covariance, channel_covariance):
        """Return an operator with the spectrum of W for inputs of the given second moments (None: white)."""
        check_wide("W", self)
        if time_covariance is None and channel_covariance is None:
            return self
        return self.to(torch.float64)._colored(
            covariance_root("time_covariance", time_covariance, self.n, self.device),
            covariance_root("channel_covariance", channel_covariance, self.d, self.device),
        )

    def _colored(self, time: torch.Tensor | None, channel: torch.Tensor | None):
        """Return an operator with the spectrum of W (time ⊗ channel), either being ``None`` for identity."""
        like = {"dtype": self.dtype, "device": self.device}
        time = torch.eye(self.n, **like) if time is None else time
        channel = torch.eye(self.d, **like) if channel is None else channel
        return self @ self._made_of["heads"](time[None], channel[None])

    def _blocks_rank(self, rows: torch.Tensor, rtol: float | None):
        check_wide("W", self)
        rtol = tolerance(rtol, self.dtype)
        empty = torch.zeros_like(rows[..., :0, :], dtype=torch.float64)
        return numerical_rank(torch.linalg.svdvals(compress([rows], empty)), rtol)


@torch.no_grad()
def operator_span(W: Spectral, rtol: float | None = None) -> torch.Tensor:
    """Return an orthonormal basis (k, p, d) of the operator span, one span over the whole batch.

    In the dtype and on the device of ``W``, detached, found in float64; ``rtol`` as in ``interaction_rank``.
    Raises ``TypeError`` when ``W`` is not an operator, else as ``interaction_rank``. Introduced in
    *interaction-operator*.

    >>> turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    >>> M = torch.stack([torch.linalg.matrix_power(turn, lag) for lag in range(8)])
    >>> operator_span(LagOperator(M)).shape  # two orthonormal matrices span all lags
    torch.Size([2, 2, 2])
    """
    if not isinstance(W, Spectral):
        raise TypeError(f"W must be an InteractionOperator; got {type(W).__name__}")
    matrix = _joined(W._reduced())
    k = numerical_rank(torch.linalg.svdvals(matrix), tolerance(rtol, W.dtype))
    return W._as_blocks(leading_row_directions(matrix, k)).to(W.dtype)


def _joined(matrix: torch.Tensor) -> torch.Tensor:
    """One small matrix with the rows of a whole batch of them."""
    return triangle(matrix.flatten(0, -2))


def covariance_root(name: str, covariance, size: int, device):
    """The square root (size, size) of a covariance in float64 on ``device``; None stays None."""
    if covariance is None:
        return None
    check_shape(name, covariance, f"{size} {size}")
    check_finite(name, covariance)
    # Second moments of fewer tokens than channels are singular, and rounded in the dtype they come in.
    slack = max(1e-12, 4 * torch.finfo(covariance.dtype).eps)
    covariance = covariance.to(device=device, dtype=torch.float64)
    if not torch.allclose(covariance, covariance.mT, rtol=1e-6, atol=slack * float(covariance.abs().max())):
        raise ValueError(f"{name} must be symmetric; got entries that differ from their mirror image")
    values, vectors = torch.linalg.eigh(covariance)
    if size and float(values[0]) < -slack * size * float(values[-1].abs()):
        raise ValueError(f"{name} must be positive semidefinite; got the eigenvalue {float(values[0]):.3g}")
    return vectors * values.clamp_min(0).sqrt() @ vectors.mT
