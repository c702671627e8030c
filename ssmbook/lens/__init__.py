"""The lens: the mixing layers of trained models as interaction operators, and how many heads they need.

Layers are recognized by the parts they are made of; transformers is needed only to load its models.
"""

from ssmbook.lens._change import (
    Change,
    Heads,
    Observed,
    change_errors,
    drop_heads,
    drop_sink,
    freeze,
    observe,
    truncate,
)
from ssmbook.lens._convert import Recurrence, convert, heads, tune
from ssmbook.lens._errors import Errors, errors, states
from ssmbook.lens._frozen import Frozen, Reading
from ssmbook.lens._layers import layers, operator, register
from ssmbook.lens._load import load, loss
from ssmbook.lens._replace import replace
from ssmbook.lens._report import Report, measurement, report

__all__ = [
    "Change", "Errors", "Frozen", "Heads", "Observed", "Reading", "Recurrence", "Report", "change_errors",
    "convert", "drop_heads", "drop_sink", "errors", "freeze", "heads", "layers", "load", "loss",
    "measurement", "observe", "operator", "register", "replace", "report", "states", "truncate", "tune",
]  # fmt: skip
