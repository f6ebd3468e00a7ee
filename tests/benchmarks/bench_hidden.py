"""Log-probability and entropy from hidden states, compared with TRL's chunked head.

All variants run on the same tensors and one thread, in turns in one process, so that other load on
the machine affects them alike; each figure is the fastest of several turns, in processor time. The
yardsticks are the bare matrix products: one forward, and four forward and backward (the products
are formed twice, and each of the two gradients is a product). Memory is measured in a new process
for each, as the rise of the resident set above the tensors.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.progress import track
from rich.table import Table

if TYPE_CHECKING:
    from torch import Tensor

TOKENS, HIDDEN, VOCABULARY = 512, 896, 151_936
"""The hidden size and vocabulary of Qwen2.5-0.5B."""
REPEATS = 5
VARIANTS = {
    "products": "matrix products alone",
    "trl": "TRL, chunked head",
    "grpodoctor": "grpodoctor",
}


class Tensors(NamedTuple):
    hidden: Tensor
    weight: Tensor
    ids: Tensor


def make_tensors(*, gradients: bool) -> Tensors:
    """The same in every process."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    hidden = torch.randn(TOKENS, HIDDEN)
    weight = torch.randn(VOCABULARY, HIDDEN).mul_(0.1)
    ids = torch.randint(0, VOCABULARY, (TOKENS,))
    return Tensors(hidden.requires_grad_(gradients), weight.requires_grad_(gradients), ids)


def scores(variant: str, tensors: Tensors) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy by one of the two functions."""
    if variant == "grpodoctor":
        from grpodoctor.measure.hidden import Head, score_hidden

        return score_hidden(tensors.hidden, Head(tensors.weight), tensors.ids)
    from trl.kernels import ChunkedLogProbFunction
    from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE

    logprobs, entropy, *_ = ChunkedLogProbFunction.apply(
        *tensors[:2],
        None,
        tensors.ids,
        1.0,
        _CHUNKED_LOGPROB_CHUNK_SIZE,
        None,
        1.0,
        ("log_probs", "entropy"),
    )
    return logprobs, entropy


def products(tensors: Tensors, logits: Tensor, *, gradients: bool) -> None:
    """One product, or four if gradients are wanted, into memory that exists already."""
    import torch

    hidden, weight = tensors.hidden.detach(), tensors.weight.detach()
    torch.mm(hidden, weight.t(), out=logits)
    if gradients:
        torch.mm(hidden, weight.t(), out=logits)
        torch.mm(logits, weight)
        torch.mm(logits.t(), hidden)


def call_of(variant: str, tensors: Tensors, *, gradients: bool) -> Callable[[], object]:
    """One forward pass of a variant, with a backward pass if gradients are wanted."""
    import torch

    if variant == "products":
        logits = torch.empty(TOKENS, VOCABULARY)
        return lambda: products(tensors, logits, gradients=gradients)

    def call() -> object:
        logprobs, entropy = scores(variant, tensors)
        if not gradients:
            return logprobs
        loss = logprobs.sum() + 0.01 * entropy.sum()
        return torch.autograd.grad(loss, tensors[:2])

    return call


def processor_seconds(call: Callable[[], object]) -> float:
    """Processor time of one call."""
    started = time.process_time()
    call()
    return time.process_time() - started


def measure_time(*, gradients: bool) -> dict[str, float]:
    """Fastest call of each variant, in seconds."""
    tensors = make_tensors(gradients=gradients)
    calls = {name: call_of(name, tensors, gradients=gradients) for name in VARIANTS}
    turns = [
        {name: processor_seconds(call) for name, call in calls.items()} for _ in range(REPEATS)
    ]
    return {name: min(turn[name] for turn in turns) for name in VARIANTS}


def measure_memory(variant: str, *, gradients: bool) -> dict[str, float]:
    """Extra memory of a variant in bytes, the gradients themselves included."""
    from tests.benchmarks.bench_entropy import extra_memory

    tensors = make_tensors(gradients=gradients)
    return {"memory": extra_memory(call_of(variant, tensors, gradients=gradients))}


def in_fresh_process(*arguments: str, program: str = "bench_hidden") -> dict[str, float]:
    """Run a benchmark as a child."""
    command = [sys.executable, "-m", f"tests.benchmarks.{program}", "--child", *arguments]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=900, env=environment
    )
    return json.loads(done.stdout.splitlines()[-1])


def compare(console: Console) -> None:
    """Print both comparisons."""
    passes = {"forward": [], "forward and backward": ["--gradients"]}
    table = Table(
        title=f"{TOKENS} x {HIDDEN} hidden states, {VOCABULARY:,} entries, float32, one thread",
        caption="goal: at most 1.05 times the products, not slower and not larger than TRL",
    )
    for heading in ("passes", "by", "processor time", "times the products", "extra memory"):
        table.add_column(heading, justify="left" if heading in ("passes", "by") else "right")
    for name in track(passes, "hidden states", console=console, transient=True):
        flags = passes[name]
        seconds = in_fresh_process(*flags)
        for variant, title in VARIANTS.items():
            memory = in_fresh_process(*flags, "--variant", variant)["memory"]
            table.add_row(
                name,
                title,
                f"{seconds[variant]:.2f} s",
                f"{seconds[variant] / seconds['products']:.3f}",
                f"{memory / 2**20:.0f} MiB" if variant != "products" else "",
            )
    console.print(table)


def main() -> None:
    """Print the table, or in a child process one set of figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", action="store_true", help="print figures as JSON")
    parser.add_argument("--variant", choices=VARIANTS, help="measure this variant's memory")
    parser.add_argument("--gradients", action="store_true", help="with the backward pass")
    arguments = parser.parse_args()
    if not arguments.child:
        compare(Console())
    elif arguments.variant:
        print(json.dumps(measure_memory(arguments.variant, gradients=arguments.gradients)))
    else:
        print(json.dumps(measure_time(gradients=arguments.gradients)))


if __name__ == "__main__":
    main()
