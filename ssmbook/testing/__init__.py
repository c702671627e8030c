"""Laws that your own operator or sequence map can be tested against, in a test file or by ``check()``.

Each law is a method whose name begins with ``test_``. Inherit from a contract and write
``make``; then pytest runs the laws of every subclass that is called ``Test…``. `draws`
gives random numbers that a seed repeats.
"""

from ssmbook.testing._draws import draws
from ssmbook.testing.maps import MapContract, RecurrentMapContract
from ssmbook.testing.operators import OperatorContract

__all__ = ["MapContract", "OperatorContract", "RecurrentMapContract", "draws"]
