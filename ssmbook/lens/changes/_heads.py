"""What the heads of a layer did on some texts, and fewer heads that are fitted to it: shared, or cut.

All is decided by Gram matrices, which add up over texts. With attention matrices alpha_h
and value maps V_h, the operator sum_h alpha_h ⊗ V_h loses, under other coefficients
alpha'_g = sum_h P_gh alpha_h,

    ‖sum_g (alpha_g - alpha'_g) ⊗ V_g‖² = sum of all entries of ((I - P) Gram(alpha) (I - P)ᵀ) * Gram(V).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ssmbook._checks import check_choice, check_integer, check_number
from ssmbook.lens._calls import Texts, split_texts
from ssmbook.lens._errors import ReplacementErrors, gram, mixture
from ssmbook.lens._layers import calls, layers, read, select
from ssmbook.lens._reading import Reading, check_read
from ssmbook.lens.changes._change import Change
from ssmbook.operators import FactorizedOperator
from ssmbook.operators.spectra import psd_root

Fit = Literal["operator", "uncorrelated", "output"]
FITS = ("operator", "uncorrelated", "output")
# Steps of alternating least squares for the output.
_ALTERNATIONS = 20


class SharedHeads(nn.Module):
    """Shared heads of a layer as a module: alpha'_k = sum_h mix_kh alpha_h, with value maps W_O[k] W_V[k].

    The three tensors become parameters; ``replace`` puts the module in. Its score matrices
    are those of the layer, and not trained; one that no head takes stays out.

    Parameters
    ----------
    mix : Tensor (H', H)
        How much of each of the layer's attention matrices every shared head takes.
    W_O : Tensor (H', p, width)
        Output weights.
    W_V : Tensor (H', width, d)
        Value weights.
    lost : ReplacementErrors or None
        The errors on the texts that the heads were fitted to.
    """

    def __init__(self, mix: Tensor, W_O: Tensor, W_V: Tensor, lost: ReplacementErrors | None = None) -> None:
        super().__init__()
        self.mix = nn.Parameter(mix)
        self.register_buffer("taken", (mix != 0).any(0), persistent=False)
        self.W_O = nn.Parameter(W_O)
        self.W_V = nn.Parameter(W_V)
        self.lost = lost

    @property
    def change(self) -> Change:
        """What ``replace`` puts in."""
        k, H = self.mix.shape
        cost = {"score matrices": int(self.taken.sum()), "value maps": k}

        def coefficients(alpha: Tensor) -> Tensor:
            return torch.einsum("gh,...hij->...gij", (self.mix * self.taken).to(alpha), alpha)

        return Change(f"{H} heads to {k}", coefficients, self.W_O, self.lost, cost, self.W_V)


class Observed:
    """What the heads of one layer did on some texts, in Gram matrices; it makes changes fitted to them.

    ``H``: how many heads; ``alphas`` (H, H): of attention matrices, added up over the
    texts; ``moments`` (d, d): x xᵀ added up over the ``tokens``; ``outputs`` (H, H, H, H):
    ⟨alpha_h V_g x, alpha_h' V_g' x⟩ at [g, h, g', h']; ``values`` (H r, H r): of all
    alpha_h W_V[h] x.
    """

    def __init__(self, name: str, reading: Reading) -> None:
        if not isinstance(reading.core.W, FactorizedOperator):
            raise ValueError(
                f"{name} must have heads with value maps to share or cut; got {type(reading.core.W).__name__}"
            )
        self.name = name
        self.W_O, self.W_V = reading.factors
        self.H, _, r = self.W_O.shape
        self.alphas = self.W_O.new_zeros(self.H, self.H)
        self.outputs = self.W_O.new_zeros(*[self.H] * 4)
        self.moments = self.W_V.new_zeros(*[self.W_V.shape[-1]] * 2)
        self.values = self.W_O.new_zeros(*[self.H * r] * 2)
        self.tokens = 0

    def add(self, reading: Reading) -> None:
        """Add one text."""
        alpha, x = reading.alpha, reading.core.x
        self.alphas += gram(alpha)
        self.outputs += output_grams(alpha, x, self.W_O, self.W_V)
        z = (alpha @ (x @ self.W_V.mT)).movedim(0, 1).flatten(1)
        self.values += z.mT @ z
        self.moments += x.mT @ x
        self.tokens += len(x)

    def __add__(self, other: Observed) -> Observed:
        """Return what the heads did on the texts of both."""
        both = copy.copy(self)
        for name in ("alphas", "moments", "outputs", "values", "tokens"):
            setattr(both, name, getattr(self, name) + getattr(other, name))
        return both

    def share(self, H: int | None = None, fit: Fit = "uncorrelated", width: int | None = None) -> SharedHeads:
        """Return H shared heads with value maps of at most this rank, which mix all attention matrices.

        All the scores are still computed.

        Parameters
        ----------
        H : int, optional
            The number of heads, by default all of the layer's, which is exact.
        fit : {"uncorrelated", "operator", "output"}
            Which of the three `ReplacementErrors` to make least on these texts; "output" goes on from
            "uncorrelated" and ends in a local minimum, never above it.
        width : int, optional
            The rank of each value map, full by default: the best maps of that rank for tokens with
            these second moments.

        Returns
        -------
        SharedHeads
            In float64, to put in by ``replace`` and to train.

        Raises
        ------
        ValueError
            If H or the width is 0 or larger than the layer's.
        """
        H = self.H if H is None else check_integer("H", H, low=1, high=self.H)
        check_choice("fit", fit, FITS)
        if self.H == H:
            A = B = self._columns(range(H))
        else:
            A, B = mixture(self.alphas, self._map_grams(fit != "operator"), H)
            if fit == "output":
                A, B = output_mixture(A, B, self.outputs)
        return self._mixed(A, B, width)

    def remix(self, keep: Sequence[int], width: int | None = None) -> SharedHeads:
        """Return heads on the attention matrices of some heads alone, with mixtures of all value maps.

        So fewer score matrices are computed. Of all mixtures the one whose output errs least on
        these texts; ``width``: the rank of each value map, as in ``share``. Raises ``ValueError`` for a
        head that the layer does not have, or one twice.
        """
        return self._mixed(self.mixtures(keep), self._columns(keep), width)

    def mixtures(self, keep: Sequence[int]) -> Tensor:
        """Return how ``remix`` mixes all value maps for each kept head, (H, kept); raises as it does."""
        if isinstance(keep, int) or not keep or len({*keep}) < len(keep):
            raise ValueError(f"keep must be different heads, at least one; got {keep!r}")
        kept = [check_integer("keep", h, low=0, high=self.H - 1) for h in keep]
        right = torch.einsum("ghaa->gh", self.outputs)[:, kept]
        return _least(self.outputs[:, kept][:, :, :, kept], right.mT, self.H, len(kept))

    def _mixed(self, A: Tensor, B: Tensor, width: int | None = None) -> SharedHeads:
        """Heads that mix the attention matrices by Bᵀ and the value maps by Aᵀ; A and B (H, k)."""
        V = torch.einsum("gk,gpr,grd->kpd", A, self.W_O, self.W_V)
        full = min(V.shape[1:])
        width = full if width is None else check_integer("width", width, low=1, high=full)
        # V = U Uᵀ V on tokens with these moments, but for the singular values that are left
        # out
        W_O = torch.linalg.svd(V @ psd_root(self.moments)).U[..., :width]
        return SharedHeads(B.mT, W_O, W_O.mT @ V, self.lost(A @ B.mT) if width == full else None)

    def cut(self, H: int, ridge: float | None = None) -> SharedHeads:
        """Return the H heads with the largest ‖alpha_h‖ ‖V_h‖ on these tokens, without the others.

        ``ridge``: refit the output weights by least squares, so that the kept heads come
        closest to what all heads made on these tokens; a larger one holds them nearer to
        the layer's own weights, in units of the mean energy of a value. Few tokens leave
        many directions open: choose it on texts that are not fitted, with ``missed``.
        Raises ``ValueError`` as ``share``.
        """
        H = check_integer("H", H, low=1, high=self.H)
        sizes = self.alphas.diagonal() * self._map_grams(True).diagonal()
        kept = sorted(sizes.topk(H).indices.tolist())
        B = self._columns(kept)
        if ridge is None:
            return SharedHeads(B.mT, self.W_O[kept], self.W_V[kept], self.lost(B @ B.mT))
        W_O = self._refit(kept, check_number("ridge", ridge, 0.0, float("inf")))
        found = SharedHeads(B.mT, W_O[kept], self.W_V[kept], self.lost(B @ B.mT, W_O))
        found.lost = found.lost._replace(output=self.missed(found))
        return found

    @torch.no_grad()
    def missed(self, kept: SharedHeads) -> float:
        """The share of the output on these texts that heads of ``cut`` miss; ``ValueError`` for others."""
        rows = kept.mix.argmax(1)
        cut = self._columns(rows.tolist()).mT.to(kept.mix), self.W_V[rows].to(kept.W_V)
        if not (torch.equal(kept.mix, cut[0]) and torch.equal(kept.W_V, cut[1])):
            raise ValueError("kept must be heads of cut with the layer's own value weights; got others")
        W_O = torch.einsum("kh,kpr->hpr", kept.mix, kept.W_O)
        gap, own = ((part.mT.flatten(0, 1)) for part in (W_O - self.W_O, self.W_O))
        return float(((self.values @ gap) * gap).sum() / ((self.values @ own) * own).sum())

    def _columns(self, kept: Sequence[int]) -> Tensor:
        """The columns (H, k) of the unit matrix for some heads."""
        return torch.eye(self.H, dtype=self.alphas.dtype, device=self.alphas.device)[:, list(kept)]

    def lost(self, P: Tensor, W_O: Tensor | None = None) -> ReplacementErrors:
        """The errors of coefficients P alpha on these texts, with other output weights if given."""
        own, shares = torch.eye(self.H, dtype=P.dtype, device=P.device), []
        E = own - P if W_O is None else torch.cat([own, -P])
        for seen in (False, True):
            maps = self._map_grams(seen, W_O)
            gone = ((E @ self.alphas @ E.mT) * maps).sum().clamp_min(0)
            shares.append(float(gone / (self.alphas * maps[: self.H, : self.H]).sum()))
        E = own - P
        gone = torch.einsum("gh,ghab,ab->", E, self.outputs, E)
        return ReplacementErrors(*shares, float(gone / torch.einsum("ggaa->", self.outputs)))

    def _map_grams(self, seen: bool, W_O: Tensor | None = None) -> Tensor:
        """⟨V_g, V_h⟩ (H, H), or weighted by second moments (``seen``), with V_h = W_O[h] W_V[h] by factors.

        With other output weights (2H, 2H): of the layer's own value maps and of those.
        """
        left = self.W_V.flatten(0, 1)
        inputs = (left @ self.moments / self.tokens if seen else left) @ left.mT
        out = self.W_O.movedim(1, 0).flatten(1)
        if W_O is not None:
            out, inputs = torch.cat([out, W_O.movedim(1, 0).flatten(1)], 1), inputs.repeat(2, 2)
        r = self.W_O.shape[-1]
        # ⟨W_O W_V, W_O' W_V'⟩ = sum over r, r' of (W_Oᵀ W_O') * (W_V W_V'ᵀ)
        return ((out.mT @ out) * inputs).unflatten(0, (-1, r)).unflatten(2, (-1, r)).sum((1, 3))

    def _refit(self, kept: list[int], ridge: float) -> Tensor:
        """Output weights (H, p, r) by least squares for the kept heads, zero for the others."""
        r = self.W_O.shape[-1]
        own = self.W_O.mT.flatten(0, 1)  # (H r, p)
        at = torch.cat([torch.arange(h * r, (h + 1) * r, device=own.device) for h in kept])
        Z, new = self.values[at][:, at], torch.zeros_like(own)
        firm = Z + ridge * Z.diagonal().mean() * torch.eye(len(at), dtype=Z.dtype, device=Z.device)
        new[at] = own[at] + torch.linalg.solve(firm, self.values[at] @ own - Z @ own[at])
        return new.unflatten(0, (self.H, r)).mT


def output_grams(alpha: Tensor, x: Tensor, W_O: Tensor, W_V: Tensor) -> Tensor:
    """Return ⟨alpha_h V_g x, alpha_h' V_g' x⟩ at [g, h, g', h'] for one text, alpha (H, n, n), x (n, d)."""
    H = len(alpha)
    Z = torch.einsum("hij,gjr->ghir", alpha, x @ W_V.mT)  # (g, h, n, r)
    found = alpha.new_empty(H, H, H, H)
    for g in range(H):
        for a in range(g, H):
            right = Z[a] @ (W_O[g].mT @ W_O[a]).mT
            found[g, :, a] = Z[g].flatten(1) @ right.flatten(1).mT
            found[a, :, g] = found[g, :, a].mT
    return found


def output_mixture(A: Tensor, B: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Lower the error of the output on these tokens, starting from A and B, by alternating least squares.

    ``outputs`` (H, H, H, H): ⟨alpha_h v_g, alpha_h' v_g'⟩ at [g, h, g', h']. Each half of a
    step is a linear least-squares problem, so the error never rises; a local minimum is all
    that is promised.
    """
    H, k = A.shape
    own = torch.einsum("ghaa->gh", outputs)  # with what all heads make together
    for _ in range(_ALTERNATIONS):
        B = torch.linalg.qr(B).Q
        A = _least(torch.einsum("hm,ghab,bk->gmak", B, outputs, B), B.mT @ own.mT, H, k)
        A = torch.linalg.qr(A).Q
        B = _least(torch.einsum("gm,ghab,ak->hmbk", A, outputs, A), A.mT @ own, H, k)
    return A, B


def _least(normal: Tensor, right: Tensor, H: int, k: int) -> Tensor:
    """Solve normal equations (H k, H k) for one factor (H, k)."""
    inverse = torch.linalg.pinv(normal.reshape(H * k, H * k), rtol=1e-12, hermitian=True)
    return (inverse @ right.mT.reshape(-1)).view(H, k)


@torch.no_grad()
def observe(model: nn.Module, inputs: Texts, names: Sequence[str] | None = None) -> dict[str, Observed]:
    """Watch the heads of a model's layers on a batch of texts; return name -> `Observed`.

    ``inputs``: as for ``report``, also with a mask of padding; ``names``: of some
    layers (all that have heads with value maps). One layer at a time is held in float64.
    Raises as ``operator``.

    >>> from ssmbook.maps import Attention
    >>> model = torch.nn.Sequential(Attention(6, 6, H=4, head_width=3)).eval()
    >>> seen = observe(model, torch.randn(3, 10, 6))["0"]
    >>> shared = seen.share(2)
    >>> shared.change.name, shared.change.cost, shared.lost.operator < 1
    ('4 heads to 2', {'score matrices': 4, 'value maps': 2}, True)
    """
    found, seen = select(layers(model, unknown="skip"), names), {}
    for text in split_texts(model, inputs):
        given = calls(found, text)
        for layer in found:
            reading = read(layer, given.pop(layer.name))
            if names is None and not isinstance(reading.core.W, FactorizedOperator):
                continue
            if layer.name not in seen:
                check_read(layer.title, reading.core)
                seen[layer.name] = Observed(layer.title, reading)
            seen[layer.name].add(reading)
    return seen
