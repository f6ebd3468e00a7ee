"""Drives the losses that verl has and those that the plugin registers, and prints what they return.

Run by path in the environment that has verl, because importing verl takes seconds.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import torch
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.utils.metric import AggregationType, Metric
from verl.workers.config import ActorConfig, PolicyLossConfig

AGGREGATIONS = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean",
                "seq-mean-token-sum-norm")  # fmt: skip
LOSSES = ("vanilla", "gspo", "sapo", "gpg", "clip_cov", "kl_cov", "geo_mean", "cispo", "dppo_tv",
          "dppo_kl", "dro")  # fmt: skip


def config(mode: str, aggregation: str = "token-mean", **changes: Any) -> ActorConfig:
    loss = PolicyLossConfig(loss_mode=mode, dro_beta=0.1)
    actor = ActorConfig(strategy="fsdp", rollout_n=4, ppo_micro_batch_size_per_gpu=4,
        policy_loss=loss, loss_agg_mode=aggregation, **changes)  # fmt: skip
    actor.global_batch_info.update(dp_size=1, batch_num_tokens=None, global_batch_size=8)
    return actor


def tokens(seed: int, width: int = 12) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    old = -torch.rand(4, width, generator=random)
    advantages = torch.tensor([1.0, -1.0, 0.5, -0.5])[:, None].expand(4, width)
    mask = torch.arange(width)[None] < torch.tensor([width, 5, 8, 3])[:, None]
    return {
        "old_log_prob": old,
        "log_prob": (old + 0.6 * torch.randn(4, width, generator=random)).requires_grad_(),
        "advantages": advantages,
        "response_mask": mask,
    }


def call(name: str, actor: ActorConfig, seed: int = 0, width: int = 12) -> dict[str, Any]:
    torch.manual_seed(0)  # clip_cov and kl_cov draw tokens
    arguments = tokens(seed, width)
    loss, metrics = get_policy_loss_fn(name)(
        **arguments, loss_agg_mode=actor.loss_agg_mode, config=actor, rollout_is_weights=None
    )
    loss.backward()
    joined = Metric.from_dict(metrics, aggregation=AggregationType.MEAN)  # as in verl's ppo_loss
    metrics = {key: metric.aggregate() for key, metric in joined.items()}
    return {
        "loss": loss.detach().numpy().tobytes().hex(),
        "gradient": arguments["log_prob"].grad.numpy().tobytes().hex(),
        "metrics": {k: None if math.isnan(v) else float(v) for k, v in metrics.items()},
        "tokens": int(arguments["response_mask"].sum()),
        "random": torch.rand(1).item(),
    }


def compare() -> object:
    """Each loss alone and observed, in each aggregation."""
    return {
        f"{mode} {aggregation}": [
            call(name, config(name, aggregation)) for name in (mode, f"grpodoctor_{mode}")
        ]
        for mode in LOSSES
        for aggregation in AGGREGATIONS
    }


def train(mode: str) -> object:
    """Three steps of two updates of two micro-batches; a request arrives after the first step."""
    from grpodoctor.treatment.mailbox import Mailbox
    from grpodoctor.treatment.requests import Request

    actor = config(f"grpodoctor_{mode}")
    results = []
    for step in range(3):
        results += [
            call(f"grpodoctor_{mode}", actor, seed=10 * step + call_number, width=12 - call_number)
            for call_number in range(4)
        ]
        if step == 0:
            request = Request("1", "apply", "t", "clip-higher", {"clip_high": 0.5})
            Mailbox(Path(os.environ["GRPODOCTOR_VERL_RUN_DIR"])).send(request)
    changed = config(mode, clip_ratio_high=0.5)
    return {
        "results": results,
        "unchanged": actor.clip_ratio_high,
        "expected": [call(mode, changed, seed=20 + n, width=12 - n) for n in range(4)],
    }


def fail() -> object:
    """A recorder that fails at the second call, while the first step is recorded."""
    from grpodoctor.hooks.verl import loss_recorder

    actor, original, calls = config("grpodoctor"), loss_recorder.micro_batch_of, []

    def failing(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("planted")
        return original(*args)

    loss_recorder.micro_batch_of = failing
    return {
        "results": [call("grpodoctor", actor, seed=seed) for seed in range(6)],
        "expected": [call("vanilla", actor, seed=seed) for seed in range(6)],
        "calls": len(calls),
    }


def ranks() -> object:
    """Eight steps on two ranks; a request arrives after the second."""
    from grpodoctor.treatment.mailbox import Mailbox
    from grpodoctor.treatment.requests import Request

    torch.distributed.init_process_group("gloo")
    actor, rank, bounds = config("grpodoctor"), torch.distributed.get_rank(), []
    actor.global_batch_info.update(dp_size=2, batch_num_tokens=56)
    for step in range(8):
        metrics = call("grpodoctor", actor, seed=2 * step + rank)["metrics"]
        bounds.append(metrics["actor/grpodoctor/clip_high"])
        if step == 1 and rank == 0:
            request = Request("1", "apply", "t", "clip-higher", {"clip_high": 0.5})
            Mailbox(Path(os.environ["GRPODOCTOR_VERL_RUN_DIR"])).send(request)
        torch.distributed.all_reduce(torch.ones(1))  # ranks exchange gradients here
    return bounds


def main() -> None:
    """Run the task that the first argument names."""
    task, *arguments = sys.argv[1:]
    tasks = {"compare": compare, "train": train, "fail": fail, "ranks": ranks}
    print(json.dumps(tasks[task](*arguments)))


if __name__ == "__main__":
    main()
