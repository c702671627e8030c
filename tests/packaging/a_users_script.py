"""What a user writes, with the type that a checker finds for each line."""

import torch
from torch import Tensor, nn
from typing_extensions import assert_type

from ssmbook import System, gradients, heads, lens, maps, operators, scans

a, b = torch.rand(16, 3), torch.randn(16, 3)
states, last = scans.diagonal_scan(a, b)
assert_type(states, Tensor)
layer = maps.SelectiveSSM(3, N=2, generator=torch.Generator().manual_seed(0))
W = layer.interaction(b)
assert_type(W @ b, Tensor)
two: operators.InteractionOperator = (W @ W).best_heads(2)
system = System(torch.eye(2) / 2, torch.eye(2), torch.eye(2))
assert_type(system.lags(16), Tensor)
low: float = heads.head_count(system, 16, "softmax").low
distance, width = gradients.gradient_profile(layer, b)
assert_type(width, Tensor)

first, state = layer.forward(b[:9], layer.initial_state(()))
assert_type(state, Tensor)
assert_type(layer.forward(b, resets=torch.arange(16) == 9), Tensor)
model = nn.Sequential(layer).eval()
with lens.replace(model, {0: lens.only(lens.Change("cut", torch.zeros_like), [0]) & lens.truncate(1)}):
    changed = model(b[None])


def smaller_cache(model: nn.Module, ids: Tensor, folder: str) -> nn.Module:
    plan = lens.plan(model, ids, 0.5)
    plan.save(folder)
    with lens.load_plan(folder).apply(model):
        assert_type(plan.table(), str)
    return plan.module(model)


def mistakes() -> None:
    """Lines that a type checker refuses; mypy names those that would not need their comment."""
    scans.diagonal_scan(1, 2)  # type: ignore
    W @ 3  # type: ignore
    System(1, 2, 3)  # type: ignore
    maps.SSD(3, 3, H=1, head_width=2, N=2, bias=True)  # type: ignore
    maps.SelectiveSSM(3, N=2, discretization="cubic")  # type: ignore
    heads.head_count(system, 16, "hard")  # type: ignore
    heads.head_countt(system, 16)  # type: ignore
