"""Train the small Llama of *Which of my heads can go?* on characters and on copying; 60,240 parameters.

    python -m headsandstates.experiments.tiny_llama FILE --steps 3000

Half of each batch is Python's manual, as in *Trained layers*; the rest repeats a segment of random
characters or of text, so that heads that look a copy up are worth having.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

from headsandstates.experiments.language import CHARACTERS, manual
from headsandstates.experiments.results import FOLDER, load_weights, save_weights
from ssmbook._extras import extra
from ssmbook._json import versions

N, ROWS, RATE = 96, 24, 5e-3


def build() -> nn.Module:
    """A Llama with three layers of eight heads in four key–value groups, drawn with seed 0."""
    with extra("lens"):
        from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=CHARACTERS, hidden_size=48, intermediate_size=64, num_hidden_layers=3,
        num_attention_heads=8, num_key_value_heads=4, head_dim=8, max_position_embeddings=512, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def batch(text: Tensor, generator: torch.Generator) -> Tensor:
    """Rows (24, 96) of codes: eight of text, eight repeat random characters and eight a piece of text."""
    starts = torch.randint(len(text) - N, (ROWS,), generator=generator).tolist()
    rows = torch.stack([text[start : start + N] for start in starts])
    for row in range(ROWS // 3, ROWS):
        period = int(torch.randint(4, 49, (1,), generator=generator))
        part = rows[row, :period].clone()
        if row % 2:
            part = torch.randint(CHARACTERS, (period,), generator=generator)
        rows[row] = part.repeat(N // period + 1)[:N]
    return rows


def train(steps: int, device: str) -> nn.Module:
    """The model after so many steps of AdamW with warm-up and decay."""
    model, text, generator = build().to(device), manual().train, torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = RATE * min(1, (step + 1) / 100, 2 * (1 - step / steps))
        rows = batch(text, generator).to(device)
        logits = model(rows, use_cache=False).logits[:, :-1]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1}: {loss.item():.3f} nats", flush=True)
    return model.eval()


def load_trained() -> nn.Module:
    """The model as it comes with the book (kept in float16), in evaluation mode."""
    model = build()
    model.load_state_dict(load_weights(FOLDER / "tiny-llama.safetensors"), strict=False)
    model.tie_weights()
    return model.eval()


def main(arguments: list[str] | None = None) -> None:
    """Train, and keep the weights in float16."""
    parser = argparse.ArgumentParser(prog="python -m headsandstates.experiments.tiny_llama")
    parser.add_argument("file", type=Path)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args(arguments)
    model = train(given.steps, given.device).cpu()
    notes = {
        "command": f"python -m headsandstates.experiments.tiny_llama FILE --steps {given.steps}",
        **versions(),
    }
    save_weights({name: each.half() for name, each in model.named_parameters()}, given.file, notes)


if __name__ == "__main__":
    main()
