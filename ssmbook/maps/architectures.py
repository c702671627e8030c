"""One small instance of every architecture, for the chapters and for the tests."""

from __future__ import annotations

import zlib

import torch

from ssmbook import maps
from ssmbook.maps.base import SequenceMap, Sizes


def zoo(
    d: int,
    p: int,
    n: int,
    *,
    H: int = 2,
    head_width: int = 3,
    N: int = 4,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
) -> dict[str, SequenceMap]:
    """One instance of every architecture of the book, by name, family by family.

    Every map has its own generator, seeded by one number from ``generator`` and by the
    map's name, so adding a map changes no other. What stands here is what the files of
    ``ssmbook.maps`` call their ``ZOO``.

    Parameters
    ----------
    d, p : int
        Widths in and out; d alone for maps that keep the width.
    n : int
        The longest sequence, for the learned relative bias.
    H, head_width : int, default 2 and 3
        Of the heads.
    N : int, default 4
        States, an even number.
    generator : torch.Generator, optional
        Where the seed comes from.
    dtype : torch.dtype, default float64
        Of the parameters.
    device : torch.device or str, optional
        Where they are.

    Returns
    -------
    dict of str to SequenceMap
        Each map under its name, in the order of the pages.

    Examples
    --------
    >>> layers, x = zoo(4, 4, 9), torch.randn(9, 4, dtype=torch.float64)
    >>> [layers[name].interaction(x).interaction_rank() for name in ("attention", "SSD", "convolution")]
    [2, 2, 3]
    """
    source = torch.device("cpu") if generator is None else generator.device
    seed = int(torch.randint(2**31, (), generator=generator, device=source))
    device = torch.empty(0, device=device).device  # PyTorch's default for None
    sizes = Sizes(d, p, n, N, {"d": d, "p": p, "H": H, "head_width": head_width})
    layers = {}
    for file in vars(maps).values():
        for name, build in getattr(file, "ZOO", {}).items():
            # On a CPU only the lower 32 bits of a seed count.
            own = torch.Generator(device).manual_seed(seed ^ zlib.crc32(name.encode()))
            layers[name] = build(sizes, {"generator": own, "dtype": dtype, "device": device})
    return layers
