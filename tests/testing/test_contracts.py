"""The contracts bite: what breaks one law is caught by the law that says so, and what breaks none passes."""

import re
from types import SimpleNamespace

import pytest
import torch

from ssmbook.maps import SelectiveSSM, SequenceMap
from ssmbook.operators import DenseOperator, InteractionOperator
from ssmbook.testing import MapContract, OperatorContract, RecurrentMapContract
from ssmbook.testing._contract import refuses, same


class Total(InteractionOperator):
    """y_i = V (x_0 + … + x_i)."""

    def __init__(self, V, n):
        super().__init__(V, V.shape[:-2], n, *V.shape[-2:])
        self.V = V

    def _apply(self, x):
        return x.cumsum(-2) @ self.V.mT

    def _scaled(self, factor):
        return type(self)(factor * self.V, self.n)

    def _mapped(self, change):
        return type(self)(change(self.V), self.n)


class TestTotal(OperatorContract):
    causal = True

    def make(self, random, batch, n):
        return Total(random(*batch, 3, 4), n)


def operator(**broken):
    """The contract of ``Total`` with some of its methods replaced."""
    kind = type("Broken", (Total,), broken)
    few = OperatorContract.cases | {"batch": [(), (2,)], "n": [0, 5]}
    make = {"make": lambda self, random, batch, n: kind(random(*batch, 3, 4), n)}
    held = type("Held", (TestTotal,), make | {"cases": few})
    return held()


def spoiled(spoil):
    """A ``_span_blocks`` that yields other rows than those of the blocks."""

    def _span_blocks(self):
        yield spoil(self.to_dense().flatten(-4, -3).flatten(-2))

    return _span_blocks


def looks_ahead(self, x):
    return x.flip(-2).cumsum(-2).flip(-2) @ self.V.mT


OPERATORS = {
    "affine": (
        {"_apply": lambda self, x: x.cumsum(-2) @ self.V.mT + 1},
        "test_it_acts_as_the_sum_over_its_blocks",
    ),
    "changes x": ({"_apply": lambda self, x: x.mul_(2).cumsum(-2) @ self.V.mT}, "test_"),
    "another rank": (
        {"interaction_rank": lambda self, *given: 1 + InteractionOperator.interaction_rank(self, *given)},
        "test_spectrum_and_rank_are_those_of_its_blocks",
    ),
    "another row": (
        {"row": lambda self, i: 2 * InteractionOperator.row(self, i), "to_dense": lambda self: dense(self)},
        "test_rows_columns_and_blocks",
    ),
    "another column": (
        {"column": lambda self, j: self.to_dense()[..., j, :, :, :]},
        "test_rows_columns_and_blocks",
    ),
    "norms not squared": (
        {"block_norms": lambda self: self.to_dense().abs().sum((-2, -1))},
        "test_rows_columns_and_blocks",
    ),
    "transpose forgets time": ({"_transposed": lambda self: Total(self.V.mT, self.n)}, "test_the_transpose"),
    "transpose of another rank": (
        {"interaction_rank": lambda self, **how: InteractionOperator.interaction_rank(self, **how) + 1},
        "test_the_transpose",
    ),
    "sum forgets one": ({"_plus": lambda self, other: self}, "test_sums_multiples_and_compositions"),
    "multiple forgets": ({"_scaled": lambda self, factor: self}, "test_"),
    "rows left out": ({"_span_blocks": spoiled(lambda rows: rows[..., 1:, :])}, "test_"),
    "rows twice": (
        {"_span_blocks": spoiled(lambda rows: torch.cat([rows, rows], -2))},
        "test_spectrum_and_rank",
    ),
    "rounded to float32": (
        {"_span_blocks": spoiled(lambda rows: rows.float() + 1e-4 * rows.float().roll(1, -1))},
        "test_",
    ),
    "not causal": ({"_apply": looks_ahead}, "test_a_causal_operator"),
    "detached": ({"_apply": lambda self, x: x.detach().cumsum(-2) @ self.V.mT}, "test_gradients"),
    "stays attached": ({"detach": lambda self: self}, "test_gradients_flow_and_stop"),
    "a row in double": ({"row": lambda self, i: InteractionOperator.row(self, i).double()}, "test_dtype"),
    "a spectrum in single": (
        {"spectrum": lambda self: InteractionOperator.spectrum(self).float()},
        "test_dtype",
    ),
    "loses its dtype": ({"_mapped": lambda self, change: self}, "test_dtype"),
    "fewer heads than asked": (
        {"best_heads": lambda self, H: InteractionOperator.best_heads(self, min(H, self.p * self.d - 1))},
        "test_best_heads",
    ),
    "apply is not W @ x": (
        {"apply": lambda self, x: 2 * self._apply(x), "__matmul__": lambda self, x: self(x)},
        "test_it_acts_as_the_sum_over_its_blocks",
    ),
    "another kind in float32": ({"to": lambda self, kind: Total(self.V.to(kind), self.n)}, "test_dtype"),
    "best heads of what is not finite": (
        {
            "best_heads": lambda self, H: (
                self if self.V.isnan().any() else InteractionOperator.best_heads(self, H)
            )
        },
        "test_what_does_not_fit",
    ),
    "a row past the last": (
        {"row": lambda self, i: InteractionOperator.row(self, min(i, self.n - 1))},
        "test_what_does_not_fit",
    ),
    "an index past the last": (
        {
            "__getitem__": lambda self, place: InteractionOperator.__getitem__(
                self, 4 if place == 5 else place
            )
        },
        "test_what_does_not_fit",
    ),
    "ranks what is not finite": ({"_span_blocks": spoiled(torch.nan_to_num)}, "test_what_does_not_fit"),
}


def dense(W):
    lower = torch.ones(W.n, W.n, dtype=W.dtype).tril()
    return torch.einsum("ij,...pd->...ijpd", lower, W.V)


@pytest.mark.parametrize("name", OPERATORS)
def test_a_broken_operator_is_caught_by_its_law(name):
    broken, law = OPERATORS[name]
    with pytest.raises(AssertionError, match=rf"(?m)^{law}\w*\(.*\): ."):
        operator(**broken).check()


def times(factor, name):
    """The named method of every operator, with a result that is so many times too large."""
    return lambda self, *given, **how: factor * getattr(InteractionOperator, name)(self, *given, **how)


def more(name):
    return lambda self, *given, **how: 1 + getattr(InteractionOperator, name)(self, *given, **how)


def double(name):
    return lambda self, *given, **how: getattr(InteractionOperator, name)(self, *given, **how).double()


def turned(**broken):
    """A ``_transposed`` that has the right blocks, with some of its methods replaced."""
    kind = type("Turned", (DenseOperator,), broken)
    return {"_transposed": lambda self: kind(dense(self).transpose(-4, -3).mT)}


def wrong_for(axes):
    return lambda self, x: (1 + (x.dim() == axes)) * Total._apply(self, x)


ACTS = ("test_it_acts_as_the_sum_over_its_blocks", (), 5)
PARTS = ("test_rows_columns_and_blocks_are_those_of_the_whole", ())
ADJOINT = ("test_the_transpose_is_the_adjoint", (), 5)
SPANS = ("test_spectrum_and_rank_are_those_of_its_blocks", (), 5)
HEADS = ("test_best_heads_leave_the_floor_and_no_less", ())
MEMORY = ("test_a_causal_operator_has_a_memory_and_no_other", ())
SINGLE = ("test_dtype_and_device_are_kept", torch.float32)
DOUBLE = ("test_dtype_and_device_are_kept", torch.float64)
GRADIENTS = ("test_gradients_flow_and_stop_where_they_are_told",)
REFUSED = ("test_what_does_not_fit_is_refused",)

# What is said, of which operator, by which law in which case.
SAID_OF_OPERATORS = [
    (r"shape \(1,\) is not that of blocks", {"shape": (1,)}, ACTS),
    ("is not that of blocks", {"to_dense": lambda self: dense(self)[None]}, ACTS),
    (
        "is not that of blocks",
        {"shape": (1, 5, 5, 3, 4), "to_dense": lambda self: dense(self)[None]},
        ACTS,
    ),
    (
        "W @ x is off by",
        {"_apply": OPERATORS["affine"][0]["_apply"], "to_dense": lambda self: dense(self)},
        ACTS,
    ),
    *[
        (
            "W @ x is off by",
            {"_apply": wrong_for(axes), "to_dense": lambda self: dense(self)},
            (ACTS[0], batch, 5),
        )
        for axes, batch in ((2, (2,)), (3, (2,)), (4, ()))
    ],
    (r"W\(x\), W.apply\(x\) and W @ x differ", {"__call__": times(2, "apply")}, ACTS),
    (
        r"W\(x\), W.apply\(x\) and W @ x differ",
        {"apply": times(2, "apply"), "__matmul__": lambda self, x: self(x)},
        ACTS,
    ),
    (r"to_block_matrix\(\) is off by", {"to_block_matrix": times(2, "to_block_matrix")}, ACTS),
    (
        r"rows\(\) is off by",
        {"rows": lambda self: iter(2 * dense(self)), "to_dense": lambda self: dense(self)},
        PARTS,
    ),
    (r"block_norms\(\) is off by", {"block_norms": times(2, "block_norms")}, PARTS),
    (r"row\(0\) is off by", {"row": times(2, "row")}, PARTS),
    (r"column\(0\) is off by", {"column": times(2, "column")}, PARTS),
    (r"row_rank\(0\) is 2, not 1", {"row_rank": more("row_rank")}, PARTS),
    (r"column_rank\(0\) is 2, not 1", {"column_rank": more("column_rank")}, PARTS),
    ("W.T is off by", turned(to_dense=lambda self: 2 * self.W), ADJOINT),
    ("W.T @ y is off by", turned(_apply=lambda self, y: 2 * DenseOperator._apply(self, y)), ADJOINT),
    ("W.T.T is off by", turned(_transposed=lambda self: 2 * DenseOperator._transposed(self)), ADJOINT),
    (r"W.T.block_norms\(\) is off by", turned(block_norms=times(2, "block_norms")), ADJOINT),
    ("W.T has rank 2, W has 1", turned(interaction_rank=more("interaction_rank")), ADJOINT),
    (r"spectrum\(\) is off by", {"spectrum": times(2, "spectrum")}, SPANS),
    (
        r"spectrum\(\) must be detached",
        {"spectrum": lambda self: InteractionOperator.spectrum(self).requires_grad_()},
        SPANS,
    ),
    (
        r"span_matrix\(\) has more rows than columns",
        {"span_matrix": lambda self: self.to_dense().flatten(-4, -3).flatten(-2)},
        SPANS,
    ),
    (
        "a rank is an int, or int64",
        {"interaction_rank": lambda self: torch.tensor(InteractionOperator.interaction_rank(self))},
        SPANS,
    ),
    (
        "a rank is an int, or int64",
        {"interaction_rank": lambda self: InteractionOperator.interaction_rank(self).int()},
        (SPANS[0], (2,), 5),
    ),
    (r"interaction_rank\(\) is 2, not 1", {"interaction_rank": more("interaction_rank")}, SPANS),
    (r"operator_span\(W\) is off by", {"_as_blocks": times(2, "_as_blocks")}, SPANS),
    (
        "W in its span is off by",
        {"_as_blocks": lambda self, rows: InteractionOperator._as_blocks(self, rows.roll(1, -1))},
        SPANS,
    ),
    (
        r"best_heads\(0\) has 1 heads",
        {"best_heads": lambda self, H: InteractionOperator.best_heads(self, H + 1)},
        HEADS,
    ),
    (r"‖W − best_heads\(1\)‖² \+ ‖W‖² is off by", {"best_heads": times(2, "best_heads")}, HEADS),
    (r"floor\(0\) \+ 1 is off by", {"floor": more("floor")}, HEADS),
    *[
        (
            rf"epsilon_heads\({eps}\) is not where floor\(\) falls below",
            {
                "epsilon_heads": lambda self, given, eps=eps: (
                    InteractionOperator.epsilon_heads(self, given) + (given == eps)
                )
            },
            HEADS,
        )
        for eps in (0.5, 0.1, 1e-3)
    ],
    ("a causal operator has W_ij = 0 for j > i", {"_apply": looks_ahead}, MEMORY),
    (r"past_future_rank\(\) is 4, not 3", {"past_future_rank": more("past_future_rank")}, MEMORY),
    *[
        ("not all parts are torch.float32", {name: double(name)}, SINGLE)
        for name in ("apply", "row", "column", "block_norms")
    ],
    *[
        (
            "not all parts are torch.float32",
            {
                "best_heads": lambda self, H, wrong=wrong: SimpleNamespace(
                    **{"alpha": self.V, "V": self.V} | {wrong: self.V.double()}
                )
            },
            SINGLE,
        )
        for wrong in ("alpha", "V")
    ],
    (
        "not all parts are torch.float32",
        {"_scaled": lambda self, c: Total(c * self.V.double(), self.n)},
        SINGLE,
    ),
    (
        "not all parts are torch.float32",
        {
            "to_dense": lambda self: dense(self).double(),
            "_scaled": lambda self, factor: Total(factor * self.V, self.n),
            "_mapped": lambda self, change: Total(change(self.V), self.n),
            **turned(),
        },
        SINGLE,
    ),
    ("not all parts are torch.float32", turned(to_dense=lambda self: self.W.double()), SINGLE),
    (
        "not all parts are torch.float32",
        {"to": lambda self, to: Total(self.V.double(), self.n) if to == "cpu" else self},
        SINGLE,
    ),
    (r"spectrum\(\) is in float64", {"spectrum": OPERATORS["a spectrum in single"][0]["spectrum"]}, DOUBLE),
    (r"W.to\(torch.float32\) is of the same kind", OPERATORS["another kind in float32"][0], DOUBLE),
    (r"W.to\(torch.float32\) is of the same kind", OPERATORS["loses its dtype"][0], DOUBLE),
    (
        r"W.to\(torch.float32\) is off by",
        {"to": lambda self, to: type(self)(2 * self.V.to(to), self.n)},
        DOUBLE,
    ),
    (
        "the gradient by a factor is off by",
        {
            "_scaled": lambda self, factor: Total._scaled(
                self, 2 * factor - factor.detach() if torch.is_tensor(factor) else factor
            )
        },
        GRADIENTS,
    ),
    (r"W.detach\(\) still carries a gradient", {"detach": lambda self: self}, GRADIENTS),
    (r"W.detach\(\) is off by", {"detach": times(2, "detach")}, GRADIENTS),
    (
        "another number of tokens must raise ValueError",
        {"apply": lambda self, x: None if x.shape[-2] == 4 else InteractionOperator.apply(self, x)},
        REFUSED,
    ),
    (
        "another width must raise ValueError",
        {"apply": lambda self, x: None if x.shape[-1] == 5 else InteractionOperator.apply(self, x)},
        REFUSED,
    ),
    (
        "another dtype must raise TypeError",
        {"apply": lambda self, x: InteractionOperator.apply(self, x.to(self.dtype))},
        REFUSED,
    ),
    (r"row\(5\) of 5 tokens must raise ValueError", OPERATORS["a row past the last"][0], REFUSED),
    (r"W\[5\] of 5 tokens must raise IndexError", OPERATORS["an index past the last"][0], REFUSED),
]


@pytest.mark.parametrize(("said", "broken", "law"), SAID_OF_OPERATORS)
def test_what_breaks_a_law_of_operators_is_named(said, broken, law):
    name, *case = law
    with pytest.raises(AssertionError, match=said):
        getattr(operator(**broken), name)(*case)


@pytest.mark.parametrize(
    "place", [(1, 2), (-1, 0), (2, slice(None)), (slice(None), 3), (slice(1, 4), slice(3, 0, -2))]
)
def test_blocks_that_are_wrong_in_one_place_are_told_where(place):
    def wrong(self, asked):
        return (asked == place) + InteractionOperator.__getitem__(self, asked)

    with pytest.raises(AssertionError, match=re.escape(f"W[{place[0]}, {place[1]}] is off by")):
        operator(__getitem__=wrong).test_rows_columns_and_blocks_are_those_of_the_whole(())


def composed(self, other):
    by = 2 if isinstance(other, InteractionOperator) else 1
    return by * DenseOperator.__matmul__(self, other)


class Misread(DenseOperator):
    """It acts as it should; what is read off is twice as much."""

    def to_dense(self):
        return 2 * self.W


class Misranked(DenseOperator):
    def spectrum(self, joint=False):
        return 2 * super().spectrum(joint)


SUMS = {
    "W + V": {"__add__": lambda self, other: self},
    "V + W": {"__radd__": lambda self, other: self},
    "W + W'": {"_plus": lambda self, other: self},
    "W - W'": {"__sub__": lambda self, other: self},
    "sum": {"__radd__": lambda self, other: 2 * self if other == 0 else DenseOperator.__add__(other, self)},
    "-W": {"__neg__": lambda self: self, "__sub__": lambda self, other: self + -1 * other},
    "3 * W": {"__rmul__": lambda self, factor: self},
    "W * tensor": {"__mul__": lambda self, factor: self},
    "W / 4": {"__truediv__": lambda self, divisor: self},
    "V @ W": {"__rmatmul__": lambda self, other: 2 * DenseOperator.__matmul__(other, self)},
    "V @ W as blocks": {
        "__rmatmul__": lambda self, other: Misread(DenseOperator.__matmul__(other, self).to_dense())
    },
    "W @ V": {"__matmul__": composed},
    "W @ W'": {"_after": lambda self, other: self},
    "spectrum of W + V": {"__add__": lambda self, other: Misranked(self.W + other.W)},
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_and_compositions_that_are_wrong_are_named(name):
    kind = type("Broken", (DenseOperator,), SUMS[name])
    make = {"make": lambda self, random, batch, n: kind(random(*batch, n, n, 3, 3))}
    with pytest.raises(AssertionError, match=re.escape(f"{name.removesuffix(' as blocks')} is off by")):
        type("Held", (OperatorContract,), make)().test_sums_multiples_and_compositions(())


def test_gradients_that_are_wrong_are_told_on_either_side():
    halves = (
        {"_apply": lambda self, x: Total._apply(self, 2 * x - x.detach()), **turned()},
        turned(_apply=lambda self, y: DenseOperator._apply(self, 2 * y - y.detach())),
    )
    for broken in halves:
        with pytest.raises(RuntimeError, match="Jacobian mismatch"):
            operator(**broken).test_gradients_flow_and_stop_where_they_are_told()


RANKINGS = [
    *["spectrum", "interaction_rank", "floor", "span_matrix"],
    *["best_heads", "row_rank", "column_rank"],
]


def ranks_only_if(fine, name):
    def rank(self, *given, **how):
        return getattr(InteractionOperator, name)(self, *given, **how) if fine(self.V) else None

    return rank


def refuses_unless_finite(name):
    def rank(self, *given, **how):
        if not self.V.isfinite().all():
            raise ValueError("not finite")
        return getattr(InteractionOperator, name)(self, *given, **how)

    return rank


@pytest.mark.parametrize("bad", ["nan", "inf"])
@pytest.mark.parametrize("name", RANKINGS)
def test_what_ranks_blocks_that_are_not_finite_is_told_so(name, bad):
    def fine(V):
        return not (V.isnan() if bad == "nan" else V.isinf()).any()

    said = f"ranking blocks of {bad} must raise ValueError; nothing was raised"
    with pytest.raises(AssertionError, match=said):
        operator(**{name: ranks_only_if(fine, name)}).test_what_does_not_fit_is_refused()


def test_a_span_of_blocks_that_are_not_finite_is_told_so():
    careful = {name: refuses_unless_finite(name) for name in RANKINGS}
    said = "ranking blocks of nan must raise ValueError; nothing was raised"
    with pytest.raises(AssertionError, match=said):
        operator(_span_blocks=spoiled(torch.nan_to_num), **careful).test_what_does_not_fit_is_refused()


def test_an_operator_without_batch_elements_is_asked_for():
    class Some(Total):
        def _apply(self, x):
            if 0 in self.batch_shape:
                raise RuntimeError("no batch element")
            return super()._apply(x)

    make = {"make": lambda self, random, batch, n: Some(random(*batch, 3, 4), n)}
    with pytest.raises(AssertionError, match=r"batch=\(0,\).*: no batch element"):
        type("Held", (TestTotal,), make)().check()


def uses_up(self, x):
    y = Total._apply(self, x)
    x.data.zero_()
    return y


def test_an_operator_that_changes_its_argument_is_told_so():
    with pytest.raises(AssertionError, match="W @ x changed x"):
        operator(_apply=uses_up, to_dense=dense).test_it_acts_as_the_sum_over_its_blocks((), 5)


def held(W):
    """The contract of one operator of five tokens in float64."""
    return type("Held", (OperatorContract,), {"make": lambda self, random, batch, n: W})()


def test_an_operator_that_is_zero_misses_nothing():
    held(DenseOperator(torch.zeros(5, 5, 2, 2).double())).test_best_heads_leave_the_floor_and_no_less(())


def test_a_floor_that_is_exactly_the_error_asked_for_is_enough():
    """Four equal singular values: two heads miss half of the squares, and half is asked for."""
    blocks = torch.zeros(5, 5, 2, 2, dtype=torch.float64)
    blocks[:2, :2] = torch.eye(4).reshape(2, 2, 2, 2)
    held(DenseOperator(blocks)).test_best_heads_leave_the_floor_and_no_less(())


def test_a_contract_that_does_not_know_its_operator_to_be_causal_is_told_so():
    held = type("Held", (TestTotal,), {"causal": False})
    said = r"past_future_rank\(\) of an operator that looks ahead must raise ValueError; nothing was raised"
    with pytest.raises(AssertionError, match=said):
        held().test_a_causal_operator_has_a_memory_and_no_other(())


class Sum(SequenceMap):
    """y_i = V (x_0 + … + x_i)."""

    def __init__(self, d, p, **new):
        super().__init__(d, p)
        self.V = torch.nn.Parameter(torch.randn(p, d, **new))

    def _forward(self, x):
        return x.cumsum(-2) @ self.V.mT

    def _interaction(self, x):
        return Total(self.V.expand(*x.shape[:-2], *self.V.shape), x.shape[-2])


class TestSum(MapContract):
    def make(self, **new):
        return Sum(4, 3, **new)


class TestSelective(RecurrentMapContract):
    def make(self, **new):
        return SelectiveSSM(3, N=2, **new)


MAPS = {
    "another operator": (
        {"_interaction": lambda self, x: 2 * Sum._interaction(self, x)},
        "test_forward_is_the",
    ),
    "an offset": ({"_forward": lambda self, x: Sum._forward(self, x) + 1}, "test_zero_input"),
    "no number at zero": (
        {"_interaction": lambda self, x: x.abs().sum() / x.abs().sum() * Sum._interaction(self, x)},
        "test_zero_input",
    ),
    "batches meet": (
        {"_forward": lambda self, x: Sum._forward(self, x - x.mean(0) if x.dim() > 2 else x)},
        "test_batch_elements",
    ),
    "looks ahead": ({"_forward": lambda self, x: Sum._forward(self, x.flip(-2))}, "test_future_tokens"),
    "detached": (
        {"_interaction": lambda self, x: Sum._interaction(self, x).detach()},
        "test_the_interaction_carries",
    ),
    "a wrong gradient": (
        {"_forward": lambda self, x: Sum._forward(self, 2 * x - x.detach())},
        "test_gradients_by_input",
    ),
    "in place": ({"_forward": lambda self, x: Sum._forward(self, x.mul_(1.5))}, "test_nothing_is_changed"),
    "in double": (
        {"_forward": lambda self, x: Sum._forward(self, x).double()},
        "test_dtype_and_device_are_kept",
    ),
    "one token alone": ({"_forward": lambda self, x: Sum._forward(self, x[..., :1, :])}, "test_nothing_in"),
    "checks nothing": ({"_check": lambda self, x: None}, "test_what_does_not_fit"),
    "takes anything": (
        {
            "forward": lambda self, x: Sum.forward(self, torch.as_tensor(x).to(self.V)),
            "interaction": lambda self, x: Sum.interaction(self, torch.as_tensor(x).to(self.V)),
        },
        "test_what_does_not_fit_is_refused",
    ),
    "silent": ({"_forward": lambda self, x: 0 * Sum._forward(self, x)}, "test_forward_is_the"),
    "cut off above 10": (
        {"_forward": lambda self, x: Sum._forward(self, x.clamp(-10, 10))},
        "test_forward_is_the_interaction_applied_at_other_scales",
    ),
    "cut off below 1e-7": (
        {"_forward": lambda self, x: Sum._forward(self, x * (x.abs() > 1e-7))},
        "test_forward_is_the_interaction_applied_at_other_scales",
    ),
    "a wrong gradient by a parameter": (
        {"_forward": lambda self, x: x.cumsum(-2) @ (2 * self.V - self.V.detach()).mT},
        "test_gradients_by_input_and_parameters",
    ),
}


@pytest.mark.parametrize("name", MAPS)
def test_a_broken_map_is_caught_by_its_law(name):
    broken, law = MAPS[name]
    kind = type("Broken", (Sum,), broken)
    held = type("Held", (MapContract,), {"make": lambda self, **new: kind(4, 3, **new)})
    with pytest.raises(AssertionError, match=rf"(?m)^{law}\w*\(.*\): ."):
        held().check()


def reads(**broken):
    """An ``_interaction`` whose operator has some of its attributes replaced."""
    kind = type("Read", (Total,), broken)
    return {"_interaction": lambda self, x: kind(self.V.expand(*x.shape[:-2], *self.V.shape), x.shape[-2])}


def as_total(self):
    return Total(self.V, self.n).to_dense()


APPLIED = ("test_forward_is_the_interaction_applied", (), 5)
ZERO = ("test_zero_input_gives_zero_output_and_a_finite_interaction",)
NOTHING = ("test_nothing_in_nothing_out", (0,))
CARRIES = ("test_the_interaction_carries_gradients",)
KEPT = ("test_dtype_and_device_are_kept", torch.float32, "cpu")
MOVED = ("test_dtype_and_device_are_kept", torch.float64, "cpu")
TWICE = {"_interaction": MAPS["another operator"][0]["_interaction"]}
ELSEWHERE = {"_forward": lambda self, x: Sum._forward(self, x).to("meta")}

SAID_OF_MAPS = [
    (r"the output has shape \(5, 2\)", {"_forward": lambda self, x: Sum._forward(self, x)[..., :2]}, APPLIED),
    (
        "the output is zero: nothing is tested",
        {
            name: lambda self, x, name=name: 0 * getattr(Sum, name)(self, x)
            for name in ("_forward", "_interaction")
        },
        APPLIED,
    ),
    (r"interaction\(x\) @ x is off by", TWICE, APPLIED),
    ("the sum over blocks is off by", reads(to_dense=lambda self: 2 * Total.to_dense(self)), APPLIED),
    (
        r"interaction\(x\) @ x is off by",
        {"_forward": lambda self, x: Sum._forward(self, x + (x == 0))},
        ZERO,
    ),
    (
        "the output for x = 0 is off by",
        {"_forward": lambda self, x: Sum._forward(self, x) + (x == 0).all()},
        ZERO,
    ),
    (
        r"interaction\(x\) has 1 tokens, x has 0",
        {"_interaction": lambda self, x: Total(self.V, x.shape[-2] + 1)},
        NOTHING,
    ),
    (
        r"interaction\(x\) @ x must have shape \(0, 2\)",
        {"_forward": lambda self, x: Sum._forward(self, x)[..., :2]},
        NOTHING,
    ),
    (
        "the input was changed",
        {"_forward": lambda self, x: Sum._forward(self, x.mul_(1.5))},
        ("test_nothing_is_changed_and_one_seed_is_one_map",),
    ),
    (
        r"the gradient through interaction\(x\) is off by",
        {"_interaction": lambda self, x: Total(2 * self.V - self.V.detach(), x.shape[-2])},
        CARRIES,
    ),
    (
        "asked for torch.float32; found {.*torch.float64",
        {"_forward": lambda self, x: Sum._forward(self, x).double()},
        KEPT,
    ),
    ("asked for torch.float32; found {.*torch.float64", reads(dtype=torch.float64, to_dense=as_total), KEPT),
    (
        "asked for torch.float32; found {.*torch.float64",
        reads(to_dense=lambda self: Total.to_dense(self).double()),
        KEPT,
    ),
    ("the device of x is not kept", reads(device=torch.device("meta"), to_dense=as_total), KEPT),
    ("the device of x is not kept", ELSEWHERE, KEPT),
    ("the device of x is not kept", ELSEWHERE | reads(device=torch.device("meta"), to_dense=as_total), KEPT),
    (r"interaction\(x\) @ x is off by", TWICE, KEPT),
    (
        "the map moved to float32 is off by",
        {"_forward": lambda self, x: Sum._forward(self, x) * (1 + 0.01 * (x.dtype == torch.float32))},
        MOVED,
    ),
]


def held_map(kind):
    return type("Held", (MapContract,), {"make": lambda self, **new: kind(4, 3, **new)})()


@pytest.mark.parametrize(("said", "broken", "law"), SAID_OF_MAPS)
def test_what_breaks_a_law_of_maps_is_named(said, broken, law):
    name, *case = law
    with pytest.raises(AssertionError, match=said):
        getattr(held_map(type("Broken", (Sum,), broken)), name)(*case)


def test_a_map_in_single_precision_may_be_as_far_off_as_its_rounding():
    class Rounded(Sum):
        def _forward(self, x):
            return super()._forward(x) * (1 + self.by * (x.dtype == torch.float32))

    for by, (name, *case) in ((1e-5, KEPT), (1e-4, MOVED)):
        Rounded.by = by
        getattr(held_map(Rounded), name)(*case)
    Rounded.by = 1e-3
    with pytest.raises(AssertionError, match=r"interaction\(x\) @ x is off by"):
        held_map(Rounded).test_dtype_and_device_are_kept(torch.float32, "cpu")


def test_an_operator_that_forgets_a_parameter_is_told_so():
    class Gained(Sum):
        def __init__(self, *sizes, **new):
            super().__init__(*sizes, **new)
            self.gain = torch.nn.Parameter(self.V.new_ones(()))

        def _forward(self, x):
            return self.gain * super()._forward(x)

        def _interaction(self, x):
            return self.gain * super()._interaction(x).detach()

    with pytest.raises(AssertionError, match=r"interaction\(x\) is detached from the parameters"):
        held_map(Gained).test_the_interaction_carries_gradients()


def test_a_map_that_is_drawn_without_its_generator_is_told_so():
    drawn = iter(range(1, 9))

    def make(self, generator, **new):
        return Sum(4, 3, generator=torch.Generator().manual_seed(next(drawn)), **new)

    held = type("Held", (MapContract,), {"make": make})
    with pytest.raises(AssertionError, match="two maps of one seed differ"):
        held().test_nothing_is_changed_and_one_seed_is_one_map()


def test_a_map_that_answers_in_another_dtype_than_the_default_is_told_so():
    def make(self, dtype, **new):
        layer = Sum(4, 3, dtype=dtype, **new)
        if dtype is None:
            layer.forward = torch.Tensor.double
        return layer

    held = type("Held", (MapContract,), {"make": make})
    with pytest.raises(AssertionError, match="dtype=None is torch's default"):
        held().test_dtype_and_device_are_kept(torch.float32, "cpu")


OTHER = "x of another dtype or type must raise TypeError"
TAKEN = [
    (r"x \(4,\) must raise ValueError", lambda x, d: x[None] if torch.is_tensor(x) and x.dim() == 1 else x),
    (
        r"x \(5, 5\) must raise ValueError",
        lambda x, d: x[..., :d] if torch.is_tensor(x) and x.dim() > 1 else x,
    ),
    (
        r"x \(5, 6\) must raise ValueError",
        lambda x, d: x[..., :d] if torch.is_tensor(x) and x.shape == (5, 6) else x,
    ),
    (
        r"x \(\) must raise ValueError",
        lambda x, d: x.expand(5, d) if torch.is_tensor(x) and not x.dim() else x,
    ),
    *[
        (OTHER, lambda x, d, kind=kind: x.double() if torch.is_tensor(x) and x.dtype == kind else x)
        for kind in (torch.float32, torch.int64)
    ],
    (OTHER, lambda x, d: torch.tensor(x, dtype=torch.float64) if isinstance(x, list) else x),
    (
        "x on another device must raise ValueError",
        lambda x, d: torch.zeros(x.shape, dtype=x.dtype) if torch.is_tensor(x) and x.is_meta else x,
    ),
]


@pytest.mark.parametrize("call", ["forward", "interaction"])
@pytest.mark.parametrize(("said", "taken"), TAKEN)
def test_what_a_map_takes_that_it_should_refuse_is_named(said, taken, call):
    kind = type("Careless", (Sum,), {call: lambda self, x: getattr(Sum, call)(self, taken(x, self.d))})
    held = type("Held", (MapContract,), {"make": lambda self, **new: kind(4, 3, **new)})
    with pytest.raises(AssertionError, match=said):
        held().test_what_does_not_fit_is_refused()


def test_an_operator_of_another_size_is_told_its_size():
    longer = {"_interaction": lambda self, x: Total(self.V.expand(*x.shape[:-2], 3, 4), x.shape[-2] + 1)}
    kind = type("Longer", (Sum,), longer)
    held = type("Held", (MapContract,), {"make": lambda self, **new: kind(4, 3, **new)})
    with pytest.raises(AssertionError, match=r"interaction\(x\) has n, p, d = \(2, 3, 4\)"):
        held().check()


class Worn(Sum):
    """Beside what wears out there is what stays."""

    def __init__(self, *sizes, **new):
        super().__init__(*sizes, **new)
        self.register_buffer("stays", torch.ones(2))


def test_a_buffer_of_another_dtype_is_told():
    def make(self, **new):
        layer = Worn(4, 3, **new)
        layer.stays = layer.stays.double()
        return layer

    held = type("Held", (MapContract,), {"make": make})
    with pytest.raises(AssertionError, match="asked for torch.float32; found {.*torch.float64"):
        held().test_dtype_and_device_are_kept(torch.float32, "cpu")


def test_a_map_is_causal_unless_it_says_otherwise():
    assert Sum(4, 3).causal is True


def test_a_map_that_is_not_built_in_the_default_dtype_is_told():
    def make(self, dtype=None, **new):
        return Sum(4, 3, dtype=dtype or torch.float64, **new)

    held = type("Held", (MapContract,), {"make": make})
    with pytest.raises(TypeError, match="dtype of the parameters, torch.float64; got torch.float32"):
        held().test_dtype_and_device_are_kept(torch.float32, "cpu")


class WearsOut(Worn):
    def _forward(self, x):
        y = super()._forward(x)
        self.V.data.mul_(0.9)
        return y


class WearsOutWhenRead(Worn):
    def _interaction(self, x):
        W = super()._interaction(x).detach()
        self.V.data.mul_(0.9)
        return W


@pytest.mark.parametrize("kind", [WearsOut, WearsOutWhenRead])
def test_a_map_that_changes_its_parameters_is_told_so(kind):
    held = type("Held", (MapContract,), {"make": lambda self, **new: kind(4, 3, **new)})
    with pytest.raises(AssertionError, match="a parameter was changed"):
        held().check()


@pytest.mark.parametrize(
    ("moves", "blocks", "causal", "said"),
    [
        (1e-13, 0.0, True, "a later token moves an output by"),
        (0.0, 1e-13, True, "a later token moves an output by"),
        *[
            (moves, blocks, False, "the map looks causal; say so with causal=True")
            for moves, blocks in ((1.0, 0.0), (0.0, 1.0), (1e-5, 1.0), (1.0, 1e-5))
        ],
    ],
)
def test_what_a_map_says_of_causality_is_held_against_what_it_does(moves, blocks, causal, said):
    class Ahead(Sum):
        def _forward(self, x):
            return Sum._forward(self, x) + moves * Sum._forward(self, x.flip(-2))

        def _interaction(self, x):
            everywhere = torch.ones(9, 9, self.p, self.d, dtype=x.dtype)
            return Sum._interaction(self, x) + DenseOperator(blocks * everywhere)

    def make(self, **new):
        layer = Ahead(4, 3, **new)
        layer.causal = causal
        return layer

    with pytest.raises(AssertionError, match=said):
        type(
            "Held", (MapContract,), {"make": make}
        )().test_future_tokens_change_nothing_where_the_map_is_causal()


def test_eleven_digits_are_asked_for_where_nothing_else_is_said():
    x = torch.randn(5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    same("y", x * (1 + 1e-12), x)
    same("y", 0 * x, 0 * x)
    with pytest.raises(AssertionError, match="y is off by"):
        same("y", x * (1 + 1e-10), x)


def test_what_is_no_tensor_is_told_so():
    with pytest.raises(AssertionError, match="y must be a tensor; got float"):
        same("y", 3.0, torch.tensor(3.0))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_told_so(bad):
    got = torch.tensor([1.0, bad])
    with pytest.raises(AssertionError, match="y must be finite"):
        same("y", got, torch.ones(2))


def test_another_shape_dtype_or_device_is_told_so():
    y = torch.ones(2)
    for got, said in (
        (torch.ones(1), r"y must have shape \(2,\); got \(1,\)"),
        (y.double(), "y must have dtype torch.float32; got torch.float64"),
        (y.to("meta"), "y must be on cpu; got meta"),
    ):
        with pytest.raises(AssertionError, match=said):
            same("y", got, y)


def test_what_is_not_refused_or_for_another_reason_is_told_so():
    refuses(lambda: [][1], IndexError, "a place past the last")
    for call, came in ((list, "nothing was raised"), (lambda: [][1], "got IndexError")):
        with pytest.raises(AssertionError, match=f"a place must raise ValueError; {came}"):
            refuses(call, ValueError, "a place")


def forgets(self, x_t, state):
    y, _ = SelectiveSSM._step(self, x_t, state)
    return y, state


def overwrites(self, x_t, state):
    y, after = SelectiveSSM._step(self, x_t, state)
    return y, state.copy_(after)


STEPS = {
    "forgets": (forgets, "test_steps_make"),
    "overwrites": (overwrites, "test_a_state_is_kept"),
    "starts anew": (lambda self, x_t, state: SelectiveSSM._step(self, x_t, 0 * state), "test_pieces_make"),
    "detached": (
        lambda self, x_t, state: SelectiveSSM._step(self, x_t, state.detach()),
        "test_gradients_reach",
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_broken_step_is_caught_by_its_law(name):
    step, law = STEPS[name]
    kind = type("Broken", (SelectiveSSM,), {"_step": step})
    held = type("Held", (TestSelective,), {"make": lambda self, **new: kind(3, N=2, **new)})
    with pytest.raises(AssertionError, match=rf"(?m)^{law}\w*\(.*\): ."):
        held().check()


def ends(spoil):
    """A ``run`` whose outputs and last state, with what it was given, pass through ``spoil``."""

    def run(self, x, state=None):
        return spoil(*SelectiveSSM.run(self, x, state), x, state)

    return {"run": run}


KEEPS = ("test_a_state_is_kept",)
ENDS = ("test_the_state_is_on_the_device", "cpu")

SAID_OF_STEPS = [
    (
        "the state after two runs is off by",
        ends(lambda y, after, x, state: (y, after if state is None else 2 * after)),
        ("test_pieces_make_the_whole", 4),
    ),
    ("step changed the state it was given", {"_step": overwrites}, KEEPS),
    (
        "the output of no tokens must have shape",
        ends(lambda y, after, x, state: (y if len(x) else y.new_zeros(1, 3), after)),
        KEEPS,
    ),
    (
        "no tokens changed the state",
        ends(lambda y, after, x, state: (y, after if len(x) else 2 * after)),
        KEEPS,
    ),
    (
        "the state is not on the device of x",
        ends(lambda y, after, x, state: (y, after.to("meta"))),
        ENDS,
    ),
    ("run is off by", ends(lambda y, after, x, state: (2 * y, after)), ENDS),
]


@pytest.mark.parametrize(("said", "broken", "law"), SAID_OF_STEPS)
def test_what_breaks_a_law_of_steps_is_named(said, broken, law):
    kind = type("Broken", (SelectiveSSM,), broken)
    held = type("Held", (TestSelective,), {"make": lambda self, **new: kind(3, N=2, **new)})
    name, *case = law
    with pytest.raises(AssertionError, match=said):
        getattr(held(), name)(*case)


def careless(takes):
    """A layer that lets through a state that it should refuse, and goes on as if none had been given."""

    def _check_state(self, state, batch_shape):
        if not takes(state, self.initial_state(batch_shape)):
            SelectiveSSM._check_state(self, state, batch_shape)

    def _step(self, x_t, state):
        wanted = self.initial_state(x_t.shape[:-1])
        fits = isinstance(state, torch.Tensor) and (state.shape, state.dtype) == (wanted.shape, wanted.dtype)
        return SelectiveSSM._step(self, x_t, state if fits else wanted)

    return {"_check_state": _check_state, "_step": _step}


CARELESS = {
    "a state without the batch": lambda state, wanted: (
        isinstance(state, torch.Tensor) and state.dim() < wanted.dim()
    ),
    "a state that is too small": lambda state, wanted: (
        isinstance(state, torch.Tensor) and 0 < state.shape[-1] < wanted.shape[-1]
    ),
    "a state that is no tensor": lambda state, wanted: not isinstance(state, torch.Tensor),
    "a state of another dtype": lambda state, wanted: (
        isinstance(state, torch.Tensor) and state.dtype != wanted.dtype
    ),
}


@pytest.mark.parametrize("said", CARELESS)
def test_a_layer_that_takes_any_state_is_told_so(said):
    kind = type("Careless", (SelectiveSSM,), careless(CARELESS[said]))
    held = type("Held", (TestSelective,), {"make": lambda self, **new: kind(3, N=2, **new)})
    with pytest.raises(AssertionError, match=said):
        held().test_a_bad_state_or_token_is_refused()


def test_a_layer_that_takes_a_narrow_token_is_told_so():
    class Filled(SelectiveSSM):
        def step(self, x_t, state=None):
            missing = self.d - x_t.shape[-1]
            return super().step(torch.nn.functional.pad(x_t, (0, missing if missing == 1 else 0)), state)

    held = type("Held", (TestSelective,), {"make": lambda self, **new: Filled(3, N=2, **new)})
    with pytest.raises(AssertionError, match="a token that is too narrow must raise ValueError"):
        held().test_a_bad_state_or_token_is_refused()


def test_a_contract_asks_how_its_subject_is_made():
    for contract in (OperatorContract, MapContract, RecurrentMapContract):
        with pytest.raises(AssertionError, match="say how the .* is made"):
            contract().check()
    wrong = type("Wrong", (MapContract,), {"make": lambda self, **new: torch.relu})
    with pytest.raises(AssertionError, match="make must return a map; got builtin_function_or_method"):
        wrong().check()
    wrong = type("Wrong", (OperatorContract,), {"make": lambda self, random, batch, n: random(3)})
    with pytest.raises(AssertionError, match="make must return an operator; got Tensor"):
        wrong().check()
    short = type(
        "Short", (OperatorContract,), {"make": lambda self, random, batch, n: Total(random(3, 4), n)}
    )
    with pytest.raises(AssertionError, match=r"make was asked for \(\(2,\), 0, torch.float64\); it made"):
        short().check()
    for other in (
        lambda self, random, batch, n: Total(random(*batch, 3, 4), n + 1),
        lambda self, random, batch, n: Total(random(*batch, 3, 4).float(), n),
    ):
        wrong = type("Wrong", (OperatorContract,), {"make": other})
        with pytest.raises(AssertionError, match=r"make was asked for \(\(\), 5, torch.float64\); it made"):
            wrong().operator()
