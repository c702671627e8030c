"""What the processes of a group tell each other, each time by one all-gather of a fixed size."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

NOTE = 512  # bytes


def exchange(name: str, tensors: list[Tensor], group) -> list[list[Tensor]]:
    """The tensors of every process, in the order of the processes: in double precision, of one shape each."""
    numbers = [t.resolve_conj().flatten().view(torch.float64) for t in tensors]
    pieces = [m.split([t.numel() for t in numbers]) for m in _gathered(name, torch.cat(numbers), group)]
    return [  # cloned, for complex numbers have to begin at an even place
        [p.clone().view(t.dtype).view(t.shape) for p, t in zip(piece, tensors, strict=True)]
        for piece in pieces
    ]


def agree(name: str, what: str, problem: Exception | None, asks: bool | None, device, group) -> bool:
    """Whether any process asks for gradients; an error in all of them if they do not fit together.

    ``what`` describes this process's call and has to be the same everywhere; ``problem`` is why it cannot go
    on; ``asks`` is None where gradients are not recorded.
    """
    note = f"{asks}\n{'failed' if problem else 'ready'}\n{problem or what}"
    found = [text.split("\n", 2) for text in _notes(name, note, device, group)]
    if problem:
        raise problem
    for rank, (_, status, text) in enumerate(found):
        if status == "failed":
            raise RuntimeError(f"{name} ended because process {rank} failed: {text}")
        if text != found[0][2]:
            raise ValueError(
                f"{name} must be called alike in all processes; process 0 has {found[0][2]}, "
                f"process {rank} has {text}"
            )
    answers = [asks for asks, _, _ in found]
    if "True" in answers and "None" in answers:
        raise ValueError(
            f"{name} must record gradients in all processes or in none; process {answers.index('True')} "
            f"asks for them, process {answers.index('None')} runs without"
        )
    return "True" in answers


def _notes(name: str, text: str, device, group) -> list[str]:
    data = text.encode()[:NOTE]
    note = torch.tensor(list(data.ljust(NOTE, b"\0")), dtype=torch.uint8, device=device)
    return [bytes(n.tolist()).rstrip(b"\0").decode(errors="replace") for n in _gathered(name, note, group)]


def _gathered(name: str, message: Tensor, group) -> list[Tensor]:
    """The messages of all processes, of one size everywhere."""
    found = [torch.empty_like(message) for _ in range(dist.get_world_size(group))]
    try:
        dist.all_gather(found, message, group=group)
    except RuntimeError as error:
        raise RuntimeError(
            f"{name} got no answer in process {dist.get_rank(group)} of {len(found)}: another process has "
            f"ended, or did not call within the group's timeout ({str(error).splitlines()[0]})"
        ) from error
    return found
