"""What every contract has: laws that run by themselves, and two ways to state one."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class Contract:
    """A class of laws."""

    def check(self) -> None:
        """Run all laws; raise ``AssertionError`` with a line for each one that is broken."""
        broken = []
        for name in (name for name in dir(self) if name.startswith("test_")):
            try:
                getattr(self, name)()
            except Exception as error:  # whatever a reader's class raises breaks the law
                broken.append(f"{name}: {error or type(error).__name__}")
        if broken:
            raise AssertionError("\n".join(broken))


def same(name: str, got: Tensor, wanted: Tensor, rtol: float = 1e-11) -> None:
    """Require shape, dtype, device, and entries up to ``rtol`` times the largest one."""
    largest = float(wanted.detach().abs().max()) if wanted.numel() else 0.0
    torch.testing.assert_close(got, wanted, rtol=0, atol=rtol * largest, msg=lambda text: f"{name}: {text}")


def refuses(call: Callable, *tensors: Tensor) -> None:
    """Require that a call raises an error for the last of its tensors."""
    try:
        call(*tensors)
    except (TypeError, ValueError):
        return
    raise AssertionError(f"{tensors[-1].dtype} of shape {tuple(tensors[-1].shape)} must be refused")
