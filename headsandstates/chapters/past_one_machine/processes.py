"""Processes that stand for the devices of *scans, deeper*: they exchange numbers by PyTorch's gloo."""

import inspect
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

LOOPBACK = {"linux": "lo", "darwin": "lo0"}  # the network inside this machine; elsewhere gloo finds its own

# What a process does around the function that it gets: join the others, and read and write files.
PROGRAM = """
import sys
import torch
import torch.distributed as dist
from ssmbook.scans import distributed

{function}

rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", store=dist.FileStore(f"{{folder}}/store", size), rank=rank, world_size=size)
torch.save({name}(*torch.load(f"{{folder}}/given-{{rank}}")), f"{{folder}}/found-{{rank}}")
dist.barrier()  # with torch 2.6 the first to leave would wait for the other forever
dist.destroy_process_group()
"""


def run(function: Callable, slices: Sequence[tuple[Tensor, ...]]) -> list[tuple[Tensor, ...]]:
    """Call ``function(*slices[rank])`` in one process for each slice, all at once, and return the answers.

    The function may use ``torch`` and ``distributed`` and nothing else from outside: its text is what the
    processes get. Raises ``RuntimeError`` with what a process wrote if it fails.
    """
    text = textwrap.dedent(inspect.getsource(function))
    program = PROGRAM.format(function=text, name=function.__name__)
    with tempfile.TemporaryDirectory() as folder:
        for rank, given in enumerate(slices):
            torch.save(tuple(t.clone() for t in given), Path(folder, f"given-{rank}"))
        run_together([["-c", program, rank, len(slices), folder] for rank in range(len(slices))])
        return [torch.load(Path(folder, f"found-{rank}")) for rank in range(len(slices))]


def run_together(commands: Sequence[Sequence], seconds: float = 240) -> None:
    """Run several commands of Python at once; all have to end well, and in time."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    if sys.platform in LOOPBACK:
        environment["GLOO_SOCKET_IFNAME"] = LOOPBACK[sys.platform]
    pipe = subprocess.PIPE
    started = [
        subprocess.Popen([sys.executable, *map(str, command)], env=environment, stdout=pipe, stderr=pipe)
        for command in commands
    ]
    try:
        written = [process.communicate(timeout=seconds)[1].decode() for process in started]
    finally:
        for process in started:
            process.kill()
    for process, text in zip(started, written, strict=True):
        if process.returncode:
            raise RuntimeError(f"a process ended with {process.returncode}:\n{text}")
