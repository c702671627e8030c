"""The interaction operator W_ij(X) as an object: kinds, ranks, best heads, extraction from any callable."""

from ssmbook.numerics import RankReport, default_rtol, numerical_rank, rank_report
from ssmbook.operators.base import InteractionOperator
from ssmbook.operators.dense import DenseOperator
from ssmbook.operators.derived import ComposedOperator, SumOperator, TransposedOperator
from ssmbook.operators.diagonal import DiagonalOperator
from ssmbook.operators.extraction import jacobian_operator, path_operator, secant_operator
from ssmbook.operators.factorized import FactorizedOperator
from ssmbook.operators.lag import LagOperator
from ssmbook.operators.modal import ModalOperator
from ssmbook.operators.pointwise import PointwiseOperator
from ssmbook.operators.recurrent import RecurrentOperator
from ssmbook.operators.spectra import Spectral, operator_span

__all__ = [
    "ComposedOperator",
    "DenseOperator",
    "DiagonalOperator",
    "FactorizedOperator",
    "InteractionOperator",
    "LagOperator",
    "ModalOperator",
    "PointwiseOperator",
    "RankReport",
    "RecurrentOperator",
    "Spectral",
    "SumOperator",
    "TransposedOperator",
    "default_rtol",
    "jacobian_operator",
    "numerical_rank",
    "operator_span",
    "path_operator",
    "rank_report",
    "secant_operator",
]
