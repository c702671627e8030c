"""What training takes by count and by seed: exactly so many steps, and draws that the seed alone decides."""

import pytest
import torch
from helpers import gen, randn
from torch.optim.optimizer import register_optimizer_step_post_hook

from ssmbook.chapters.how_many_heads_really.five_counts import fit_softmax_heads
from ssmbook.chapters.trade_off.reach import best_reach, typical_reach
from ssmbook.experiments import gradient_flow, language, learning_distance, learning_heads, students, tasks
from ssmbook.experiments._learning_heads import conditioned_system
from ssmbook.maps import RetNet

M = randn(5, 2, 3)
TEXT = torch.randint(language.CHARACTERS, (60,), generator=gen())


def model():
    return tasks.build("attention", d=4, parameters=2_000, longest=32)


def spoken():
    return language.build("attention", d=8, layers=1, parameters=6_000)


def read(model):
    return torch.cat([each.detach().flatten() for each in model.parameters()])


TRAINED = {
    "learning_distance.train": lambda steps: learning_distance.train("LTI", 3, steps=steps, seeds=1),
    "learning_heads.train_heads": lambda steps: learning_heads.train_heads(M, [2], seeds=1, steps=steps),
    "tasks.train": lambda steps: tasks.train(model(), "recall", 3, steps=steps, batch=2),
    "language.train": lambda steps: language.train(
        spoken(), TEXT, steps=steps, batch=2, n=8, rate=1e-3, seed=0
    ),
}


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("steps", [1, 12])
def test_as_many_steps_are_made_as_were_asked_for(name, steps):
    made = []
    handle = register_optimizer_step_post_hook(lambda *_: made.append(1))
    try:
        TRAINED[name](steps)
    finally:
        handle.remove()
    assert len(made) == steps


DRAWN = {
    "draw_teacher": lambda g: learning_heads.draw_teacher(2, 2, 2, 5, generator=g).A,
    "conditioned_system": lambda g: (
        conditioned_system(2, 2, 2, 5, rho=0.8, condition=1, least_share=0.0, generator=g).A
    ),
    "flagged_tokens": lambda g: learning_distance.flagged_tokens(2, 3, 4, generator=g)[0],
    "start": lambda g: learning_distance.start("LTI", 2, generator=g)["B"],
    "highway_input": lambda g: gradient_flow.highway_input(randn(3, 3), 4, 0.5, generator=g),
    "gated_reader": lambda g: read(gradient_flow.gated_reader(3, pre_activation=0.5, generator=g)),
    "train_heads": lambda g: learning_heads.train_heads(M, [2], seeds=1, steps=2, generator=g).V,
    "draw": lambda g: tasks.draw("recall", 4, 6, generator=g)[0],
    "fit_softmax_heads": lambda g: fit_softmax_heads(M, 2, sink=True, steps=3, generator=g).curve,
    **{
        f"fit_class, {kind}": lambda g, kind=kind: students.fit_class(M, 1, kind, steps=1, generator=g)
        for kind in students.CLASSES
    },
    **{
        share.__name__: lambda g, share=share, few=few: torch.tensor(
            share(
                RetNet(3, 3, H=2, head_width=3, generator=gen(), dtype=M.dtype),
                3,
                3,
                **few,
                generator=g,
            )
        )
        for share, few in ((typical_reach, {}), (best_reach, {"rounds": 1}))
    },
}


@pytest.mark.parametrize("name", DRAWN)
def test_equal_seeds_draw_the_same_and_others_do_not(name):
    first, again, other = (DRAWN[name](gen(seed)) for seed in (3, 3, 4))
    assert torch.equal(first, again) and not torch.equal(first, other)


SEEDED = {
    "learning_distance.train": lambda **seed: learning_distance.train("LTI", 3, steps=1, seeds=1, **seed)[
        "error"
    ],
    "tasks.build": lambda **seed: read(tasks.build("attention", d=4, parameters=2_000, longest=32, **seed)),
    "tasks.train": lambda **seed: torch.tensor(tasks.train(model(), "recall", 3, steps=1, batch=2, **seed)),
    "language.build": lambda **seed: read(
        language.build("attention", d=8, layers=1, parameters=6_000, **seed)
    ),
    "language.train": lambda seed: torch.tensor(
        language.train(spoken(), TEXT, steps=10, batch=2, n=8, rate=1e-3, seed=seed)
    ),
    "language.manual": lambda seed: language.manual(shuffled=seed).train,
}


@pytest.mark.parametrize("name", SEEDED)
def test_equal_numbers_for_a_seed_give_the_same_and_others_do_not(name):
    torch.manual_seed(5)  # what the seed does not decide must not matter
    first = SEEDED[name](seed=3)
    torch.manual_seed(6)
    assert torch.equal(first, SEEDED[name](seed=3)) and not torch.equal(first, SEEDED[name](seed=4))


@pytest.mark.parametrize("name", [*SEEDED][:4])
def test_without_a_seed_it_is_zero(name):
    assert torch.equal(SEEDED[name](), SEEDED[name](seed=0))


def test_without_a_generator_the_seed_is_zero():
    default, zero = (
        fit_softmax_heads(M, 2, sink=True, steps=3, **more) for more in ({}, {"generator": gen(0)})
    )
    assert torch.equal(default.curve, zero.curve)
