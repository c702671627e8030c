"""The lens: the mixing layers of trained models as interaction operators, and how many heads they need.

Layers are recognized by the parts they are made of; transformers is needed only to load its
models. Here a model is read, and stays as it is: ``layers`` finds what mixes tokens,
``operator`` freezes one of them, ``report`` measures all. What puts something in the place
of a layer is in the folder ``changes``.
"""

from ssmbook.lens._calls import Call
from ssmbook.lens._errors import ReplacementErrors, errors
from ssmbook.lens._layers import MixingLayer, calls, layers, operator, register
from ssmbook.lens._load import load, loss
from ssmbook.lens._measure import permute_weights
from ssmbook.lens._reading import LayerOperator, Reading, Softmax
from ssmbook.lens._report import Report, measurement, report
from ssmbook.lens._states import states
from ssmbook.lens.changes._change import Change, change_errors, fade, freeze, only, truncate, window
from ssmbook.lens.changes._convert import Recurrence, convert, train
from ssmbook.lens.changes._heads import Observed, SharedHeads, observe
from ssmbook.lens.changes._plan import Plan, load_plan, plan
from ssmbook.lens.changes._replace import replace

__all__ = [
    "Call", "Change", "LayerOperator", "MixingLayer", "Observed", "Plan", "Reading", "Recurrence",
    "ReplacementErrors", "Report", "SharedHeads", "Softmax", "calls", "change_errors", "convert", "errors",
    "fade", "freeze", "layers", "load", "load_plan", "loss", "measurement", "observe", "only", "operator",
    "permute_weights", "plan", "register", "replace", "report", "states", "train", "truncate", "window",
]  # fmt: skip
