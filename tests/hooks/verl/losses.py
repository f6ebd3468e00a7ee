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
from unittest.mock import MagicMock

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


def without_servers() -> None:
    """verl's trainer modules import packages that only its data loading and servers use."""
    absent = ("torchdata", "torchdata.stateful_dataloader", "cachetools", "fastapi",
              "transfer_queue")  # fmt: skip
    sys.modules |= {name: MagicMock(name=name) for name in absent}


def batch(seed: int) -> Any:
    """Six responses to two prompts, of different lengths, as verl's trainer holds them."""
    import numpy as np
    from verl import DataProto

    random = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([9, 5, 9, 2, 7, 9])
    mask = (torch.arange(9)[None] < lengths[:, None]).long()
    rewards = torch.zeros(6, 9)
    rewards[torch.arange(6), lengths - 1] = torch.rand(6, generator=random).round(decimals=1)
    learner = -torch.rand(6, 9, generator=random)
    sampler = learner + 0.01 * torch.randn(6, 9, generator=random)
    logprobs = {"old_log_probs": learner, "rollout_log_probs": sampler}
    prompts = torch.tensor([[0, 5, 6], [0, 5, 7]])[[0, 0, 1, 1, 1, 0]]
    return DataProto.from_dict(
        {"token_level_rewards": rewards, "response_mask": mask, "prompts": prompts, **logprobs},
        {"uid": np.array(["b", "b", "a", "a", "a", "b"], dtype=object)},
    )


def estimators() -> list[str]:
    """Those of verl that the plugin observes."""
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

    prefix = "grpodoctor_"
    return [name.removeprefix(prefix) for name in ADV_ESTIMATOR_REGISTRY if name.startswith(prefix)]


def advantages() -> object:
    """The advantages of each estimator and its variant, through both of verl's trainers."""
    without_servers()
    from verl.trainer.config import AlgoConfig
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY
    from verl.trainer.ppo.ray_trainer import compute_advantage
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

    settings, results = AlgoConfig(gamma=0.9), {}
    for name in estimators():
        for way in ("v0", "v1"):
            pair = []
            for variant in (name, f"grpodoctor_{name}"):
                data = batch(0)
                if way == "v0":
                    compute_advantage(data, variant, gamma=0.9, num_repeat=3, config=settings)
                else:
                    keys = [
                        f"{uid}_{row}_0" for row, uid in enumerate(data.non_tensor_batch["uid"])
                    ]
                    data = compute_advantage_for_multi_trajectories(
                        data, keys, variant, gamma=0.9, num_repeat=3, config=settings
                    )
                parts = (data.batch["advantages"], data.batch["returns"])
                pair.append([part.numpy().tobytes().hex() for part in parts])
            results[f"{name} {way}"] = pair
    return {"results": results, "all": sorted(ADV_ESTIMATOR_REGISTRY)}


def driver(estimator: str, resumed: str) -> object:
    """Three steps of verl's driver with its callback; the second repeats a prompt, and is saved."""
    import verl

    without_servers()
    from hydra import compose, initialize_config_dir
    from verl.trainer.ppo.checkpoint_callback import build_checkpoint_callback
    from verl.trainer.ppo.ray_trainer import compute_advantage

    folder = str(Path(verl.__file__).parent / "trainer" / "config")
    checkpoints = Path.cwd() / "checkpoints"
    step = int(resumed)
    if step:
        (checkpoints / f"global_step_{step}").mkdir(parents=True)
        (checkpoints / "latest_checkpointed_iteration.txt").write_text(resumed)
    with initialize_config_dir(folder, version_base=None):
        config = compose(
            "ppo_trainer",
            overrides=[
                f"trainer.default_local_dir={checkpoints}",
                "trainer.checkpoint_callback_class="
                "grpodoctor.hooks.verl.checkpoint_callback.RecordCheckpoints",
                f"algorithm.adv_estimator={estimator}",
                "actor_rollout_ref.model.path=/models/tiny",
            ],
        )
    callback = build_checkpoint_callback(config)
    rewards = []
    for number in range(step + 1, step + 4):
        data = batch(number)
        if number == step + 2:
            data.batch["prompts"] = data.batch["prompts"][:1].expand(6, 3)
        rewards.append(float(data.batch["token_level_rewards"].sum() / 6))
        compute_advantage(data, estimator, num_repeat=3, config=config.algorithm)
        if number == step + 2:
            callback.on_save(
                trainer=None, global_step=number, checkpoint_dir=f"x/{number}", async_save=False
            )
    return rewards


def failing_driver() -> object:
    """A recorder that fails, and a callback without a configuration."""
    from grpodoctor.hooks.verl import driver_recorder
    from grpodoctor.hooks.verl.checkpoint_callback import RecordCheckpoints

    def failing(*_: Any) -> Any:
        raise RuntimeError("planted")

    driver_recorder.advantage_readings = failing
    callback = RecordCheckpoints(config=None)
    results = advantages()
    callback.on_save(trainer=None, global_step=1, checkpoint_dir="x", later="argument")
    return results


def main() -> None:
    """Run the task that the first argument names."""
    task, *arguments = sys.argv[1:]
    tasks = {"compare": compare, "train": train, "fail": fail, "ranks": ranks,
        "advantages": advantages, "driver": driver, "failing_driver": failing_driver}  # fmt: skip
    print(json.dumps(tasks[task](*arguments)))


if __name__ == "__main__":
    main()
