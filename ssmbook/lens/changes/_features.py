"""Causal states: a window of tokens exactly, and the rest of the past in N positive features.

A query reads the near keys with exp(q · k) and the far ones with φ(q) · ψ(k), where
φ(q) = exp(q a + b) and ψ(k) = exp(k c + d); each row is divided by its sum. As a recurrence a
key–value group keeps Σ ψ(k_j) v_jᵀ and Σ ψ(k_j) over the far j, N (r + 1) numbers at any
length. The form is that of LoLCATs (Zhang et al., 2024), without training of other weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

# No feature may leave the range of float32: exponents of queries, relative to the largest
# near score, and of keys end here.
_READ, _WRITE = 30.0, 15.0
# Steps of Adam, each on two texts, and their rate.
_STEPS, _RATE = 70, 0.02


def read_features(p: Mapping[str, Tensor], q: Tensor, top: Tensor) -> Tensor:
    """φ (B, H, n, N) of scaled queries (B, H, n, r), divided by exp(top), (B, H, n, 1)."""
    return (torch.einsum("bhnr,hrs->bhns", q, p["a"]) + p["b"][:, None] - top).clamp(max=_READ).exp()


def write_features(p: Mapping[str, Tensor], k: Tensor) -> Tensor:
    """ψ (B, G, n, N) of keys (B, G, n, r)."""
    return (torch.einsum("bgnr,grs->bgns", k, p["c"]) + p["d"][:, None]).clamp(max=_WRITE).exp()


def states_output(p: Mapping[str, Tensor], q: Tensor, k: Tensor, v: Tensor, near: Tensor, far: Tensor):
    """Outputs (B, H, n, r) of whole texts.

    Parameters
    ----------
    p : mapping
        "a" (H, r, N), "b" (H, N), "c" (G, r, N), "d" (G, N).
    q, k, v : Tensor
        Scaled queries (B, H, n, r), keys and values (B, G, n, r), in float32.
    near, far : Tensor (B, 1, n, n)
        Which keys are read exactly, and which by features.

    Returns
    -------
    Tensor (B, H, n, r)
        What each head puts out.
    """
    share = q.shape[1] // k.shape[1]
    scores = (q @ k.repeat_interleave(share, 1).mT).masked_fill(~near, torch.finfo(q.dtype).min)
    top = scores.amax(-1, keepdim=True)
    rest = read_features(p, q, top) @ write_features(p, k).repeat_interleave(share, 1).mT
    weight = torch.where(near, (scores - top).exp(), rest * far)
    total = weight.sum(-1, keepdim=True).clamp_min(torch.finfo(q.dtype).tiny)
    return weight / total @ v.repeat_interleave(share, 1)


def head_errors(got: Tensor, wanted: Tensor) -> Tensor:
    """The share of each head's output energy that is missed where there is a far past, (H,)."""
    late = slice(got.shape[2] // 4, None)
    gap, own = ((part[:, :, late].square().sum((0, 2, 3))) for part in (got - wanted, wanted))
    return gap / own.clamp_min(torch.finfo(own.dtype).tiny)


def fit_features(
    given: Mapping[str, Tensor], near: Tensor, far: Tensor, N: int, seed: int
) -> dict[str, Tensor]:
    """Fit features so that all heads of a layer put out what they do with their whole cache.

    Parameters
    ----------
    given : mapping
        "q", "k", "v", "y" of texts, as ``record`` returns them.
    near, far : Tensor (1, 1, n, n)
        As for ``states_output``.
    N : int
        Features of each group.
    seed : int
        Of the places that start the features, and of the order of texts.

    Returns
    -------
    dict
        "a", "b", "c", "d", as for ``states_output``.
    """
    q, k, v, y = (given[name] for name in "qkvy")
    (H, n, _), G = q.shape[1:], k.shape[1]
    g = torch.Generator().manual_seed(seed)
    places = torch.randint(n // 8, n - n // 8, (N,), generator=g).to(q.device)
    start = {
        "a": 0.3 * k[0].repeat_interleave(H // G, 0)[:, places].mT, "b": q.new_full((H, N), -2.0),
        "c": 0.3 * q[0, :: H // G][:, places].mT, "d": q.new_full((G, N), -2.0),
    }  # fmt: skip
    p = {name: value.clone().requires_grad_() for name, value in start.items()}
    optimizer = torch.optim.Adam(p.values(), lr=_RATE)
    for _ in range(_STEPS):
        rows = torch.randint(len(q), (2,), generator=g).to(q.device)
        with torch.enable_grad():
            got = states_output(p, q[rows], k[rows], v[rows], near, far)
            loss = head_errors(got, y[rows]).sum()
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
    return {name: value.detach() for name, value in p.items()}
