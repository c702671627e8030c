"""The interaction operator W_ij(X) as an object: kinds, ranks, best heads, extraction from any callable."""

from ssmbook.numerics import RankReport as RankReport
from ssmbook.operators.base import InteractionOperator as InteractionOperator
from ssmbook.operators.extraction import jacobian_operator as jacobian_operator
from ssmbook.operators.extraction import path_operator as path_operator
from ssmbook.operators.extraction import secant_operator as secant_operator
from ssmbook.operators.factorized import FactorizedOperator as FactorizedOperator
from ssmbook.operators.ranks import HalfPrecisionWarning as HalfPrecisionWarning
from ssmbook.operators.ranks import operator_span as operator_span
from ssmbook.operators.recurrent import RecurrentOperator as RecurrentOperator
from ssmbook.operators.sketched import Sketch as Sketch
from ssmbook.operators.sketched import sketch as sketch
from ssmbook.operators.structured import DenseOperator as DenseOperator
from ssmbook.operators.structured import DiagonalOperator as DiagonalOperator
from ssmbook.operators.structured import LagOperator as LagOperator
from ssmbook.operators.structured import PointwiseOperator as PointwiseOperator

# What is imported above, without the files themselves.
__all__ = sorted(name for name, value in vars().items() if "ssmbook" in getattr(value, "__module__", ""))
