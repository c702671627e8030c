"""How many heads a state space model takes, by what their weights read and how wide they are."""

from ssmbook.heads._count import Count
from ssmbook.heads._evidence import (
    ConeEvidence,
    PoleEvidence,
    RankLimitedEvidence,
    TokenEvidence,
)
from ssmbook.heads.bounded import SinkHeads, bilinear_head_count, bounded_heads
from ssmbook.heads.count import head_count
from ssmbook.heads.exact import ExactCertificate, exact_minimal_degree
from ssmbook.heads.fixed import HeadCountTieWarning, SpectrumReport, head_count_at_most
from ssmbook.heads.pairwise import PairwiseHeads, pairwise_heads
from ssmbook.heads.poles import eigenvalue_test
from ssmbook.heads.sinkless import sinkless_heads, sinkless_plateau
from ssmbook.heads.softmax import SoftmaxHeads, softmax_heads

__all__ = [
    "ConeEvidence",
    "Count",
    "ExactCertificate",
    "HeadCountTieWarning",
    "PairwiseHeads",
    "PoleEvidence",
    "RankLimitedEvidence",
    "SinkHeads",
    "SoftmaxHeads",
    "SpectrumReport",
    "TokenEvidence",
    "bilinear_head_count",
    "bounded_heads",
    "eigenvalue_test",
    "exact_minimal_degree",
    "head_count",
    "head_count_at_most",
    "pairwise_heads",
    "sinkless_heads",
    "sinkless_plateau",
    "softmax_heads",
]
