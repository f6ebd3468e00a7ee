"""The hook for slime, with the calls of its commit 624b824a (after v0.3.1).

`log_rollout_data` calls the function with (rollout_id, args, samples, rollout_extra_metrics,
rollout_time) and `log_eval_rollout_data` with (rollout_id, args, data, extra_metrics). A sample has
the fields of `slime.utils.types.Sample`.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import grpodoctor
from grpodoctor.hooks.slime import rollout_log
from grpodoctor.vocabulary.values import scalar


class Status(Enum):
    COMPLETED = "completed"
    TRUNCATED = "truncated"


@dataclass
class Sample:
    group_index: int | None
    tokens: list[int]
    response_length: int
    reward: Any
    prompt: Any = "1+1="
    response: str = "2"
    label: str | None = "2"
    loss_mask: list[int] | None = None
    rollout_log_probs: list[float] | None = None
    status: Status = Status.COMPLETED
    metadata: dict[str, Any] = field(default_factory=dict)

    def get_reward_value(self, args: Any) -> float:
        return self.reward if not args.reward_key else self.reward[args.reward_key]


@pytest.fixture(autouse=True)
def fresh_process() -> Iterator[None]:
    yield
    for recorder in rollout_log._recorders:
        if recorder is not None:
            recorder.hook.close()
    rollout_log._recorders.clear()


def arguments(folder: Path, **changes: Any) -> Namespace:
    settings = {"save": str(folder), "reward_key": None, "seed": 1234, "hf_checkpoint": "tiny",
                "n_samples_per_prompt": 2, "rollout_batch_size": 2, "eps_clip": 0.2,
                "eps_clip_high": 0.28}  # fmt: skip
    return Namespace(**settings | changes)


def samples() -> list[Sample]:
    message = [{"role": "user", "content": "2+2="}]
    return [
        Sample(0, [9, 9, 1, 2, 3], 3, 1.0, rollout_log_probs=[-0.1, -0.2, -0.3]),
        Sample(0, [9, 9, 4, 5], 2, 0.0, rollout_log_probs=[-1.0, -2.0], status=Status.TRUNCATED),
        Sample(1, [9, 1, 2, 3, 4], 4, 1.0, message, loss_mask=[1, 0, 0, 1],
               rollout_log_probs=[-0.5, 0.0, 0.0, -0.5]),
        Sample(1, [9, 7], 1, 1.0, message, rollout_log_probs=[-0.25]),
    ]  # fmt: skip


def test_the_samples_of_each_rollout_are_a_step(tmp_path: Path) -> None:
    args = arguments(tmp_path)
    for rollout in range(3):
        assert rollout_log.log_rollout(rollout, args, samples(), {"any": 1}, 12.5) is False
    rollout_log._recorders[0].hook.close()
    run = grpodoctor.open_run(tmp_path / "grpodoctor")
    records = list(run)
    assert [record.step for record in records] == [0, 1, 2]
    values = records[1].values
    assert scalar(values["reward/mean"]) == 0.75
    assert scalar(values["groups/zero_variance_rate"]) == 0.5
    assert scalar(values["length/mean"]) == (3 + 2 + 2 + 1) / 4  # without the tool's tokens
    assert scalar(values["length/truncated_rate"]) == 0.25
    assert scalar(values["time/rollout"]) == 12.5
    rows = run.rollouts(1).to_pylist()
    assert [row["prompt"] for row in rows] == ["1+1=", "1+1=", "2+2=", "2+2="]
    assert [row["truncated"] for row in rows] == [False, True, False, False]
    assert run.manifest.knobs["group_size"] == 2
    assert run.manifest.knobs["clip_high"] == 0.28


def test_named_rewards_are_components(tmp_path: Path) -> None:
    args = arguments(tmp_path, reward_key="score")
    named = samples()
    for place, each in enumerate(named):
        each.reward = {"score": float(place), "format": 1.0, "note": "text"}
    rollout_log.log_rollout(0, args, named, None, 1.0)
    rollout_log._recorders[0].hook.close()
    (record,) = list(grpodoctor.open_run(tmp_path / "grpodoctor"))
    assert scalar(record.values["reward/mean"]) == 1.5
    assert scalar(record.values["reward/component/format/mean"]) == 1.0
    assert "reward/component/note/mean" not in record.values


def test_an_evaluation_belongs_to_the_next_recorded_rollout(tmp_path: Path) -> None:
    args = arguments(tmp_path)
    data = {"gsm8k": {"rewards": [1.0, 0.0, 0.0, 0.0], "truncated": [0, 0, 0, 0]}}
    rollout_log.log_rollout(0, args, samples(), None, 1.0)
    assert rollout_log.log_evaluation(0, args, data, None) is False
    rollout_log.log_rollout(1, args, samples(), None, 1.0)
    rollout_log._recorders[0].hook.close()
    first, second = list(grpodoctor.open_run(tmp_path / "grpodoctor"))
    heldout = [name for name in second.values if name.startswith("reward/heldout")]
    assert [scalar(second.values[name]) for name in heldout] == [0.25]
    assert not any(name.startswith("reward/heldout") for name in first.values)


def test_damaged_samples_stop_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    args = arguments(tmp_path)
    for rollout in range(2):
        assert rollout_log.log_rollout(rollout, args, [object()], None, 3.0) is False
    rollout_log._recorders[0].hook.close()
    assert caplog.text.count("samples failed and is off from now on") == 1
    records = list(grpodoctor.open_run(tmp_path / "grpodoctor"))
    assert [scalar(record.values["time/rollout"]) for record in records] == [3.0, 3.0]


def test_arguments_that_cannot_be_read_stop_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert rollout_log.log_rollout(0, Namespace(save=3), samples(), None, 1.0) is False
    assert rollout_log.log_evaluation(0, Namespace(save=3), {}, None) is False
    assert caplog.text.count("grpodoctor failed and is off from now on") == 1
