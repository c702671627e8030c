"""What contracts are made of: laws as methods, the cases they run through, and what is said when one breaks.

Nothing here imports pytest: it reads the methods of a class by itself, and ``check`` needs no reader.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import ClassVar

import torch


class Contract:
    """A set of laws, each a method whose name begins with ``test_``, to be inherited by a test class.

    A subclass says with ``make`` what is held to them. pytest runs every law by itself when the subclass is
    called ``Test…``; ``check()`` runs them all without pytest. ``cases`` gives, for each argument of a law,
    the values it runs through. Introduced in *zoo*.
    """

    cases: ClassVar[dict[str, list]] = {}

    def pytest_generate_tests(self, metafunc):
        for argument, values in self.cases.items():
            if argument in metafunc.fixturenames:
                metafunc.parametrize(argument, values)

    def check(self) -> None:
        """Run all laws; raise ``AssertionError`` with a line for each one that is broken.

        The line names the law, the first case that breaks it, and what came. Introduced in *zoo*.
        """
        # In the order they are written in: the first says most.
        names = dict.fromkeys(name for kind in reversed(type(self).__mro__) for name in vars(kind))
        broken = [line for name in names if name.startswith("test_") for line in self._first_failure(name)]
        if broken:
            raise AssertionError("\n".join(broken))

    def _first_failure(self, name: str) -> list[str]:
        method = getattr(self, name)
        arguments = list(inspect.signature(method).parameters)
        for values in itertools.product(*(self.cases[argument] for argument in arguments)):
            case = dict(zip(arguments, values, strict=True))
            try:
                method(**case)
            except Exception as error:  # whatever a reader's class raises breaks the law
                said = ", ".join(f"{argument}={value!r}" for argument, value in case.items())
                return [f"{name}({said}): {error or type(error).__name__}"]
        return []


def law(kept: bool, words: str) -> None:
    """Raise ``AssertionError`` with ``words`` unless the law is kept."""
    if not kept:
        raise AssertionError(words)


def same(name: str, got: torch.Tensor, wanted: torch.Tensor, rtol: float = 1e-11) -> None:
    """Hold a tensor to another: shape, dtype, device, and entries relative to the largest of all."""
    law(isinstance(got, torch.Tensor), f"{name} must be a tensor; got {type(got).__name__}")
    law(got.shape == wanted.shape, f"{name} must have shape {tuple(wanted.shape)}; got {tuple(got.shape)}")
    law(got.dtype == wanted.dtype, f"{name} must have dtype {wanted.dtype}; got {got.dtype}")
    law(got.device == wanted.device, f"{name} must be on {wanted.device}; got {got.device}")
    if wanted.numel():
        got, wanted = got.detach(), wanted.detach()
        law(bool(torch.isfinite(got).all()), f"{name} must be finite")
        miss, scale = float((got - wanted).abs().max()), float(wanted.abs().max())
        law(miss <= rtol * scale, f"{name} is off by {miss:.2g}, with entries up to {scale:.2g}")


def refuses(call: Callable, error: type[Exception], words: str) -> None:
    """Hold a call to raising ``error``."""
    try:
        call()
    except error:
        return
    except Exception as other:
        raise AssertionError(f"{words} must raise {error.__name__}; got {type(other).__name__}") from other
    raise AssertionError(f"{words} must raise {error.__name__}; nothing was raised")


def draws(dtype: torch.dtype = torch.float64, seed: int = 0, device: str = "cpu") -> Callable:
    """Return ``random(*shape)``, normal entries in a dtype, the same numbers for the same seed."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(device, dtype)

    return random
