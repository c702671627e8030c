"""What training takes by count and by seed: exactly so many steps, and draws that the seed alone decides."""

import pytest
import torch
from helpers import gen, randn, toeplitz
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


def descended(loss, parameters, optimizer, *, steps, cut=lambda grads: grads, schedule=None):
    """Steps of an optimizer on gradients that are each taken anew, by torch.autograd.grad, in place."""
    parameters = [each.requires_grad_() for each in parameters]
    descent = optimizer(parameters)
    change = schedule(descent) if schedule else None
    for _ in range(steps):
        for each, gradient in zip(parameters, cut(torch.autograd.grad(loss(), parameters)), strict=True):
            each.grad = gradient
        descent.step()
        if change:
            change.step()
    return torch.cat([each.detach().flatten() for each in parameters])


def to_length_one(grads, first=0):
    """Gradients cut to norm 1: whole for ``first`` = 0, for each of their first entries for 1."""
    size = sum(g.square().sum(tuple(range(first, g.ndim)), keepdim=True).flatten(first) for g in grads).sqrt()
    size = size.clamp_min(1.0)
    return [g / (size.view(-1, *[1] * (g.ndim - 1)) if first else size) for g in grads]


STEPS = 4


def distance_learned(optimizer, rate):
    """The errors after training, and those by hand."""
    found = learning_distance.train(
        "LTI", 3, optimizer=optimizer, rate=rate, steps=STEPS, batch=4, loud=2.0, seeds=2
    )
    g = gen()
    parameters = learning_distance.start("LTI", 2, generator=g)

    def missed(batch):
        x, target = learning_distance.flagged_tokens(2, batch, 3, loud=2.0, generator=g)
        squares = (learning_distance.answer("LTI", parameters, x) - target).square().mean(1)
        return squares, squares / target.square().mean(1)

    kind = getattr(torch.optim, optimizer)
    descended(
        lambda: missed(4)[0].sum(),
        parameters.values(),
        lambda own: kind(own, lr=rate),
        steps=STEPS,
        cut=lambda grads: to_length_one(grads, first=1),
    )
    return found["error"], missed(1024)[1].detach()


def heads_learned():
    start, found = (
        learning_heads.train_heads(M, [2], seeds=2, steps=steps, generator=gen()) for steps in (0, STEPS)
    )
    rows = toeplitz(M).reshape(25, 6)
    unit = rows.square().sum(1).mean().sqrt()
    alpha, V = start.alpha.flatten(2).clone(), start.V.flatten(2) / unit
    descended(
        lambda: (alpha.mT @ V - rows / unit).square().sum() / (rows / unit).square().sum(),
        [alpha, V],
        lambda own: torch.optim.Adam(own, lr=0.1),
        steps=STEPS,
        schedule=lambda descent: torch.optim.lr_scheduler.CosineAnnealingLR(descent, STEPS),
    )
    return torch.cat([found.alpha.flatten(2), found.V.flatten(2) / unit], -1), torch.cat([alpha, V], -1)


def model_learned(train, loss, make):
    """The parameters of a model after training, and those by hand."""
    found, wanted, g = make(), make(), gen(7)
    train(found)
    by_hand = descended(
        lambda: loss(wanted, g),
        wanted.parameters(),
        lambda own: torch.optim.AdamW(own, lr=0.1),
        steps=STEPS,
        cut=to_length_one,
        schedule=lambda descent: torch.optim.lr_scheduler.OneCycleLR(
            descent, 0.1, total_steps=STEPS + 1, pct_start=0.1
        ),
    )
    return read(found), by_hand


def recalled(model, g):
    tokens, answers = tasks.draw("recall", 3, 2, generator=g)
    return torch.nn.functional.cross_entropy(model(tokens).mT, answers, ignore_index=-1)


def continued(model, g):
    start = torch.randint(len(TEXT) - 8, (2,), generator=g)
    return language.bits(model, torch.stack([TEXT[at : at + 9] for at in start]))


DESCENTS = {
    "learning_distance.train, SGD": lambda: distance_learned("SGD", 0.05),
    "learning_distance.train, Adam": lambda: distance_learned("Adam", 0.01),
    "learning_heads.train_heads": heads_learned,
    "tasks.train": lambda: model_learned(
        lambda net: tasks.train(net, "recall", 3, steps=STEPS, batch=2, rate=0.1, seed=7), recalled, model
    ),
    "language.train": lambda: model_learned(
        lambda net: language.train(net, TEXT, steps=STEPS, batch=2, n=8, rate=0.1, seed=7), continued, spoken
    ),
}


@pytest.mark.parametrize("name", DESCENTS)
def test_training_goes_down_the_gradient_of_each_step_alone(name):
    found, wanted = DESCENTS[name]()
    torch.testing.assert_close(found, wanted.detach(), rtol=1e-4, atol=1e-5)


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
