"""Step sizes, for selective.py until it joins state_space.py."""

from ssmbook.maps.base import inverse_softplus
from ssmbook.maps.base import random_steps as draw_steps

__all__ = ["draw_steps", "inverse_softplus"]
