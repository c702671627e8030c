"""Contracts that a reader's own operator or map can be held to: in a test file, or at once by ``check()``."""

from ssmbook.testing._contract import Contract
from ssmbook.testing._maps import MapContract, RecurrentMapContract
from ssmbook.testing._operators import OperatorContract

__all__ = ["Contract", "MapContract", "OperatorContract", "RecurrentMapContract"]
