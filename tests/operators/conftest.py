"""Every kind of interaction operator, for the contracts that all of them keep: a new kind is one entry."""

from dataclasses import dataclass
from functools import partial

import pytest
import torch
from helpers import Total

from ssmbook.operators import (
    DenseOperator,
    DiagonalOperator,
    FactorizedOperator,
    LagOperator,
    PointwiseOperator,
    RecurrentOperator,
)
from ssmbook.operators.gated import GatedHeads
from ssmbook.operators.recurrent import ModalOperator
from ssmbook.testing import draws


def dense(random, batch, n, p, d):
    return DenseOperator(random(*batch, n, n, p, d))


def factorized(random, batch, n, p, d):
    return FactorizedOperator(random(*batch, 3, n, n), random(*batch, 3, p, d))


def more_heads_than_entries(random, batch, n, p, d):
    return FactorizedOperator(random(17, n, n), random(*batch, 17, p, d))


def lag(random, batch, n, p, d):
    return LagOperator(random(*batch, min(n, 3), p, d), n)


def pointwise(random, batch, n, p, d):
    return PointwiseOperator(random(*batch, n, p, d))


def recurrent(random, batch, n, p, d):
    A, B, C = 0.4 * random(*batch, n, 6, 6), random(n, 6, d), random(*batch, n, p, 6)
    return RecurrentOperator(A, B, C, random(*batch, n, p, d))


def modal(random, batch, n, p, d):
    log_decay = -random(n, 5).abs()
    return ModalOperator(log_decay, random(*batch, n, 5, d), random(n, p, 5), random(*batch, n, p, d))


def channels(make):
    def diagonal(random, batch, n, p, d):
        return DiagonalOperator(make(random, (*batch, d), n, 1, 1))

    return diagonal


def transposed(make):
    def transpose(random, batch, n, p, d):
        return make(random, batch, n, d, p).T

    return transpose


def total(random, batch, n, p, d):
    heads = FactorizedOperator(random(*batch, 2, n, n), random(2, p, d))
    return LagOperator(random(min(n, 2), p, d), n) + heads + PointwiseOperator(random(*batch, n, p, d))


def composed(random, batch, n, p, d):
    heads = FactorizedOperator(random(1, n, n), random(*batch, 1, 2, d))
    return LagOperator(random(*batch, n, p, 2), n) @ heads


def gate(random, batch, n, p):
    return DiagonalOperator(PointwiseOperator(random(*batch, p, n, 1, 1)))


def gated(random, batch, n, p, d):
    return gate(random, batch, n, p) @ FactorizedOperator(random(1, n, n), random(*batch, 1, p, d))


def gated_heads(random, batch, n, p, d):
    return GatedHeads(factorized(random, (), n, p, d), random(*batch, 3, n, p))


@dataclass(frozen=True)
class Kind:
    """How to make one kind: ``make(random, batch, n, p, d)``; its usual p and d; is it causal?"""

    make: object
    p: int = 3
    d: int = 4
    causal: bool = False

    def operator(self, batch=(), n=5, seed=0):
        random = partial(torch.randn, **draws(seed))
        return self.make(random, batch, n, self.p, self.d), random


KINDS = {
    "dense": Kind(dense),
    "factorized": Kind(factorized),
    "factorized, more heads than entries": Kind(more_heads_than_entries),
    "lag": Kind(lag, causal=True),
    "pointwise": Kind(pointwise, causal=True),
    "recurrent": Kind(recurrent, causal=True),
    "modal": Kind(modal, causal=True),
    "diagonal, lag": Kind(channels(lag), p=4, causal=True),
    "diagonal, modal": Kind(channels(modal), p=4, causal=True),
    "diagonal, heads": Kind(channels(factorized), p=4),
    "transposed lag": Kind(transposed(lag)),
    "transposed modal": Kind(transposed(modal)),
    "sum": Kind(total),
    "composed": Kind(composed),
    "gated": Kind(gated),
    "transposed gated": Kind(transposed(gated)),
    "gated heads": Kind(gated_heads),
    "one's own": Kind(lambda random, batch, n, p, d: Total(random(*batch, p, d), n), causal=True),
}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]
