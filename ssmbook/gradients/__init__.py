"""What distance does to a gradient: exact profiles of any callable, and formulas for a softmax head.

No map and no operator is needed: :func:`gradient_profile` takes any torch callable, the
formulas plain tensors.
"""

from ssmbook.gradients.attention import required_margin as required_margin
from ssmbook.gradients.attention import softmax_jacobian_row as softmax_jacobian_row
from ssmbook.gradients.attention import weight_from_margin as weight_from_margin
from ssmbook.gradients.profiles import fit_log_slope as fit_log_slope
from ssmbook.gradients.profiles import gradient_profile as gradient_profile

# What is imported above, without the files themselves.
__all__ = sorted(name for name, value in vars().items() if "ssmbook" in getattr(value, "__module__", ""))
