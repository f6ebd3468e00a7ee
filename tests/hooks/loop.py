"""A small training loop, with or without `Doctor`; run as a program to be killed or starved.

python loop.py RUN_DIR STEPS [--largest-file BYTES]
"""

from __future__ import annotations

import argparse
import hashlib
import resource
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import nn

from grpodoctor.hooks.torch_loop.doctor import Doctor
from grpodoctor.hooks.torch_loop.step import DoctorStep

GROUP, LENGTH, VOCABULARY = 4, 5, 8


def train(
    doctor: Doctor | None,
    steps: int,
    at_step: Callable[[int], object] | None = None,
    rewards_of: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> str:
    """Train a table of logits by policy gradient; returns a hash of its weights.

    Args:
        doctor: the instruments; None to train without them.
        steps: number of steps.
        at_step: called at the start of each step with its number.
        rewards_of: rewards of sampled tokens; the share of even ones by default.
    """
    torch.manual_seed(0)
    table = nn.Parameter(torch.zeros(LENGTH, VOCABULARY))
    optimizer = torch.optim.Adam([table], lr=0.05)
    for number in range(steps):
        if at_step is not None:
            at_step(number)
        with nullcontext() if doctor is None else doctor.step(number) as step:
            one_step(table, optimizer, step, rewards_of or even_share)
    return hashlib.sha256(table.detach().numpy().tobytes()).hexdigest()


def even_share(tokens: torch.Tensor) -> torch.Tensor:
    return (tokens % 2 == 0).float().mean(dim=1)


def one_step(
    table: nn.Parameter,
    optimizer: torch.optim.Optimizer,
    step: DoctorStep | None,
    rewards_of: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    logits = table.expand(8, LENGTH, VOCABULARY)
    sampled = torch.multinomial(logits.softmax(-1).reshape(-1, VOCABULARY), 1)
    tokens = sampled.reshape(8, LENGTH)
    rewards = rewards_of(tokens)
    advantages = torch.nan_to_num(rewards - rewards.mean())
    logprobs = logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
    loss = -(logprobs * advantages[:, None]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step is not None:
        step.rollouts(tokens=tokens, mask=torch.ones_like(tokens), rewards=rewards, groups=GROUP,
                      advantages=advantages, texts=["text"] * 8)  # fmt: skip
        step.logits(logits)
        step.update(loss=loss, grad_norm=table.grad.norm(), learning_rate=0.05)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("steps", type=int)
    parser.add_argument("--largest-file", type=int)
    options = parser.parse_args()
    if options.largest_file:
        limit = options.largest_file
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    with Doctor(options.run_dir) as doctor:
        print(train(doctor, options.steps, lambda step: print(step, flush=True)))


if __name__ == "__main__":
    main()
