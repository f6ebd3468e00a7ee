"""Settings that a console log contains between the lines of other processes."""

from __future__ import annotations

from pathlib import Path
from pprint import pformat

import pytest

from grpodoctor.frameworks.complete_config import complete_config
from grpodoctor.frameworks.registry import configurable_framework_named
from grpodoctor.vocabulary.knobs import Setting
from tests.runs.log_formats.console_text import settings_of

PRINTED = pformat(
    {
        "actor_rollout_ref": {
            "actor": {"clip_mode": "token", "dtype": "bf16", "engine": "fsdp2", "kl_loss": "k3",
                      "loss_agg_mode": "token-mean", "optim": {"kind": "a", "name": "b"},
                      "strategy": "fsdp"},
            "rollout": {"dtype": "bf16", "mode": "async", "n": 4, "name": "vllm",
                        "val_kwargs": {"kind": "greedy", "n": 1}},
        },
        "reward": {
            "custom_reward_function": {"name": "compute_score", "path": "reward.py"},
            "manager": {"kind": "naive", "module": "verl.workers"},
            "reward_model": {"kind": "none", "path": "", "rollout": {"n": 1, "name": "???"}},
        },
    },
    width=60,
)  # fmt: skip
LINES = PRINTED.split("\n")
BREAK = next(number for number, line in enumerate(LINES) if "'optim'" in line) + 1
INTERRUPTED = "".join(
    f"(TaskRunner pid=1) {line}\n"
    for line in (*LINES[:BREAK], "WARNING: the register center is not ready", *LINES[BREAK:])
)


def test_the_rest_of_an_interrupted_dict_keeps_its_outer_keys(tmp_path: Path) -> None:
    config = settings_of(INTERRUPTED, tmp_path)
    assert config["actor_rollout_ref.rollout.n"] == 4
    assert config["actor_rollout_ref.rollout.val_kwargs.n"] == 1
    assert config["reward.reward_model.rollout.n"] == 1


def test_an_entry_in_an_unknown_column_is_left_out(tmp_path: Path) -> None:
    moved = INTERRUPTED.replace(" 'rollout': {'dtype'", "     'rollout': {'dtype'")
    config = settings_of(moved, tmp_path)
    assert "actor_rollout_ref.rollout.n" not in config
    assert config["reward.reward_model.rollout.n"] == 1


@pytest.mark.parametrize(("count", "is_known"), [(80, False), (3, True)])
def test_a_default_is_uncertain_where_a_whole_config_lacks_its_section(
    count: int, is_known: bool
) -> None:
    """A short list of overrides leaves out what has its default; a printed config does not."""
    settings: dict[str, Setting] = {"algorithm.adv_estimator": "grpo"}
    settings |= {f"actor_rollout_ref.actor.option_{number}": 1 for number in range(count)}
    framework = configurable_framework_named("verl")
    knobs = framework.knobs.read(settings)
    known = complete_config("verl", settings, knobs)
    assert ("group_size" in known.defaults) is is_known
    assert "clip_high" in known.defaults
