"""The experiment "tasks": which of five small models of equal size learns which of four tasks on tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import permutations, product

import torch
from torch import Tensor, nn

from headsandstates.experiments.training import descend
from ssmbook._checks import check_choice
from ssmbook.maps import SSD, Attention, SelectiveSSM
from ssmbook.scans import diagonal_scan

TASKS = ("copying", "selective copying", "recall", "rotation", "permutations")
MODELS = ("attention", "selective SSM", "SSD", "hybrid", "rotating SSM")
SYMBOLS = 8  # data symbols; two more tokens say "blank" and "now answer"
BLANK, ANSWER = SYMBOLS, SYMBOLS + 1
VOCABULARY = SYMBOLS + 2
TURNS = 3  # the rotation has three positions
ORDERS = list(permutations(range(3)))  # the six ways to put three things in order
THEN = torch.tensor([[ORDERS.index(tuple(a[i] for i in b)) for b in ORDERS] for a in ORDERS])  # a, after b
FULL = {
    "lengths": {"copying": [8, 4, 16], "selective copying": [8], "recall": [4], "rotation": [12]},
    "models": list(MODELS), "seeds": 4, "steps": 600, "batch": 32, "d": 32, "parameters": 20_000,
}  # fmt: skip
SMALL = {
    "lengths": {"copying": [2], "selective copying": [2], "recall": [2], "rotation": [6]},
    "models": ["attention", "SSD"], "seeds": 1, "steps": 30,
}  # fmt: skip


def draw(task: str, L: int, batch: int, *, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Draw a batch of a task: tokens (batch, n) and answers (batch, n), -1 where nothing is asked.

    "copying": L symbols, then L times the answer token. "selective copying": the same with
    L blanks strewn among the symbols. "recall": L pairs of a key (4 symbols at random, told
    apart by 2 tokens) and a value, then the keys again in random order, each to be answered
    by its value. "rotation": L turns by 0, 1 or 2 thirds; at each token the position so
    far. "permutations": L reorderings of three things; at each token the order so far (six
    of them).

    Parameters
    ----------
    task : str
        One of ``TASKS``.
    L : int
        Its length.
    batch : int
        How many sequences.
    generator : torch.Generator, optional
        Draws them.

    Returns
    -------
    tuple of int64 Tensor
        Tokens and answers.

    Raises
    ------
    ValueError
        If the task is unknown.
    """
    check_choice("task", task, TASKS)
    if task == "permutations":
        moves = torch.randint(len(ORDERS), (batch, L), generator=generator)
        orders = [moves[:, 0]]
        for move in moves[:, 1:].unbind(1):
            orders.append(THEN[orders[-1], move])
        return moves, torch.stack(orders, 1)
    if task == "rotation":
        turns = torch.randint(TURNS, (batch, L), generator=generator)
        return turns, turns.cumsum(1) % TURNS
    if task == "recall":
        return _recall(L, batch, generator)
    symbols = torch.randint(SYMBOLS, (batch, L), generator=generator)
    tokens = symbols
    if task == "selective copying":
        order = torch.rand(batch, 2 * L, generator=generator).argsort(1)[:, :L].sort(1)[0]
        tokens = torch.full((batch, 2 * L), BLANK).scatter(1, order, symbols)
    asked = torch.cat([tokens, torch.full((batch, L), ANSWER)], 1)
    return asked, torch.cat([torch.full_like(tokens, -1), symbols], 1)


def _recall(L, batch, generator):
    keys = torch.rand(batch, SYMBOLS**2, generator=generator).argsort(1)[:, :L]
    values = torch.randint(SYMBOLS, (batch, L), generator=generator)
    order = torch.rand(batch, L, generator=generator).argsort(1)

    def spelled(found):
        return torch.stack([found // SYMBOLS, found % SYMBOLS], -1)

    told = torch.cat([spelled(keys), values[..., None]], -1).flatten(1)
    asked = spelled(keys.gather(1, order))
    mark = torch.full((batch, L, 1), ANSWER)
    tokens = torch.cat([told, torch.cat([asked, mark], -1).flatten(1)], 1)
    answers = torch.full_like(tokens, -1)
    answers[:, 3 * L + 2 :: 3] = values.gather(1, order)
    return tokens, answers


class RotatingSSM(nn.Module):
    """The control: a diagonal selective recurrence whose complex state the token may turn.

    h_i = exp(-Delta_i + i theta_i) h_{i-1} + B x_i, y_i = Re(C h_i), N states, Delta_i >= 0
    and theta_i linear in x_i. x (..., n, d) -> (..., n, d).
    """

    def __init__(self, d: int, *, N: int, generator: torch.Generator | None = None):
        super().__init__()
        self.write = nn.Parameter(torch.randn(2, N, d, generator=generator) / d**0.5)
        self.read = nn.Parameter(torch.randn(2, d, N, generator=generator) / N**0.5)
        self.turn = nn.Parameter(torch.randn(N, d, generator=generator) / d**0.5)
        self.decay = nn.Parameter(torch.randn(N, d, generator=generator) / d**0.5)
        self.shift = nn.Parameter(torch.full((N,), -4.0))

    def forward(self, x: Tensor) -> Tensor:
        log_a = torch.complex(-nn.functional.softplus(x @ self.decay.mT + self.shift), x @ self.turn.mT)
        written = x.to(log_a.dtype) @ torch.complex(*self.write).mT
        states, _ = diagonal_scan(log_a.exp(), written)
        return (states @ torch.complex(*self.read).mT).real


class Block(nn.Module):
    """x + mixer(short convolution(norm x)), then x + feed-forward(norm x), as in the models of the field."""

    def __init__(self, mixer: nn.Module, d: int, hidden: int):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(d), nn.LayerNorm(d)])
        self.taps = nn.Conv1d(d, d, 3, groups=d)
        self.mixer = mixer
        self.up, self.down = nn.Linear(d, hidden), nn.Linear(hidden, d)

    def forward(self, x: Tensor) -> Tensor:
        z = nn.functional.pad(self.norms[0](x).mT, (2, 0))
        x = x + self.mixer(self.taps(z).mT)
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))


def build(
    model: str, *, d: int = 32, parameters: int = 20_000, longest: int = 256, seed: int = 0
) -> nn.Module:
    """Build a two-layer model on tokens: embedding, two blocks, logits of every symbol at every token.

    Parameters
    ----------
    model : str
        One of ``MODELS``.
    d : int, default 32
        The width.
    parameters : int, default 20,000
        As many as fit into this number, by the width of the feed-forward layers.
    longest : int, default 256
        Attention has a learned bias for each distance up to this beside its content, not
        counted.
    seed : int, default 0
        Of the weights.

    Returns
    -------
    Module
        The model, not trained.

    Raises
    ------
    ValueError
        If the model is unknown.
    """
    check_choice("model", model, MODELS)
    generator = torch.Generator().manual_seed(seed)
    kinds = ("SSD", "attention") if model == "hybrid" else (model, model)
    mixers = [_mixer(kind, d, longest, generator) for kind in kinds]
    return assemble(mixers, d, VOCABULARY, parameters, seed)


def _mixer(kind, d, longest, generator):
    if kind == "attention":
        return Attention(d, d, H=4, head_width=8, bias=torch.zeros(4, longest), generator=generator)
    if kind == "SSD":
        return SSD(d, d, H=4, head_width=16, N=16, generator=generator)
    if kind == "selective SSM":
        return SelectiveSSM(d, N=16, discretization="mixed", generator=generator)
    return RotatingSSM(d, N=16, generator=generator)


def assemble(mixers: Sequence[nn.Module], d: int, vocabulary: int, parameters: int, seed: int) -> nn.Module:
    """Build embedding, a ``Block`` of width d around each mixer, and logits (..., n, vocabulary).

    Parameters
    ----------
    mixers : sequence of Module
        (batch, n, d) to (batch, n, d).
    d : int
        The width.
    vocabulary : int
        How many symbols there are.
    parameters : int
        The feed-forward layers have the largest width with at most this number in all.
    seed : int
        Of the weights around the mixers.

    Returns
    -------
    Module
        The model, not trained.

    Raises
    ------
    ValueError
        If not even a width of 1 fits.
    """

    def with_width(hidden):
        blocks = [Block(mixer, d, hidden) for mixer in mixers]
        return nn.Sequential(nn.Embedding(vocabulary, d), *blocks, nn.LayerNorm(d), nn.Linear(d, vocabulary))

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        least = count_parameters(with_width(1))
        hidden = 1 + (parameters - least) // (len(mixers) * (2 * d + 1))
        if hidden < 1:
            raise ValueError(f"parameters must be at least {least} for these layers; got {parameters}")
        return with_width(hidden)


def count_parameters(model: nn.Module) -> int:
    """The parameters of a model, its table of distances aside."""
    return sum(each.numel() for name, each in model.named_parameters() if not name.endswith("mixer.bias"))


def accuracy(model: nn.Module, task: str, L: int) -> float:
    """The share of answers that are right on 256 fresh sequences; NaN of a model that has diverged."""
    tokens, answers = draw(task, L, 256, generator=torch.Generator().manual_seed(10_001))
    with torch.no_grad():
        logits = model(tokens)[..., :SYMBOLS]
    if not bool(logits.isfinite().all()):
        return float("nan")
    said, asked = logits.argmax(-1), answers >= 0
    return float((said == answers)[asked].double().mean())


def train(
    model: nn.Module,
    task: str,
    L: int,
    *,
    steps: int,
    batch: int = 32,
    rate: float = 3e-3,
    seed: int = 0,
    shuffled: bool = False,
) -> float:
    """Train by AdamW with warm-up and cosine decay on fresh sequences, in place; returns the final loss.

    Parameters
    ----------
    model : Module
        Tokens (batch, n) to logits, trained in place.
    task, L : str and int
        As for `draw`.
    steps : int
        How many batches.
    batch : int, default 32
        Of how many sequences.
    rate : float, default 3e-3
        The largest learning rate.
    seed : int, default 0
        Of the sequences.
    shuffled : bool, default False
        Each sequence is given the answers of another: a control that nothing can learn.

    Returns
    -------
    float
        The mean of the last tenth of the losses, NaN where training diverged.
    """
    generator = torch.Generator().manual_seed(seed)

    def loss():
        tokens, answers = draw(task, L, batch, generator=generator)
        answers = answers.roll(1, 0) if shuffled else answers
        return nn.functional.cross_entropy(model(tokens).flatten(0, 1), answers.flatten(), ignore_index=-1)

    losses = [float(each) for each in descend(model, loss, steps=steps, rate=rate)]
    tail = losses[-max(1, steps // 10) :]
    return sum(tail) / len(tail) if tail else float("nan")


def jobs(given: dict) -> dict:
    """One job for each task, length and model, the controls first, and one with shuffled answers."""
    found = {"controls": partial(_controls, given)}
    first = [(task, lengths[0]) for task, lengths in given["lengths"].items()]
    others = [(task, L) for task, lengths in given["lengths"].items() for L in lengths[1:]]
    for sizes, shuffled in ((first, False), (first, True), (others, False)):
        for (task, L), model in product(sizes, given["models"]):
            name = f"{task} {L}, {model}{', shuffled' if shuffled else ''}"
            found[name] = partial(_one, given, task, L, model, shuffled)
    return found


def _model(given, model, seed):
    return build(model, d=given["d"], parameters=given["parameters"], seed=seed)


def _one(given, task, L, model, shuffled):
    """Final losses by seed, and right answers by length tested and seed; of the control one seed."""
    tested = [L // 2, L, 2 * L, 4 * L]
    losses, right = [], []
    for seed in range(1 if shuffled else given["seeds"]):
        net = _model(given, model, seed)
        how = {"steps": given["steps"], "batch": given["batch"], "seed": seed, "shuffled": shuffled}
        losses.append(train(net, task, L, **how))
        right.append([accuracy(net, task, length) for length in tested])
    return {
        "task": task, "L": L, "model": model, "shuffled": shuffled, "loss": losses, "tested": tested,
        "right": list(zip(*right, strict=True)),
    }  # fmt: skip


def _controls(given):
    """Parameter counts, the accuracy of untrained models, and that of guessing."""
    found = {"parameters": {}, "untrained": {}, "guessing": {}}
    for model in given["models"]:
        net = _model(given, model, 0)
        found["parameters"][model] = count_parameters(net)
        found["untrained"][model] = {
            task: accuracy(net, task, lengths[0]) for task, lengths in given["lengths"].items()
        }
    for task in given["lengths"]:
        found["guessing"][task] = 1 / {"rotation": TURNS, "permutations": len(ORDERS)}.get(task, SYMBOLS)
    return found
