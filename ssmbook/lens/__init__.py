"""The lens: the mixing layers of trained models as interaction operators, and how many heads they need.

Transformers is needed only to load its models; the layers are recognized by the parts they are made of.
"""

from ssmbook.lens._capture import Call
from ssmbook.lens._frozen import Frozen, FrozenMap, Reading
from ssmbook.lens._layers import MixingLayer, layers, operator, register
from ssmbook.lens._report import LayerReport, Report, compare, measurement, report

__all__ = [
    "Call",
    "Frozen",
    "FrozenMap",
    "LayerReport",
    "MixingLayer",
    "Reading",
    "Report",
    "compare",
    "layers",
    "measurement",
    "operator",
    "register",
    "report",
]
