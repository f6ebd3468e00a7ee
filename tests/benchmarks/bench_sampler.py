"""Tokens per second of the built-in sampler and of `model.generate`, on the same prompts.

128 responses to 16 prompts with the default built-in model, one thread, best of several alternating
rounds. The weights are random and the end token is disabled, so both generate every token.
"""

import os
import time
from collections.abc import Callable

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import GenerationConfig

from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.data.loading import build_task
from grpodoctor.trainer.engines.sampler import sample
from grpodoctor.trainer.model.policy import Policy, load_policy

PROMPTS, GROUP, LENGTH, ROUNDS = 16, 8, 28, 8


class Endless:
    """The policy's tokenizer with an end token that the model cannot generate."""

    def __init__(self, policy: Policy) -> None:
        self.pad_id = policy.tokenizer.pad_id
        self.end_ids = frozenset({policy.tokenizer.vocab_size})


def main() -> None:
    """Print both speeds and their ratio."""
    torch.set_num_threads(1)
    config = load_config({"model": {"warm_start_steps": 0}})
    task = build_task(config.task)
    policy = load_policy(config, task)
    prompts = [policy.tokenizer.encode(each.prompt) for each in task.heldout(PROMPTS)]
    rows = [prompt for prompt in prompts for _ in range(GROUP)]
    contenders = {"grpodoctor": ours(policy, rows), "model.generate": theirs(policy, rows)}
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(ROUNDS):
        for name, run in contenders.items():
            started = time.perf_counter()
            count = run()
            best[name] = min(best[name], time.perf_counter() - started)
            if count != len(rows) * LENGTH:
                raise SystemExit(f"{name} generated {count} tokens")
    for name, seconds in best.items():
        speed = len(rows) * LENGTH / seconds
        print(f"{name:15} {seconds * 1e3:7.1f} ms  {speed:9,.0f} tokens/s")
    ratio = best["model.generate"] / best["grpodoctor"]
    print(f"{len(rows)} responses x {LENGTH} tokens: {ratio:.2f} times as fast as model.generate")


def ours(policy: Policy, rows: list[list[int]]) -> Callable[[], int]:
    """Sample one batch including log-probabilities; returns the number of generated tokens."""

    def run() -> int:
        samples = sample(
            policy.model,
            rows,
            max_length=LENGTH,
            temperature=1.0,
            tokenizer=Endless(policy),
            generator=torch.Generator().manual_seed(0),
        )
        return int(samples.mask_BT.sum())

    return run


def theirs(policy: Policy, rows: list[list[int]]) -> Callable[[], int]:
    """Generate the same batch with transformers, including log-probabilities."""
    width = max(map(len, rows))
    pads = [width - len(row) for row in rows]
    tokens = torch.tensor(
        [[policy.tokenizer.pad_id] * pad + row for pad, row in zip(pads, rows, strict=True)]
    )
    attention = (torch.arange(width) >= torch.tensor(pads).unsqueeze(1)).long()
    settings = GenerationConfig(
        do_sample=True,
        top_k=0,
        max_new_tokens=LENGTH,
        min_new_tokens=LENGTH,
        pad_token_id=policy.tokenizer.pad_id,
        eos_token_id=sorted(policy.tokenizer.end_ids),
        return_dict_in_generate=True,
        output_scores=True,
    )

    def run() -> int:
        result = policy.model.generate(tokens, attention_mask=attention, generation_config=settings)
        policy.model.compute_transition_scores(
            result.sequences, result.scores, normalize_logits=True
        )
        return int(result.sequences[:, width:].numel())

    return run


if __name__ == "__main__":
    main()
