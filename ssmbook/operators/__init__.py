"""The interaction operator W_ij(X) as an object: kinds, ranks, best heads, extraction from any callable."""

from ssmbook.numerics import RankReport
from ssmbook.operators.base import InteractionOperator
from ssmbook.operators.extraction import jacobian_operator, path_operator, secant_operator
from ssmbook.operators.factorized import FactorizedOperator
from ssmbook.operators.ranks import HalfPrecisionWarning, operator_span
from ssmbook.operators.recurrent import RecurrentOperator
from ssmbook.operators.sketched import Sketch, sketch
from ssmbook.operators.structured import DenseOperator, DiagonalOperator, LagOperator, PointwiseOperator

__all__ = [
    "DenseOperator",
    "DiagonalOperator",
    "FactorizedOperator",
    "HalfPrecisionWarning",
    "InteractionOperator",
    "LagOperator",
    "PointwiseOperator",
    "RankReport",
    "RecurrentOperator",
    "Sketch",
    "jacobian_operator",
    "operator_span",
    "path_operator",
    "secant_operator",
    "sketch",
]
