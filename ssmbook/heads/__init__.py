"""How many heads a state space model takes, by what their weights read and how wide they are."""

from ssmbook.heads._count import Count as Count
from ssmbook.heads._evidence import ConeEvidence as ConeEvidence
from ssmbook.heads._evidence import PoleEvidence as PoleEvidence
from ssmbook.heads._evidence import RankLimitedEvidence as RankLimitedEvidence
from ssmbook.heads._evidence import TokenEvidence as TokenEvidence
from ssmbook.heads.bounded import SinkHeads as SinkHeads
from ssmbook.heads.bounded import bilinear_head_count as bilinear_head_count
from ssmbook.heads.bounded import bounded_heads as bounded_heads
from ssmbook.heads.count import head_count as head_count
from ssmbook.heads.exact import ExactCertificate as ExactCertificate
from ssmbook.heads.exact import exact_minimal_degree as exact_minimal_degree
from ssmbook.heads.fixed import HeadCountTieWarning as HeadCountTieWarning
from ssmbook.heads.fixed import SpectrumReport as SpectrumReport
from ssmbook.heads.fixed import head_count_at_most as head_count_at_most
from ssmbook.heads.pairwise import PairwiseHeads as PairwiseHeads
from ssmbook.heads.pairwise import pairwise_heads as pairwise_heads
from ssmbook.heads.poles import eigenvalue_test as eigenvalue_test
from ssmbook.heads.sinkless import sinkless_heads as sinkless_heads
from ssmbook.heads.sinkless import sinkless_plateau as sinkless_plateau
from ssmbook.heads.softmax import SoftmaxHeads as SoftmaxHeads
from ssmbook.heads.softmax import softmax_heads as softmax_heads

# What is imported above, without the files themselves.
__all__ = sorted(name for name, value in vars().items() if "ssmbook" in getattr(value, "__module__", ""))
