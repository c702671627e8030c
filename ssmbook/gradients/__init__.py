"""What distance does to a gradient: exact profiles of any callable; closed forms and bounds beside them.

Knows no map and no operator: :func:`gradient_profile` takes any torch callable, the formulas take plain
tensors.
"""

from ssmbook.gradients.attention import (
    alibi_bound,
    dilution_bound,
    required_margin,
    softmax_jacobian_block,
    softmax_jacobian_row,
    softmax_row_weights,
    weight_from_margin,
)
from ssmbook.gradients.fitting import LogSlope, fit_log_slope
from ssmbook.gradients.gates import (
    gate_preactivation_for_hold,
    lru_parameter_for_hold,
    pole_sensitivity,
    selective_log_attenuation,
)
from ssmbook.gradients.powers import (
    DecayWindow,
    decay_window,
    diagonalizable_bound,
    jordan_envelope,
    power_norms,
    stacked_pole_kernel,
    transient_peak,
)
from ssmbook.gradients.profiles import gradient_profile, jacobian_blocks

__all__ = [
    "DecayWindow",
    "LogSlope",
    "alibi_bound",
    "decay_window",
    "diagonalizable_bound",
    "dilution_bound",
    "fit_log_slope",
    "gate_preactivation_for_hold",
    "gradient_profile",
    "jacobian_blocks",
    "jordan_envelope",
    "lru_parameter_for_hold",
    "pole_sensitivity",
    "power_norms",
    "required_margin",
    "selective_log_attenuation",
    "softmax_jacobian_block",
    "softmax_jacobian_row",
    "softmax_row_weights",
    "stacked_pole_kernel",
    "transient_peak",
    "weight_from_margin",
]
