"""Tokens per second of the probe's scoring against the bare forward pass, and its peak of memory.

The bare pass is transformers' model on the same batches with one log-softmax over all its logits
and a gather; a leaner one asks for the logits of the response tokens alone, still of a whole batch
at once. All in float32 with one thread, best of several alternating rounds, in seconds of the
processor's time, which on a quiet machine are the clock's and on a busy one hardly more. The model
is random, with a vocabulary large for its size, as small models have it. Memory is the peak of the
resident set above what it was before, which Linux tells.
"""

from __future__ import annotations

import ctypes
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

import numpy as np
import torch
from contract import Processing, Response
from engine_transformers import load
from hf.engine import model_input, right_padded
from hf.logits import batches
from transformers import Qwen2Config, Qwen2ForCausalLM

VOCABULARY, RESPONSES, ROUNDS, BATCH_TOKENS = 16_384, 24, 4, 2048
Score = Callable[[], list[float]]


def main() -> None:
    """Print speed and memory of each; ends with an error if they differ in what they say."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = save_model(folder)
        engine: Any = load(path, {"threads": 1, "batch_tokens": BATCH_TOKENS})
        model = Qwen2ForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    responses = draw()
    contenders = {
        "grpodoctor": ours(engine, responses),
        "bare forward pass": bare(model, responses, lean=False),
        "the same, lean": bare(model, responses, lean=True),
    }
    told = {name: np.array(run()) for name, run in contenders.items()}
    best, peak = dict.fromkeys(contenders, float("inf")), dict.fromkeys(contenders, 0.0)
    for _ in range(ROUNDS):
        for name, run in contenders.items():
            before, begun = forget_peak(), time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - begun)
            peak[name] = max(peak[name], resident("VmHWM") - before)
    tokens = sum(len(model_input(each)) for each in responses)
    for name, seconds in best.items():
        print(f"{name:18} {tokens / seconds:8,.0f} tokens/s  {peak[name]:6,.0f} MB more at peak")
    for name, values in told.items():
        if np.abs(values - told["grpodoctor"]).max() > 1e-4:
            raise SystemExit(f"{name} says something else")
    for name in ("bare forward pass", "the same, lean"):
        ratio = best[name] / best["grpodoctor"]
        print(f"{len(responses)} responses, {tokens} tokens: {ratio:.2f} times the speed of {name}")


def save_model(folder: str) -> str:
    """A random model of eleven million parameters, four of them in its tied embeddings."""
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=4,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


def draw() -> list[Response]:
    """Responses of 64 to 256 tokens to prompts of 16 to 64."""
    rng = random.Random(0)

    def ids(least: int, most: int) -> list[int]:
        return [rng.randrange(VOCABULARY) for _ in range(rng.randint(least, most))]

    return [Response(ids(16, 64), ids(64, 256)) for _ in range(RESPONSES)]


def ours(engine: Any, responses: list[Response]) -> Score:
    """The program's own way."""

    def run() -> list[float]:
        scored = engine.score(responses, Processing(), ())
        return [logprob for each in scored for logprob in each.logprobs]

    return run


def bare(model: Any, responses: list[Response], *, lean: bool) -> Score:
    """All logits of a batch, or those of its response tokens, and one log-softmax of them."""
    lots = batches([len(model_input(each)) for each in responses], BATCH_TOKENS)

    def run() -> list[float]:
        found: dict[int, list[float]] = {}
        for lot in lots:
            rows = [responses[index] for index in lot]
            lengths = [len(each.response_ids) for each in rows]
            logprobs = torch.split(whole_batch(model, rows, lean=lean), lengths)
            found |= {index: part.tolist() for index, part in zip(lot, logprobs, strict=True)}
        return [logprob for index in sorted(found) for logprob in found[index]]

    return run


@torch.no_grad()
def whole_batch(model: Any, rows: list[Response], *, lean: bool) -> torch.Tensor:
    """Log-probabilities of a batch's response tokens, one after the other."""
    ids_BL, where_N = right_padded(rows)
    targets_N = torch.cat([torch.tensor(each.response_ids) for each in rows])
    if lean:
        logits_NV = model.lm_head(model.model(input_ids=ids_BL)[0].flatten(0, 1)[where_N])
        return torch.log_softmax(logits_NV, dim=-1).gather(1, targets_N[:, None])[:, 0]
    logprobs_BLV = torch.log_softmax(model(input_ids=ids_BL).logits, dim=-1)
    targets_BL = torch.zeros_like(ids_BL).flatten().scatter(0, where_N, targets_N).view_as(ids_BL)
    return logprobs_BLV.gather(2, targets_BL[:, :, None]).flatten()[where_N]


def forget_peak() -> float:
    """Let the peak of the resident set begin anew; returns what is resident, in MB.

    What the allocator keeps of earlier runs is given back first, or it would hide this one's.
    """
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return resident("VmRSS")


def resident(field: str) -> float:
    """A line of the kernel's account of this process, in MB."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
