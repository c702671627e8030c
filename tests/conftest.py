"""One hypothesis profile for all tests: the same examples on every machine, and no deadline on a busy one."""

from hypothesis import settings

settings.register_profile("book", deadline=None, derandomize=True)
settings.load_profile("book")
