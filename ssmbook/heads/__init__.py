"""How many heads a state space model takes, for five classes of coefficients, and which heads they are."""

from ssmbook._count import Count
from ssmbook.heads._evidence import Evidence
from ssmbook.heads.bounded import bounded_head_count, bounded_heads
from ssmbook.heads.count import head_count
from ssmbook.heads.exact import ExactCertificate, exact_minimal_degree
from ssmbook.heads.fixed import (
    HeadCountTieWarning,
    SpectrumReport,
    epsilon_head_count,
    head_count_bound,
    head_floor,
    heads_from_ssm,
)
from ssmbook.heads.pairwise import PairwiseHeads, pairwise_heads
from ssmbook.heads.poles import eigenvalue_test
from ssmbook.heads.sinkless import sinkless_heads, sinkless_plateau
from ssmbook.heads.softmax import SoftmaxHeads, softmax_heads

__all__ = [
    "Count",
    "Evidence",
    "ExactCertificate",
    "HeadCountTieWarning",
    "PairwiseHeads",
    "SoftmaxHeads",
    "SpectrumReport",
    "bounded_head_count",
    "bounded_heads",
    "eigenvalue_test",
    "epsilon_head_count",
    "exact_minimal_degree",
    "head_count",
    "head_count_bound",
    "head_floor",
    "heads_from_ssm",
    "pairwise_heads",
    "sinkless_heads",
    "sinkless_plateau",
    "softmax_heads",
]
