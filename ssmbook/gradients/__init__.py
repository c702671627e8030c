"""What distance does to a gradient: exact profiles of any callable, and closed forms and bounds beside them.

No map and no operator is needed: :func:`gradient_profile` takes any torch callable, the formulas take plain
tensors or a `System`.
"""

from ssmbook.gradients.attention import (
    required_margin,
    softmax_jacobian_row,
    softmax_row_weights,
    weight_from_margin,
)
from ssmbook.gradients.powers import (
    decay_window,
    diagonalizable_bound,
    jordan_envelope,
    power_norms,
    transient_peak,
)
from ssmbook.gradients.profiles import fit_log_slope, gradient_profile, jacobian_blocks

__all__ = [
    "decay_window",
    "diagonalizable_bound",
    "fit_log_slope",
    "gradient_profile",
    "jacobian_blocks",
    "jordan_envelope",
    "power_norms",
    "required_margin",
    "softmax_jacobian_row",
    "softmax_row_weights",
    "transient_peak",
    "weight_from_margin",
]
