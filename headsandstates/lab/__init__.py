"""The laboratory of the book as a widget in a notebook; its script also moves the live views of the pages."""

from __future__ import annotations

from pathlib import Path

import anywidget
import torch
import traitlets

from ssmbook import display
from ssmbook._checks import check_integer
from ssmbook.systems import System, rotation

__all__ = ["Lab"]

FOLDER = Path(__file__).parent
PALETTE = Path(display.__file__).parent / "palette.css"
EXPORT = "\nexport default { render: ({ model, el }) => Lab.render(model, el) };\n"
STATES, WIDTH, TOKENS = 8, 4, 64  # what the laboratory holds
WORST = 1e6  # condition number of the eigenvectors from which four digits are no longer enough


class Lab(anywidget.AnyWidget):
    """The laboratory: drag the poles of a system, see its operator, and read the system back in Python.

    ``system`` (default: a rotation by 0.7) has distinct eigenvalues of size 1 at most, up
    to 8 states, 4 inputs and 4 outputs; ``n`` is the number of tokens, 1 to 64. What a
    reader makes of it by hand stands in the attributes ``system`` (float64; its lag
    operators are those of the given system to about four digits, its states have another
    basis) and ``n``. ``address`` is the experiment as the address of the book's page has
    it, attention heads included; set it, and the laboratory follows. Raises ``ValueError``
    for a system that the laboratory cannot hold, and where ``system`` is asked of a head.

    >>> lab = Lab(n=12)
    >>> lab
    Laboratory, a widget where a kernel runs: System(N=2, d=2, p=2, float64), 12 tokens
    >>> lab.address
    'system&n=12&poles=1@0.7&p=2&d=2&B=1,0;0,1&C=1,0;0,1&H=1'
    >>> lab.system.lags(lab.n).shape
    torch.Size([12, 2, 2])
    """

    _esm = (FOLDER / "lab.js").read_text("utf-8") + EXPORT
    _css = PALETTE.read_text("utf-8") + (FOLDER / "lab.css").read_text("utf-8")
    address = traitlets.Unicode().tag(sync=True)
    matrices = traitlets.Dict().tag(sync=True)

    def __init__(self, system: System | None = None, n: int = 20):
        if system is None:
            eye = torch.eye(2, dtype=torch.float64)
            system = System(rotation(0.7, dtype=torch.float64), eye, eye)
        n = check_integer("n", n, low=1, high=TOKENS)
        poles, shown = _by_poles(system)
        numbers = {name: part.tolist() for name, part in zip("ABCD", shown, strict=True) if part is not None}
        texts = [f"{name}={_text(part)}" for name, part in numbers.items() if name != "A"]
        sizes = "&".join([f"n={n}", f"poles={','.join(poles)}", f"p={system.p}", f"d={system.d}", *texts])
        super().__init__(address=f"system&{sizes}&H=1", matrices={**numbers, "n": n})

    def __repr__(self) -> str:
        shown = f"{self.system}, {self.n} tokens" if self.matrices else "an attention head"
        return f"Laboratory, a widget where a kernel runs: {shown}"

    @property
    def n(self) -> int:
        """The number of tokens."""
        return self._shown("n")

    @property
    def system(self) -> System:
        """The system that is shown now."""
        parts = (self._shown(name) if name != "D" else self.matrices.get(name) for name in "ABCD")
        return System(*(part and torch.tensor(part, dtype=torch.float64) for part in parts))

    def _shown(self, name):
        if name not in self.matrices:
            raise ValueError(f"the laboratory must show a state space model; got {self.address}")
        return self.matrices[name]

    def _repr_mimebundle_(self, **kwargs):
        data, *more = super()._repr_mimebundle_(**kwargs)
        return data | {"text/plain": repr(self)}, *more


def _by_poles(system: System) -> tuple[list[str], System]:
    """The poles as the laboratory writes them, and the system in the basis where A has a block for each."""
    system.lags(1)  # refuses a continuous system
    A, B, C, D = (part if part is None else part.detach().cpu().to(torch.float64) for part in system)
    if A.dim() > 2 or max(system.N / STATES, system.d / WIDTH, system.p / WIDTH) > 1:
        room = f"at most {STATES} states, {WIDTH} inputs and {WIDTH} outputs, and no batch"
        raise ValueError(f"system must have {room}; got {system}")
    values, vectors = torch.linalg.eig(A)
    if values.abs().max() > 1 + 1e-9:
        raise ValueError(f"system must have poles of size 1 at most; got {float(values.abs().max()):.4g}")
    poles, basis, blocks = [], [], []
    for value, vector in zip(values, vectors.mT, strict=True):
        size, angle = float(value.abs()), float(value.angle())
        if value.imag > 0:
            poles.append(f"{size:.4g}@{angle:.4g}")
            basis += [2**0.5 * vector.real, -(2**0.5) * vector.imag]  # as long as a real one
            blocks.append(size * rotation(value.angle()))
        elif value.imag == 0:
            poles.append(f"{float(value.real):.4g}")
            basis.append(vector.real)
            blocks.append(value.real[None, None])
    T = torch.stack(basis, 1)
    if torch.linalg.cond(T) > WORST:
        raise ValueError("system must have distinct eigenvalues; got a Jordan block, or nearly one")
    return poles, System(torch.block_diag(*blocks), torch.linalg.solve(T, B), C @ T, D)


def _text(rows: list[list[float]]) -> str:
    return ";".join(",".join(f"{round(value, 4) + 0.0:g}" for value in row) for row in rows)
