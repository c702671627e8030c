"""A valid call of every public function: the table that the test of the doors asks. A new function is a line.

Sequences are short and sizes differ, so that no wrong shape fits by accident.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor

from ssmbook import display, exercises, gradients, heads, lens, maps, operators, scans, systems, testing
from ssmbook.chapters.how_many_heads_really import border, five_counts
from ssmbook.chapters.trade_off import reach
from ssmbook.experiments import gradient_flow as flow
from ssmbook.experiments import learning_distance, learning_heads, students, tasks
from ssmbook.systems import System


@dataclasses.dataclass
class Door:
    """A valid call, and what it takes beyond the rule.

    carries: NaN, infinity and meta come out where they went in. complex: complex tensors are welcome. loose:
    arguments taken entry by entry, in any number of dimensions. accepts: "argument kind" pairs that are right
    answers, said in the docstring. called: what messages call an argument of another name.
    """

    function: Callable
    arguments: dict[str, Any]
    carries: bool = False
    complex: bool = False
    loose: tuple[str, ...] = ()
    accepts: tuple[str, ...] = ()
    called: dict[str, str] = dataclasses.field(default_factory=dict)

    def __call__(self, /, **changed):
        return self.function(**{**self.arguments, **changed})

    def tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in self.arguments.items() if isinstance(value, Tensor)}

    def optional(self, name: str) -> bool:
        parameter = inspect.signature(self.function).parameters.get(name)
        return parameter is not None and parameter.default is None


def door(
    function, /, *, carries=False, complex=False, loose="", accepts=(), called=None, **arguments
) -> Door:
    return Door(function, arguments, carries, complex, tuple(loose.split()), tuple(accepts), called or {})


def method(bound, /, **arguments) -> Door:
    """The door of a method: what it belongs to is its first argument."""
    made = door(bound.__func__, **arguments)
    made.arguments["self"] = bound.__self__
    return made


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cube(x: Tensor) -> Tensor:
    return x**3


n, p, d, N, H = 5, 3, 2, 4, 2
A, B, C, D = 0.3 * draw(N, N), draw(N, d), draw(p, N), draw(p, d)
SYSTEM = System(A, B, C, D)
M = SYSTEM.lags(n)
LAM = torch.complex(-draw(N).abs(), draw(N, seed=1))
RATES = -draw(d, N).abs()
x, alpha, V = draw(n, d), draw(H, n, n), draw(H, p, d)
q, k = draw(H, n, 3), draw(H, n, 3, seed=1)
DENSE = operators.DenseOperator(draw(n, n, p, d))
COVARIANCES = {
    "time_covariance": torch.eye(n, dtype=torch.float64),
    "channel_covariance": 2 * torch.eye(d).double(),
}
ANY_DTYPE = ["time_covariance other dtype", "channel_covariance other dtype"]
W_i, A_i, B_i, C_i = draw(n, p, d), 0.3 * draw(n, N, N), draw(n, N, d), draw(n, p, N)
AXES = Figure().gca()
WIDTHS = {"d": 3, "p": 2}
HEADS = {"H": 2, "head_width": 3}

OPERATORS = {
    "DenseOperator": door(lambda W: operators.DenseOperator(W), W=DENSE.W, carries=True),
    "FactorizedOperator": door(operators.FactorizedOperator, alpha=alpha, V=V, carries=True),
    "LagOperator": door(operators.LagOperator, M=M, n=7, carries=True),
    "PointwiseOperator": door(operators.PointwiseOperator, W=W_i, carries=True),
    "RecurrentOperator": door(operators.RecurrentOperator, A=A_i, B=B_i, C=C_i, D=W_i, carries=True),
    "ModalOperator": door(
        lambda log_decay, B, C, D=None: operators.ModalOperator(log_decay, B, C, D),
        log_decay=-draw(n, N).abs(),
        B=B_i,
        C=C_i,
        D=W_i,
        carries=True,
    ),
    "DiagonalOperator": door(
        operators.DiagonalOperator, channels=operators.DenseOperator(draw(3, n, n, 1, 1))
    ),
    "SumOperator": door(
        lambda W: operators.SumOperator(W, DENSE.to(getattr(W, "dtype", torch.float64))),
        W=operators.PointwiseOperator(W_i),
        called={"W": "term 0"},
    ),
    "ComposedOperator": door(
        operators.ComposedOperator, outer=DENSE, inner=operators.PointwiseOperator(draw(n, d, 4))
    ),
    "TransposedOperator": door(operators.TransposedOperator, operand=operators.PointwiseOperator(W_i)),
}


def then(make: Callable, method: str) -> Callable:
    """What ``make`` makes, asked for one of its methods."""
    return functools.wraps(make)(lambda **parts: getattr(make(**parts), method)())


def seeded(make: Callable) -> Callable:
    """``make`` with the same random numbers at each call."""
    return functools.wraps(make)(
        lambda **given: make(**{"generator": torch.Generator().manual_seed(0), **given})
    )


def methods_of_operators() -> dict[str, Door]:
    """What an operator of each kind is asked with tensors and numbers, and what decides from its entries."""
    found = {}
    for name, made in OPERATORS.items():
        W = made()
        asked = {
            "apply": method(W.apply, x=draw(W.n, W.d), carries=True),
            "coefficients": method(W.coefficients, V=draw(4, W.p, W.d), carries=True),
            "row": method(W.row, i=1),
            "column": method(W.column, j=1),
            "best_heads": method(W.best_heads, H=1),
        }
        # The same code for every kind: one is asked.
        asked |= (
            {}
            if name != "DenseOperator"
            else {
                "leading_value_maps": method(W.leading_value_maps, H=1),
                "interaction_rank": method(W.interaction_rank, rtol=1e-3, joint=True),
                "rank_report": method(W.rank_report, rtol=1e-3, joint=True),
                "spectrum": method(W.spectrum, joint=True),
                "row_rank": method(W.row_rank, i=1, rtol=1e-3),
                "column_rank": method(W.column_rank, j=1, rtol=1e-3),
            }
        )
        found |= {f"{name}.{asks}": ask for asks, ask in asked.items()}
        if made.tensors():
            called = dict.fromkeys(made.arguments, "W|V|alpha|M")
            for asks in ("spectrum", "span_matrix", "block_norms"):
                carries = asks == "block_norms"
                found[f"{asks} of {name}"] = Door(
                    then(made.function, asks),
                    made.arguments,
                    carries=carries,
                    called=made.called if carries else called,
                )
    colors = {**COVARIANCES, "accepts": ANY_DTYPE}
    found |= {
        "floor": method(DENSE.floor, H=2, **colors),
        "epsilon_heads": method(DENSE.epsilon_heads, eps=0.1, **colors),
        "past_future_rank": method(OPERATORS["RecurrentOperator"]().past_future_rank, rtol=1e-3),
    }
    return found


OPERATOR_FUNCTIONS = {
    "default_rtol": door(operators.default_rtol, dtype=torch.float64),
    "jacobian_operator": door(operators.jacobian_operator, F=cube, x=x),
    "numerical_rank": door(
        operators.numerical_rank, singular_values=torch.tensor([3.0, 1.0]).double(), rtol=1e-3, scale=2.0
    ),
    "operator_span": door(operators.operator_span, W=DENSE, rtol=1e-3),
    "path_operator": door(operators.path_operator, F=cube, x=x, points=4, rtol=0.1, max_points=64),
    "rank_report": door(
        operators.rank_report,
        spectrum=torch.tensor([3.0, 1.0]).double(),
        rtol=1e-3,
        scale=2.0,
        called={"spectrum": "spectrum|singular_values"},
    ),
    "secant_operator": door(operators.secant_operator, y=draw(n, p), x=x),
}

RESET = torch.tensor([True, False, True, False, False])
SELECTIVE = {
    "x": x, "delta": draw(n, d, seed=1).abs(), "A": RATES, "B": draw(n, N), "C": draw(n, N, seed=1),
    "D": draw(d), "state": draw(d, N),
}  # fmt: skip
SSD = {
    "x": draw(n, H, 3), "log_a": -draw(n, H).abs(), "B": draw(n, H, N), "C": draw(n, H, N, seed=1),
    "state": draw(H, 3, N),
}  # fmt: skip
LTI = {"A": A, "B": B, "C": C, "x": x, "state": draw(N)}
DIAGONAL = {"a": draw(n, d).sigmoid(), "b": x, "state": draw(d)}


def one_step(arguments: dict, *fixed: str) -> dict:
    """The arguments of a step: the first token of each, under its name with _t."""
    return {k if k in fixed else f"{k}_t": v if k in fixed else v[0] for k, v in arguments.items()}


def without_t(arguments: dict) -> dict:
    return {name: name.removesuffix("_t") for name in arguments}


def step(function, arguments: dict, complex: bool = False) -> Door:
    return Door(function, arguments, carries=True, complex=complex, called=without_t(arguments))


NAIVE = {"carries": True}
KERNEL = {"A": A, "B": B, "C": C, "n": 3}
SCANS = {
    "diagonal_scan": door(
        scans.diagonal_scan, **DIAGONAL, log=False, reverse=True, reset=RESET, carries=True, complex=True
    ),
    "diagonal_scan_naive": door(scans.diagonal_scan_naive, **DIAGONAL, log=True, carries=True, complex=True),
    "diagonal_step": step(scans.diagonal_step, {**one_step(DIAGONAL, "state"), "log": False}, complex=True),
    "lti_kernel": door(scans.lti_kernel, **KERNEL, carries=True, complex=True),
    "lti_kernel_naive": door(scans.lti_kernel_naive, **KERNEL, carries=True, complex=True),
    "lti_scan": door(
        scans.lti_scan, **LTI, method="chunked", reverse=True, reset=RESET, carries=True, complex=True
    ),
    "lti_scan_naive": door(scans.lti_scan_naive, **LTI, method="auto", carries=True, complex=True),
    "lti_step": step(scans.lti_step, one_step(LTI, "A", "B", "C", "state"), complex=True),
    "selective_scan": door(scans.selective_scan, **SELECTIVE, reverse=True, reset=RESET, carries=True),
    "selective_scan_naive": door(scans.selective_scan_naive, **SELECTIVE, carries=True),
    "selective_step": step(scans.selective_step, one_step(SELECTIVE, "A", "D", "state")),
    "ssd_scan": door(scans.ssd_scan, **SSD, reverse=False, reset=RESET, carries=True),
    "ssd_scan_naive": door(scans.ssd_scan_naive, **SSD, carries=True),
    "ssd_step": step(scans.ssd_step, one_step(SSD, "state")),
}

STEP = {"A": A, "B": B, "delta": torch.tensor(0.1).double()}
SYSTEMS = {
    "System": door(System, A=A, B=B, C=C, D=D, complex=True, accepts=["all meta"]),
    "System.lags": method(SYSTEM.lags, n=3),
    "System.response": method(SYSTEM.response, angles=draw(3)),
    "System.discretize": method(
        SYSTEM.discretize, step=torch.tensor(0.1).double(), method="zoh", called={"step": "delta"}
    ),
    "System.minimal": method(SYSTEM.minimal, rtol=1e-3),
    "bilinear": door(systems.bilinear, **STEP, complex=True),
    "euler": door(systems.euler, **STEP, complex=True),
    "mixed_euler": door(systems.mixed_euler, **STEP, complex=True),
    "zoh": door(systems.zoh, **STEP, complex=True),
    "controllability_matrix": door(systems.controllability_matrix, A=A, B=B, complex=True),
    "controllability_rank": door(systems.controllability_rank, A=A, B=B, rtol=1e-3, complex=True),
    "observability_matrix": door(systems.observability_matrix, A=A, C=C, complex=True),
    "observability_rank": door(systems.observability_rank, A=A, C=C, rtol=1e-3, complex=True),
    "hankel_matrix": door(systems.hankel_matrix, M=M, rows=3, cols=3, complex=True, carries=True),
    "ho_kalman": door(systems.ho_kalman, M=M, order=1, rtol=1e-3, complex=True),
    "mcmillan_degree": door(systems.mcmillan_degree, M=M, rtol=1e-3, complex=True),
    "impulse_response": door(systems.impulse_response, system=SYSTEM, n=4),
    "hippo_legs": door(systems.hippo_legs, N=4),
    "spectral_radius": door(systems.spectral_radius, A=A, complex=True),
    "jordan_block": door(systems.jordan_block, N=3, lam=0.5),
    "mass_on_spring": door(systems.mass_on_spring, mass=1.0, damping=0.5, stiffness=2.0),
    "phi1": door(systems.phi1, z=draw(3), carries=True, complex=True, loose="z"),
    "random_orthogonal": door(seeded(systems.random_orthogonal), N=3, rho=0.5),
    "random_stable": door(seeded(systems.random_stable), N=3, d=2, p=1, rho=0.5),
    "real_modes": door(systems.real_modes, lam=LAM, complex=True),
    "rotation": door(systems.rotation, theta=0.5, rho=0.9),
    "rotation of a tensor": door(systems.rotation, theta=draw(3), loose="theta"),
    "s4d_legs": door(systems.s4d_legs, N=4),
    "s4d_lin": door(systems.s4d_lin, N=4),
}

MAPS = {
    "Attention": door(
        seeded(maps.Attention),
        **WIDTHS,
        **HEADS,
        causal=True,
        bias=draw(2, 6),
        alibi=True,
        sink=True,
        dtype=torch.float64,
        accepts=["half"],  # it has a dtype of its own
    ),
    "Convolution": door(seeded(maps.Convolution), **WIDTHS, width=3),
    "DeltaNet": door(seeded(maps.DeltaNet), **WIDTHS, **HEADS),
    "DiagonalSSM": door(seeded(maps.DiagonalSSM), d=3, N=4, pairs=True),
    "FeedForward": door(seeded(maps.FeedForward), **WIDTHS, width=4, activation="tanh"),
    "GLA": door(seeded(maps.GLA), **WIDTHS, **HEADS, temperature=2.0),
    "Gated": door(seeded(maps.Gated), map=maps.FeedForward(3, 2, width=4), gate="both"),
    "Hybrid": door(maps.Hybrid, maps=[maps.FeedForward(3, 2, width=4)], mode="sum"),
    "KAN": door(seeded(maps.KAN), **WIDTHS, grid=3, reach=2.0),
    "LTISSM": door(maps.LTISSM, system=SYSTEM),
    "LTISSM.random": door(seeded(maps.LTISSM.random), **WIDTHS, N=4, rho=0.5, skip=True),
    "LinearAttention": door(
        seeded(maps.LinearAttention), **WIDTHS, **HEADS, normalized=True, feature_map="elu+1"
    ),
    "RNN": door(seeded(maps.RNN), **WIDTHS, N=4, activation="tanh"),
    "Residual": door(maps.Residual, map=maps.FeedForward(3, 3, width=4)),
    "RetNet": door(seeded(maps.RetNet), **WIDTHS, **HEADS, decay=[0.9, 0.5], accepts=["decay none"]),
    "SSD": door(seeded(maps.SSD), **WIDTHS, **HEADS, N=4, groups=2),
    "SelectiveSSM": door(seeded(maps.SelectiveSSM), d=3, N=4, discretization="zoh"),
    "zoo": door(seeded(maps.zoo), d=3, p=2, n=5, **HEADS, N=4),
}
PAIR = {"q": q, "k": k, "carries": True}
MAP_FUNCTIONS = {
    "activate": door(maps.activate, name="silu", z=x, carries=True, loose="z", called={"name": "activation"}),
    "secant_slope": door(
        maps.secant_slope, name="gelu", z=x, carries=True, loose="z", called={"name": "activation"}
    ),
    "alibi_bias": door(maps.alibi_bias, H=2, n=3),
    "causal_mask": door(maps.causal_mask, n=3),
    "distances": door(maps.distances, n=3),
    "decay_matrix": door(maps.decay_matrix, log_a=draw(n), carries=True),
    "delta_coefficients": door(maps.delta_coefficients, **PAIR, beta=draw(H, n)),
    "linear_coefficients": door(maps.linear_coefficients, **PAIR, normalized=True),
    "scalar_decay_coefficients": door(maps.scalar_decay_coefficients, **PAIR, log_a=draw(H, n)),
    "softmax_coefficients": door(
        maps.softmax_coefficients, **PAIR, causal=True, bias=draw(H, n, n), sink=True
    ),
    "vector_decay_coefficients": door(maps.vector_decay_coefficients, **PAIR, log_a=draw(H, n, 3)),
    "draw_steps": door(
        seeded(lambda shape, low, high, **like: maps.draw_steps(shape, low=low, high=high, **like)),
        shape=3, low=0.1, high=0.2,
    ),
    "inverse_softplus": door(maps.inverse_softplus, a=x.abs(), loose="a", accepts=["all meta", "a meta"]),
}  # fmt: skip


# Their operator does not depend on the tokens.
FREE_OF_X = {"convolution", "LTI SSM", "LTI SSM with skip", "S4D", "S4D, real"}


def methods_of_maps() -> dict[str, Door]:
    found = {}
    for name, made in maps.zoo(3, 3, 6, generator=torch.Generator().manual_seed(0)).items():
        found[f"{name}: forward"] = method(made.forward, x=draw(n, 3), carries=True)
        free = ["x nan"] if name in FREE_OF_X else []
        found[f"{name}: interaction"] = method(made.interaction, x=draw(n, 3), carries=True, accepts=free)
        if isinstance(made, maps.RecurrentMap):
            state = made.initial_state()
            found[f"{name}: initial_state"] = method(made.initial_state, batch_shape=(2,))
            free = [] if name == "convolution" else ["half"]  # their states are kept in float32
            found[f"{name}: step"] = method(made.step, x_t=draw(3), state=state, carries=True, accepts=free)
            found[f"{name}: run"] = method(made.run, x=draw(n, 3), state=state, carries=True, accepts=free)
        if isinstance(made, maps.HeadMap):
            found[f"{name}: coefficients"] = method(made.coefficients, x=draw(n, 3), carries=True)
    return found


EXACT = {"A": [[1, 1], [0, 2]], "B": [[1], [1]], "C": [[1, 0]], "D": [[1]]}


def exact(function):
    """The door of a function of exact matrices, by each of them."""
    return door(lambda A, B, C, D=None: function((A, B, C, D)), **EXACT, accepts=["D none"])


ON_SYSTEM = {"system": SYSTEM, "n": n}
PLAIN = SYSTEM.replace(D=None)
STILL = torch.cat([M[:1], 0 * M[1:]])
BLOCKS = torch.stack([V[0], 0 * V[0], 0 * V[0], V[0]]).unflatten(0, (2, 2))
PAIRWISE = heads.pairwise_heads_from_ssm(SYSTEM, n)
SMALL = System(A, B, C[:2])


def on_lags(function, M=M, **arguments) -> Door:
    """The same function of lag operators, which stand in for the system."""
    return door(function, system=M, **arguments)


HEAD_FUNCTIONS = {
    "eigenvalue_test": door(heads.eigenvalue_test, system=PLAIN, rtol=1e-7),
    "epsilon_head_count": door(
        heads.epsilon_head_count, **ON_SYSTEM, eps=0.1, **COVARIANCES, accepts=ANY_DTYPE
    ),
    "epsilon_head_count of lags": on_lags(heads.epsilon_head_count, eps=0.1),
    "every_input_head_count": door(heads.every_input_head_count, **ON_SYSTEM, rtol=1e-9),
    "every_input_head_count of lags": on_lags(heads.every_input_head_count, rtol=1e-9),
    "exact_head_count": door(heads.exact_head_count, **ON_SYSTEM),
    "exact_head_count of matrices": exact(functools.partial(heads.exact_head_count, n=3)),
    "exact_minimal_degree": exact(heads.exact_minimal_degree),
    "exact_modal_head_count": exact(heads.exact_modal_head_count),
    "exact_modal_residues": exact(heads.exact_modal_residues),
    "bounded_head_count": door(heads.bounded_head_count, p=3, d=2),
    "bounded_heads": door(heads.bounded_heads, **ON_SYSTEM, algebra=2),
    "bounded_heads of lags": on_lags(heads.bounded_heads),
    "head_count": door(heads.head_count, **ON_SYSTEM, rtol=1e-3),
    "head_count of lags": on_lags(heads.head_count, rtol=1e-3),
    "head_count_bound": door(heads.head_count_bound, **ON_SYSTEM, rtol=1e-3),
    "head_floor": door(heads.head_floor, **ON_SYSTEM, **COVARIANCES, accepts=ANY_DTYPE),
    "head_floor of lags": on_lags(heads.head_floor),
    "least_positive_multiple": door(heads.least_positive_multiple, polynomial=[2.0, 1.0]),
    "heads_from_ssm": door(heads.heads_from_ssm, **ON_SYSTEM, H=2, rtol=1e-9),
    "pairwise_head_count": door(heads.pairwise_head_count, **ON_SYSTEM, rtol=1e-9, draws=2, exact=False),
    "pairwise_head_count of lags": on_lags(heads.pairwise_head_count, rtol=1e-9),
    "pairwise_heads_from_ssm": door(heads.pairwise_heads_from_ssm, **ON_SYSTEM, rtol=1e-9),
    "PairwiseHeads.coefficients": method(PAIRWISE.coefficients, x=x),
    "PairwiseHeads.target": method(PAIRWISE.target, x=x),
    "PairwiseHeads": method(PAIRWISE.__call__, x=x),
    "rank_limited_head_count": door(heads.rank_limited_head_count, **ON_SYSTEM, r=1, rtol=1e-9),
    "rank_limited_head_count of lags": on_lags(heads.rank_limited_head_count, r=1, rtol=1e-9),
    "rank_limited_lower_bounds": door(heads.rank_limited_lower_bounds, **ON_SYSTEM, r=1, rtol=1e-9),
    "sinkless_heads": door(heads.sinkless_heads, system=SYSTEM.replace(A=0 * A), n=3, H=None, rtol=1e-9),
    "sinkless_heads of blocks": on_lags(heads.sinkless_heads, BLOCKS, accepts=["system without a dimension"]),
    "sinkless_plateau": door(heads.sinkless_plateau, **ON_SYSTEM),
    "sinkless_reach": door(heads.sinkless_reach, **ON_SYSTEM, rtol=1e-9, lag_rtol=1e-9),
    "sinkless_reach of blocks": on_lags(heads.sinkless_reach, BLOCKS, accepts=["system without a dimension"]),
    "SinklessPlateau.blocks": method(heads.sinkless_plateau(SYSTEM, n).blocks, M=M, carries=True),
    "softmax_head_count": door(heads.softmax_head_count, system=SYSTEM, n=3, rtol=1e-9, lag_rtol=1e-9),
    "softmax_head_count of lags": on_lags(heads.softmax_head_count, M[:3]),
    "softmax_heads_from_ssm": door(heads.softmax_heads_from_ssm, system=SYSTEM, n=3, H=4, rtol=1e-9),
}

ROW = {"x": x, "W_Q": draw(3, d), "W_K": draw(3, d, seed=1), "target": -2, "bias": draw(n), "sink": 0.5}
TAU = torch.arange(3)
GRADIENTS = {
    "alibi_bound": door(gradients.alibi_bound, B=1.0, slope=0.5, distance=TAU),
    "diagonalizable_bound": door(gradients.diagonalizable_bound, system=SYSTEM, tau=TAU),
    "dilution_bound": door(gradients.dilution_bound, B=1.0, n=TAU + 1),
    "fit_log_slope": door(
        gradients.fit_log_slope,
        distances=torch.arange(6),
        norms=draw(6).exp(),
        window=(0, 4),
        accepts=["window none"],
    ),
    "gate_preactivation_for_hold": door(gradients.gate_preactivation_for_hold, a=0.5, A=-1.0, T=10.0),
    "gradient_profile": door(gradients.gradient_profile, F=cube, x=x, target=-2),
    "jacobian_blocks": door(gradients.jacobian_blocks, F=cube, x=x, target=-2),
    "jordan_envelope": door(gradients.jordan_envelope, rho=0.9, m=2, tau=TAU),
    "lru_parameter_for_hold": door(gradients.lru_parameter_for_hold, a=0.5, T=10.0),
    "pole_sensitivity": door(gradients.pole_sensitivity, lam=0.5, normalized=True),
    "pole_sensitivity of tensors": door(gradients.pole_sensitivity, lam=draw(3).tanh(), loose="lam"),
    "decay_window": door(gradients.decay_window, system=SYSTEM, rtol=1e-9),
    "power_norms": door(gradients.power_norms, A=A, n=3, complex=True),
    "required_margin": door(gradients.required_margin, alpha=0.5, n=TAU + 2),
    "required_margin of tensors": door(gradients.required_margin, alpha=x.sigmoid(), n=3, loose="alpha"),
    "selective_log_attenuation": door(gradients.selective_log_attenuation, A=RATES, delta=x.abs()),
    "softmax_jacobian_block": door(
        gradients.softmax_jacobian_block,
        alpha=torch.tensor(0.5).double(),
        V=draw(p, d),
        v_j=draw(p),
        y_i=draw(p, seed=1),
        g_i=draw(d),
    ),
    "softmax_jacobian_row": door(gradients.softmax_jacobian_row, **ROW, V=draw(p, d)),
    "softmax_row_weights": door(gradients.softmax_row_weights, **ROW),
    "stacked_pole_kernel": door(gradients.stacked_pole_kernel, rho=0.9, L=2, tau=TAU),
    "transient_peak": door(gradients.transient_peak, A=A, max_steps=100, complex=True),
    "weight_from_margin": door(gradients.weight_from_margin, margin=0.5, n=TAU + 2),
    "weight_from_margin of tensors": door(gradients.weight_from_margin, margin=x, n=3, loose="margin"),
}

DISPLAY = {
    "block_heatmap": door(display.block_heatmap, W=DENSE.W, ax=AXES, vmax=1.0),
    "figure": door(display.figure, ncols=1, nrows=1, size="wide"),
    "figure of inches": door(display.figure, size=(3.0, 2.0)),
    "label_line": door(
        display.label_line,
        ax=AXES,
        x=0.5,
        y=0.5,
        text="word",
        color="blue",
        dx=5.0,
        dy=0.0,
        accepts=["text unknown", "text number", "text none", "color none"],
    ),
    "number": door(
        display.number,
        value=0.5,
        digits=3,
        accepts=["value word", "value flag", "value none", "value nan", "value list"],
    ),
    "span_spectrum": door(display.span_spectrum, W=DENSE.W, ax=AXES, rtol=1e-3),
}

LAYER = maps.Attention(**WIDTHS, **HEADS, dtype=torch.float64).eval()
LENS = {
    "layers": door(lens.layers, model=LAYER, unknown="skip"),
    "operator": door(
        lens.operator, layer=LAYER, inputs=draw(n, 3), part="core", called={"inputs": "inputs|x"}
    ),
    "report": door(
        lens.report,
        model=LAYER,
        inputs=draw(8, 3),
        layers=("",),
        name="a model",
        seed=0,
        permuted=False,
        gradient=True,
        progress=lambda *done: None,
        accepts=["layers none", "name unknown", "name none", "progress none"],
        called={"inputs": "inputs|x"},
    ),
    "measurement": door(lens.measurement, name="minilm"),
    "compare": door(lens.compare, before=lens.measurement("minilm"), after=lens.measurement("minilm")),
}

KEYS = torch.nn.functional.normalize(draw(4, 3), dim=1)
LTI_LAYER = maps.LTISSM.random(2, 2, N=N, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
PLAIN_HEAD = {"H": 1, "head_width": 3, "dtype": torch.float64}
FIVE_COUNTS = {
    "fit_softmax_heads": door(seeded(five_counts.fit_softmax_heads), M=M, H=2, sink=True, steps=3, starts=1),
    "fit_rank_one_heads": door(five_counts.fit_rank_one_heads, M=M, H=2, steps=3),
    "half_plane_floor": door(five_counts.half_plane_floor, M=border.jordan_lags(0.5, n), directions=50),
    "cone_error": door(five_counts.cone_error, M=M, V=V, accepts=["M other dtype", "V other dtype"]),
    "counts_by_class": door(five_counts.counts_by_class, system=SYSTEM, n=3),
    "equal_row_operator": door(five_counts.equal_row_operator, k=2, n=n, signed=False),
}
REACH = {
    "retained_fraction": door(
        reach.retained_fraction,
        F=LTI_LAYER,
        source=draw(2),
        target=draw(2, seed=1),
        gap=draw(3, 2),
        accepts=["half"],
    ),
    "typical_reach": door(seeded(reach.typical_reach), F=LTI_LAYER, d=2, distance=3, accepts=["half"]),
    "best_reach": door(seeded(reach.best_reach), F=LTI_LAYER, d=2, distance=3, rounds=2, accepts=["half"]),
    "highway_tokens": door(reach.highway_tokens, head=maps.Attention(3, 2, **PLAIN_HEAD), distance=4),
    "recall_tokens": door(reach.recall_tokens, keys=KEYS, values=draw(4, 2), asked=1, carries=True),
    "recall_head": door(reach.recall_head, c=3, r=2, beta=4.0),
    "recall_missed": door(
        reach.recall_missed, layer=reach.recall_head(3, 2, 4.0), keys=KEYS, r=2, called={"keys": "keys|x"}
    ),
    "undo_residual": door(reach.undo_residual, layer=LTI_LAYER, u=draw(n, 2), accepts=["half"]),
}

LANE = {"x": draw(n, 3), "W_Q": draw(2, 3), "W_K": draw(2, 3, seed=1), "V": draw(3, 3)}
ERRORS = ["alpha nan", "alpha infinity", "V nan", "V infinity"]  # an error that is not finite
MOMENTS = {**COVARIANCES, "accepts": [*ANY_DTYPE, *ERRORS]}
# Of what the commands of the experiments are made of: asked for wrong values alone.
EXPERIMENTS = {
    "lanes": door(flow.lanes, **LANE),
    "highway_input": door(seeded(flow.highway_input), M=draw(3, 3), n=4, c=0.5, called={"n": "n|margin"}),
    "matching_head": door(flow.matching_head, V=draw(3, 3), logit=2.0, bias=draw(4)),
    "place_match": door(flow.place_match, filler=draw(n, 3), distance=2, carries=True),
    "place_source": door(flow.place_source, filler=draw(n, 3), distance=2, carries=True),
    "gated_reader": door(seeded(flow.gated_reader), d=3, pre_activation=0.5),
    "transport_norms": door(flow.transport_norms, slopes=draw(n, N), A=A),
    "rnn_slopes": door(flow.rnn_slopes, net=maps.RNN(3, 2, N=4, dtype=torch.float64), x=draw(n, 3)),
    "linear_recurrence": door(flow.linear_recurrence, system=PLAIN),
    "flagged_tokens": door(seeded(learning_distance.flagged_tokens), S=2, batch=3, T=4, loud=0.5),
    "start": door(seeded(learning_distance.start), layer="LTI", S=2, rho=0.5, N=4),
    "draw_teacher": door(
        seeded(learning_heads.draw_teacher), k=2, d=2, p=2, n=5, least_share=1e-4, attempts=9
    ),
    "population_error": door(learning_heads.population_error, alpha=alpha, V=V, M=M, **MOMENTS),
    "train_heads": door(seeded(learning_heads.train_heads), M=M, heads=[1, 2], seeds=1, steps=2),
    "fit_class": door(seeded(students.fit_class), M=M, H=1, kind="sink", seeds=1, steps=2),
    "draw": door(seeded(tasks.draw), task="copying", L=4, batch=2),
    "build": door(tasks.build, model="attention", d=32, parameters=20_000, longest=64, seed=0),
}

# Names that take no argument to refuse: constants, results and warnings, base classes, a decorator.
WITHOUT_A_DOOR = {
    operators: {"InteractionOperator", "RankReport", "Spectral"},
    scans: {"TransientPeakWarning"},
    systems: set(),
    five_counts: set(),
    reach: set(),
    maps: {"HeadMap", "KeySideMap", "RecurrentMap", "SequenceMap"},
    heads: {
        "Count", "EigenvalueTest", "ExactCertificate", "HeadCountTieWarning", "LagHeads",
        "PairwiseCertificate", "PositiveMultiple", "SinklessPlateau", "SinklessReach", "SoftmaxCertificate",
        "SoftmaxHeads", "SpectrumReport",
    },
    gradients: {"DecayWindow", "LogSlope"},
    display: {
        "COLORS", "DIVERGING", "FAMILIES", "LINES", "SEQUENTIAL", "SIZES", "Slider", "Table", "show", "table",
        "use_style",
    },
    # What a learner hands in may be anything: see tests/exercises and tests/testing.
    exercises: {"Verdict", "agrees", "close", "judged"},
    testing: set(testing.__all__),
    lens: {"Call", "Frozen", "FrozenMap", "LayerReport", "MixingLayer", "Reading", "Report", "register"},
}  # fmt: skip

TABLES = {
    operators: {**OPERATORS, **OPERATOR_FUNCTIONS, **methods_of_operators()},
    scans: SCANS,
    systems: SYSTEMS,
    maps: {**MAPS, **MAP_FUNCTIONS, **methods_of_maps()},
    heads: HEAD_FUNCTIONS,
    gradients: GRADIENTS,
    display: DISPLAY,
    lens: LENS,
    exercises: {
        "check": door(
            exercises.check,
            name="two-ways-to-mix/window",
            answer=cube,
            accepts=["answer tensor", "answer word", "answer none"],
        ),
        "grader": door(exercises.grader, name="zoo/none"),
    },
    testing: {},
    five_counts: FIVE_COUNTS,
    reach: REACH,
}


@pytest.fixture
def tables():
    return TABLES


@pytest.fixture
def without_a_door():
    return WITHOUT_A_DOOR


def pytest_generate_tests(metafunc):
    named = {
        f"{room.__name__.split('.')[-1]}.{name}": door
        for room, table in TABLES.items()
        for name, door in table.items()
    }
    more = {f"experiments.{name}": door for name, door in EXPERIMENTS.items()}
    for asked, doors in (("door", named), ("any_door", named | more)):
        if asked in metafunc.fixturenames:
            metafunc.parametrize(asked, doors.values(), ids=doors)
