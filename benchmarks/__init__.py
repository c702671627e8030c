"""How fast the scans of the book are, against what else there is: ``python -m benchmarks`` (no test is ever
timed).
"""
