"""Laws that your own sequence map can be tested against, in a test file or by ``check()``.

And trials for anyone's scan or layer: `check_scan` and `check_layer` return a table of what
passed, what failed, and why. As a command: ``python -m ssmbook.testing mymodule:MyLayer``.

Each law is a method whose name begins with ``test_``. Inherit from `MapContract` and write
``make``; then pytest runs the laws of every subclass that is called ``Test…``. `draws`
gives random numbers that a seed repeats.
"""

from ssmbook.testing._draws import draws
from ssmbook.testing.conformance import Conformance, Finding, check_layer, check_scan
from ssmbook.testing.maps import MapContract

__all__ = ["Conformance", "Finding", "MapContract", "check_layer", "check_scan", "draws"]
