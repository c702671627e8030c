"""How many heads: one answer for every class of coefficients, settled or an honest interval."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partialmethod
from typing import Generic, TypeVar

E = TypeVar("E")


@dataclass(frozen=True, eq=False)
class Count(Generic[E]):
    """The least number of heads that equal a system, as far as it is known, with what proves it.

    Where low == high the count is settled. Then ``count.value``, ``int(count)``, ``count ==
    5`` and ``range(count)`` work, unless no number is enough. An open count equals nothing;
    ``count <= 5`` answers where both its ends do so alike. Printing gives one sentence.

    Parameters
    ----------
    low, high : int or float
        The number lies between them, both included; ``math.inf``: no number of heads is
        enough.
    method : str
        How it was found, in a few words.
    evidence : optional
        The certificate; `head_count` lists which class of coefficients has which.

    Raises
    ------
    ValueError
        If low > high or low is negative; and for an order that the interval leaves open.

    Examples
    --------
    >>> print(Count(5, 5, "spectrum"), Count(4, 9, "bounds", None), sep="; ")
    5 heads (spectrum); 4 to 9 heads (bounds)
    """

    low: int | float
    high: int | float
    method: str
    evidence: E = field(default=None, repr=False)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high:
            raise ValueError(f"low and high must satisfy 0 <= low <= high; got {self.low} and {self.high}")

    @property
    def settled(self) -> bool:
        """Whether the count is one number, or known to be impossible."""
        return self.low == self.high

    @property
    def possible(self) -> bool:
        """Whether some finite number of heads may be enough."""
        return self.low < math.inf

    @property
    def value(self) -> int:
        """The count as an ``int``; ``ValueError`` where it is open or no number of heads is enough."""
        if not self.settled or not self.possible:
            raise ValueError(f"the count is no single number: {self}")
        return int(self.low)

    @property
    def short(self) -> str:
        """The count as a table shows it: "5", "4 to 9", "at least 4" or "none".

        >>> Count(5, 5, "spectrum").short, Count(4, 9, "bounds").short
        ('5', '4 to 9')
        """
        if not self.possible:
            return "none"
        if self.settled:
            return str(self.low)
        return f"at least {self.low}" if self.high == math.inf else f"{self.low} to {self.high}"

    def __str__(self) -> str:
        if not self.possible:
            return f"no number of heads ({self.method})"
        return f"{self.short} head{'' if self.settled and self.low == 1 else 's'} ({self.method})"

    def __int__(self) -> int:
        return self.value

    __index__ = __int__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Count):
            return self.settled and other.settled and self.low == other.low
        if getattr(other, "ndim", None) == 0:  # a number of NumPy or torch
            other = other.item()  # type: ignore[attr-defined]
        if isinstance(other, (int, float)) and not isinstance(other, bool):
            return self.settled and self.low == other
        return NotImplemented

    def _ordered(self, compare: Callable, other: Count | float) -> bool:
        ends = (other.low, other.high) if isinstance(other, Count) else (other,)
        answers = {bool(compare(mine, theirs)) for mine in (self.low, self.high) for theirs in ends}
        if len(answers) > 1:
            raise ValueError(f"the order is not known: {self} against {other}")
        return answers.pop()

    __lt__ = partialmethod(_ordered, operator.lt)
    __le__ = partialmethod(_ordered, operator.le)
    __gt__ = partialmethod(_ordered, operator.gt)
    __ge__ = partialmethod(_ordered, operator.ge)

    def __hash__(self) -> int:
        return hash(self.low)  # an open count equals nothing
