"""The experiment "conformance": what `ssmbook.testing` finds in layers of mambapy and of transformers."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from importlib.metadata import version

import torch
from torch import Tensor, nn

from ssmbook.testing import Conformance, check_layer, check_scan

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "vocab_size": 8}
FULL = {
    "scans": ["mambapy.pscan:pscan"],
    "blocks": ["mambapy.mamba:MambaBlock"],
    "models": {
        "Llama": {"intermediate_size": 32, "num_attention_heads": 2},
        "Mamba": {"state_size": 4},
        "Mamba2": {"state_size": 4, "head_dim": 8, "num_heads": 4, "n_groups": 1, "chunk_size": 32},
    },
    "steps": 1_000_000, "tokens": 10_000,
}  # fmt: skip
SMALL = {"scans": [], "blocks": [], "tokens": 300}  # what transformers brings


class _OneLayer(nn.Module):
    """A model of transformers with one layer, from embeddings to states; its cache is the state."""

    def __init__(self, family: str, sizes: dict):
        super().__init__()
        transformers = import_module("transformers")
        torch.manual_seed(0)
        config = getattr(transformers, f"{family}Config")(**SIZES, **sizes)
        self.model = getattr(transformers, f"{family}Model")(config)
        self.cache = "past_key_values" if family == "Llama" else "cache_params"

    def forward(self, x: Tensor, state=None):
        out = self.model(inputs_embeds=x, use_cache=True, **{self.cache: state})
        return out.last_hidden_state, out[self.cache]


def jobs(given: dict) -> dict:
    """One job for each scan, block and model."""
    found = {address: partial(_scan, address, given["steps"]) for address in given["scans"]}
    found |= {address: partial(_block, address, given["tokens"]) for address in given["blocks"]}
    return found | {
        f"transformers:{family}Model": partial(_model, family, sizes, given["tokens"])
        for family, sizes in given["models"].items()
    }


def _find(address: str):
    """The module and the name of "module:name"."""
    module, _, name = address.partition(":")
    return import_module(module), name


def _numbers(package: str, result: Conformance) -> dict:
    findings = [[f.check, f.outcome, f.why] for f in result.findings]
    return {"package": f"{package} {version(package)}", "findings": findings}


def _scan(address: str, steps: int) -> dict:
    """The scan of mambapy has one dimension more."""
    scan = getattr(*_find(address))
    result = check_scan(lambda a, b: scan(a[..., None], b[..., None])[..., 0], long=steps)
    return _numbers("mambapy", result)


def _block(address: str, tokens: int) -> dict:
    module, name = _find(address)
    torch.manual_seed(0)
    block = getattr(module, name)(module.MambaConfig(d_model=16, n_layers=1))
    return _numbers("mambapy", check_layer(block, 16, long=tokens))


def _model(family: str, sizes: dict, tokens: int) -> dict:
    return _numbers("transformers", check_layer(_OneLayer(family, sizes), 16, long=tokens))
