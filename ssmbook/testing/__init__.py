"""Contracts that a reader's own operator or map can be held to: in a test file, or at once by ``check()``."""

from ._contract import Contract
from ._maps import MapContract, RecurrentMapContract
from ._operators import OperatorContract

__all__ = ["Contract", "MapContract", "OperatorContract", "RecurrentMapContract"]
