"""Builds verl's configuration with overrides, in the environment that has verl.

Reads a JSON object of lists of overrides by name, and prints one of error messages by name, empty
where verl accepted them. Run by path: this environment does not have the package.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")


def main() -> None:
    """Check each list of overrides."""
    import verl
    from hydra import initialize_config_dir

    folder = str(Path(verl.__file__).parent / "trainer" / "config")
    with initialize_config_dir(folder, version_base=None):
        errors = {name: check(overrides) for name, overrides in json.load(sys.stdin).items()}
    print(json.dumps(errors))


def check(overrides: list[str]) -> str:
    """The error of verl; empty if it accepts the overrides."""
    try:
        build(overrides)
    except Exception as error:  # noqa: BLE001 - any error of verl is the result
        return f"{type(error).__name__}: {error}"[:400]
    return ""


def build(overrides: list[str]) -> None:
    """Compose the configuration, build its dataclasses, and construct the reward manager."""
    from hydra import compose
    from verl.utils.config import omega_conf_to_dataclass

    is_megatron = any("megatron" in override for override in overrides)
    config = compose(
        "ppo_megatron_trainer" if is_megatron else "ppo_trainer",
        overrides=[
            "actor_rollout_ref.rollout.name=vllm",
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
            *overrides,
        ],
    )
    for section in (
        config.algorithm,
        config.actor_rollout_ref.actor,
        config.actor_rollout_ref.rollout,
    ):
        omega_conf_to_dataclass(section)
    check_loss(config)
    construct_reward_manager(config)


def check_loss(config: Any) -> None:
    """Look up the loss and the advantage estimator."""
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn

    get_policy_loss_fn(config.actor_rollout_ref.actor.policy_loss.loss_mode)
    if config.algorithm.adv_estimator != "gae":  # not in the registry of group estimators
        get_adv_estimator_fn(config.algorithm.adv_estimator)


def construct_reward_manager(config: Any) -> None:
    """Construct the reward manager, which asserts what it needs."""
    from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls

    manager = get_reward_manager_cls(config.reward.reward_manager.name)
    manager(config, tokenizer=None, compute_score=lambda **_: 1.0)


if __name__ == "__main__":
    main()
