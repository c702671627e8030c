"""The interaction operator W_ij(X) as an object: kinds, ranks, best heads, extraction from any callable."""

from ..numerics import RankReport, default_rtol, numerical_rank, rank_report
from .base import InteractionOperator
from .bounds import SpectrumBounds
from .dense import DenseOperator
from .derived import ComposedOperator, SumOperator, TransposedOperator
from .diagonal import DiagonalOperator
from .extraction import jacobian_operator, path_operator, secant_operator
from .factorized import FactorizedOperator
from .lag import LagOperator
from .modal import ModalOperator
from .pointwise import PointwiseOperator
from .recurrent import RecurrentOperator
from .spectra import Spectral, operator_span

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
    "SpectrumBounds",
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
