"""The contracts bite: what breaks one law is caught by the law that says so, and what breaks none passes."""

import pytest
import torch

from ssmbook.maps import SelectiveSSM, SequenceMap
from ssmbook.operators import DenseOperator, InteractionOperator
from ssmbook.testing import MapContract, OperatorContract, RecurrentMapContract
from ssmbook.testing._contract import same


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


def uses_up(self, x):
    y = Total._apply(self, x)
    x.data.zero_()
    return y


def test_an_operator_that_changes_its_argument_is_told_so():
    with pytest.raises(AssertionError, match="W @ x changed x"):
        operator(_apply=uses_up, to_dense=dense).test_it_acts_as_the_sum_over_its_blocks((), 5)


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
}


@pytest.mark.parametrize("name", MAPS)
def test_a_broken_map_is_caught_by_its_law(name):
    broken, law = MAPS[name]
    kind = type("Broken", (Sum,), broken)
    held = type("Held", (MapContract,), {"make": lambda self, **new: kind(4, 3, **new)})
    with pytest.raises(AssertionError, match=rf"(?m)^{law}\w*\(.*\): ."):
        held().check()


TAKEN = {
    r"x \(5, 5\) must raise ValueError": lambda x, d: x[..., :d] if torch.is_tensor(x) and x.dim() > 1 else x,
    "x of another dtype or type must raise TypeError": lambda x, d: (
        x.double() if torch.is_tensor(x) and not x.is_meta else x
    ),
    "x on another device must raise ValueError": lambda x, d: (
        torch.zeros(x.shape, dtype=x.dtype) if torch.is_tensor(x) and x.is_meta else x
    ),
}


@pytest.mark.parametrize("call", ["forward", "interaction"])
@pytest.mark.parametrize("said", TAKEN)
def test_what_a_map_takes_that_it_should_refuse_is_named(said, call):
    kind = type("Careless", (Sum,), {call: lambda self, x: getattr(Sum, call)(self, TAKEN[said](x, self.d))})
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
        isinstance(state, torch.Tensor) and state.shape[-1] < wanted.shape[-1]
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
            return super().step(torch.nn.functional.pad(x_t, (0, self.d - x_t.shape[-1])), state)

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
