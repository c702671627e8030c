"""The lens: the mixing layers of trained models as interaction operators, and how many heads they need.

Layers are recognized by the parts they are made of; transformers is needed only to load its models.
"""

from ssmbook.lens._frozen import Frozen, Reading
from ssmbook.lens._layers import layers, operator, register
from ssmbook.lens._report import Report, measurement, report

__all__ = ["Frozen", "Reading", "Report", "layers", "measurement", "operator", "register", "report"]
