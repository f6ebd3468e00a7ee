"""The bundled trainer's update with and without logits: processor time and memory.

An update is a forward and backward pass of the learner over a batch, as in a training step without
micro-batches. The vocabularies are those of the built-in model, of a small model, and of Qwen2.5.
Each figure comes from a process of its own with one thread: the fastest of several updates in
processor time, and the rise of the resident set during the first. The last column is what the
trainer chooses by itself, by the number of logits.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

RESPONSES, PROMPT, LENGTH = 16, 16, 96
VOCABULARIES = {34: 48, 8_192: 256, 32_000: 256, 151_936: 256}
"""Hidden size by vocabulary."""
REPEATS = 4
WAYS = {"logits": 2**62, "hidden states": 0}
"""The limit of logits that selects each way."""


def make_model(vocabulary: int) -> Any:
    """A random Qwen2 of two layers."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.set_num_threads(1)
    torch.manual_seed(0)
    width = VOCABULARIES[vocabulary]
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        tie_word_embeddings=True,
    )
    return Qwen2ForCausalLM(config).eval()


def make_samples(vocabulary: int) -> Any:
    """A batch of whole responses."""
    import torch

    from grpodoctor.trainer.samples import Samples

    tokens_BL = torch.randint(0, vocabulary, (RESPONSES, PROMPT + LENGTH))
    return Samples(
        tokens_BL=tokens_BL,
        attention_BL=torch.ones_like(tokens_BL, dtype=torch.bool),
        prompt_width=PROMPT,
        logprobs_BT=torch.zeros(RESPONSES, LENGTH),
        truncated_B=torch.zeros(RESPONSES, dtype=torch.bool),
        pad_id=0,
    )


def measure(vocabulary: int, way: str) -> dict[str, float]:
    """Processor seconds and extra bytes of an update."""
    import torch

    from grpodoctor.trainer.model import forward_scores
    from grpodoctor.trainer.model.output_head import output_head
    from tests.benchmarks.bench_entropy import extra_memory
    from tests.benchmarks.bench_hidden import processor_seconds

    forward_scores._MOST_LOGITS = WAYS[way]
    model, samples = make_model(vocabulary), make_samples(vocabulary)
    output_head(model)  # measured once in a run

    def update() -> None:
        output = forward_scores.forward_scores(model, samples, 1.0)
        torch.autograd.backward(output.logprobs_BT.mean())
        model.zero_grad()

    memory = extra_memory(update)
    return {"seconds": min(processor_seconds(update) for _ in range(REPEATS)), "memory": memory}


def compare(console: Console) -> None:
    """Print time and memory by vocabulary."""
    from bench_hidden import in_fresh_process

    from grpodoctor.trainer.model.forward_scores import _MOST_LOGITS

    table = Table(title=f"an update on {RESPONSES} responses of {LENGTH} tokens, float32, 1 thread")
    for heading in ("vocabulary", "logits", "from", "processor time", "extra memory", "chosen"):
        table.add_column(heading, justify="right")
    for vocabulary in track(VOCABULARIES, "updates", console=console, transient=True):
        count = RESPONSES * LENGTH * vocabulary
        for way in WAYS:
            options = ("--vocabulary", str(vocabulary), "--way", way)
            figures = in_fresh_process(*options, program="bench_learner_head")
            table.add_row(
                f"{vocabulary:,}",
                f"{count / 1e6:.1f} M",
                way,
                f"{figures['seconds'] * 1e3:.0f} ms",
                f"{figures['memory'] / 2**20:.0f} MiB",
                "yes" if (count > _MOST_LOGITS) == (way != "logits") else "",
            )
    console.print(table)


def main() -> None:
    """Print the table, or in a child process one set of figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", action="store_true", help="print figures as JSON")
    parser.add_argument("--vocabulary", type=int, choices=VOCABULARIES)
    parser.add_argument("--way", choices=WAYS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.vocabulary, arguments.way)))
    else:
        compare(Console())


if __name__ == "__main__":
    main()
