"""Run the benchmark, print its tables, and write ``headsandstates/experiments/measured/<machine>.json``.

Memory is what a user gets: fresh pages for each large result. ``--keep-memory`` asks malloc to keep what
was freed, which hides the price of the pages; it runs the diagonal scan alone, and writes a file of its own.
The kernels on a card: ``python -m benchmarks --device cuda --only diagonal selective``.
"""

from __future__ import annotations

import argparse
import json
import pathlib

import torch

from benchmarks import diagonal, first_call, layers, systems
from benchmarks.timing import machine, measured, steady_memory

SUITES = {
    "diagonal": diagonal.run,
    "routes": systems.routes,
    "selective": layers.selective,
    "ssd": layers.ssd,
    "first call": first_call.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds; nothing is written")
    parser.add_argument("--rounds", type=int, default=11, help="repetitions (median taken)")
    parser.add_argument(
        "--only", choices=sorted(SUITES), nargs="*", help="these suites alone; nothing is written"
    )
    parser.add_argument("--keep-memory", action="store_true", help="freed memory stays with the process")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: no CUDA device is at hand")
    torch.set_num_threads(1)
    about = machine(options.device) | {"memory kept by malloc": options.keep_memory and steady_memory()}
    rounds = 3 if options.quick else options.rounds
    print(
        f"{about['processor']}, {about['threads']} thread, torch {about['torch']}: medians of {rounds} rounds"
    )
    results = {}
    for name in options.only or (["diagonal"] if options.keep_memory else SUITES):
        results[name], tables = SUITES[name](options.device, rounds, options.quick)
        print("\n".join(tables), flush=True)
    if options.quick or options.only:
        return
    folder = pathlib.Path(__file__).parents[1] / "headsandstates/experiments/measured"
    path = folder / f"{about['name']}{'-memory-kept' if options.keep_memory else ''}.json"
    record = {"machine": about, "measured": measured(options.device), "rounds": rounds, "results": results}
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"\nwritten: {path.name}")


if __name__ == "__main__":
    main()
