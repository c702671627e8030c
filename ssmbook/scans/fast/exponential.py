"""exp(z) for compiled loops, in arithmetic that a processor does for many numbers at once.

The library's own exponential is called for one number after the other, which would cost
most of the time of a scan. So we compute it in the usual way ourselves. Write z = k log 2 +
r with a whole number k and |r| <= log(2)/2. Then

    exp(z) = 2^k exp(r),

where exp(r) is a short Taylor series, and 2^k needs no arithmetic: a float is a sign, an
exponent and a fraction, side by side in its bits, and a power of two is its exponent alone.

The result comes as a pair, 2^k and 2^k (exp(r) - 1). Together they have more digits than
one float: a decay close to one keeps the digits of what it lacks, and a scan can multiply
them over thousands of steps.

A function that raises ``NotImplementedError`` here is one for Numba, which takes the
function below it with ``overload`` in its place: it sees the types of the arguments and
returns code for them.
"""

import functools
import math

import numba
import numpy as np
from numba.extending import overload

from ssmbook.scans.fast.phi import RADIUS, SERIES


def compiled(function=None, *, fastmath=("contract",)):
    """Compile when first called, and keep the machine code for later processes where a folder allows it.

    "contract" makes one rounding of ``a * b + c``; "reassoc" and "nsz" let a sum run in several
    lanes. None of them assumes that numbers are finite.
    """
    if function is None:
        return functools.partial(compiled, fastmath=fastmath)
    options = {"nogil": True, "error_model": "numpy", "fastmath": set(fastmath)}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither the package's folder nor the user's may be written
        return numba.njit(**options)(function)


def exponential(z):
    """exp(z) as a power of two and the rest, together to more digits than the dtype of ``z`` has."""
    raise NotImplementedError


@overload(exponential, jit_options={"fastmath": {"contract"}})
def _exponential(z):
    if isinstance(z, numba.types.Complex):
        return lambda z: (np.exp(z), 0 * z)
    # Of the two formats: bits of the fraction, what is added to an exponent, how many terms
    # are enough, and from where on exp(z) is 0, is still a number, and is infinite.
    single = z == numba.float32
    real, whole = (np.float32, np.int32) if single else (np.float64, np.int64)
    digits, bias, degree = (23, 127, 7) if single else (52, 1023, 13)
    low, high, beyond = map(real, (-104, 88.37, 89) if single else (-746, 709.4, 710))
    # log 2 comes as a number with trailing zeros, so that its multiples are exact, and the
    # rest of it.
    log2, tail = (0.693359375, -2.12194440e-4) if single else (0.69314718036912382, 1.9082149292705877e-10)
    log2, tail, per_log2 = map(real, (log2, tail, 1 / math.log(2)))
    first, *others = (real(1 / math.factorial(k)) for k in range(degree, 0, -1))
    others = tuple(others)
    bias, digits, one = map(whole, (bias, digits, 1))

    def implementation(z):
        z = low if z < low else z
        z = beyond if z > high else z
        k = np.rint(z * per_log2)
        r = (z - k * log2) - k * tail
        series = first  # (exp(r) - 1) / r = 1 + r/2 + r^2/6 + ..., from the last term
        for coefficient in others:
            series = series * r + coefficient
        # 2^k is the product of two halves, since it may be smaller than the smallest power
        # with an exponent of its own; each half is written into the bits of a float.
        half = whole(k) >> one
        rest = whole(k) - half
        power = whole((half + bias) << digits).view(real) * whole((rest + bias) << digits).view(real)
        return power, series * r * power

    return implementation


def times_exp(power, rest, h):
    """exp(z) h for a number ``h`` in double precision, from the two parts of exp(z)."""
    raise NotImplementedError


@overload(times_exp, jit_options={"fastmath": {"contract"}})
def _times_exp(power, rest, h):
    if power == numba.float32:  # double precision holds the sum of both
        return lambda power, rest, h: (np.float64(power) + rest) * h
    # Where h is infinite one product decides: the sign of the other may differ.
    return lambda power, rest, h: power * h + rest * (h if abs(h) < np.inf else 0)


def phi(z, power, rest):
    """phi_1(z) = (exp(z) - 1) / z and its derivative, from the two parts of exp(z)."""
    raise NotImplementedError


@overload(phi, jit_options={"fastmath": {"contract"}})
def _phi(z, power, rest):
    """Near zero ``power`` is one and ``rest`` is exp(z) - 1 to all its digits; the derivative is a series."""
    real = np.float32 if z == numba.float32 else np.float64
    first, *others = map(real, SERIES)
    others = tuple(others)
    radius, one = real(RADIUS[z.bitwidth // 8]), real(1)

    def implementation(z, power, rest):
        value = ((power - one) + rest) / z if z != 0 else one
        series = first
        for coefficient in others:
            series = series * z + coefficient
        slope = ((power + rest) - value) / z
        return value, series if abs(z) < radius else slope

    return implementation
