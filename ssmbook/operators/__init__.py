"""The interaction operator W_ij(X) as an object: kinds, ranks, best heads, extraction from any callable."""

from .algebra import ComposedOperator, SumOperator
from .base import InteractionOperator, operator_span
from .dense import DenseOperator
from .extraction import jacobian_operator, path_operator, secant_operator
from .factorized import FactorizedOperator
from .lag import LagOperator
from .pointwise import PointwiseOperator
from .ranks import RankReport, default_rtol, numerical_rank, rank_report
from .recurrent import RecurrentOperator

__all__ = [
    "ComposedOperator",
    "DenseOperator",
    "FactorizedOperator",
    "InteractionOperator",
    "LagOperator",
    "PointwiseOperator",
    "RankReport",
    "RecurrentOperator",
    "SumOperator",
    "default_rtol",
    "jacobian_operator",
    "numerical_rank",
    "operator_span",
    "path_operator",
    "rank_report",
    "secant_operator",
]
