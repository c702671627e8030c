"""What distance does to a gradient: exact profiles of any callable, and formulas for a softmax head.

No map and no operator is needed: :func:`gradient_profile` takes any torch callable, the
formulas plain tensors.
"""

from ssmbook.gradients.attention import (
    required_margin,
    softmax_jacobian_row,
    weight_from_margin,
)
from ssmbook.gradients.profiles import fit_log_slope, gradient_profile

__all__ = [
    "fit_log_slope",
    "gradient_profile",
    "required_margin",
    "softmax_jacobian_row",
    "weight_from_margin",
]
