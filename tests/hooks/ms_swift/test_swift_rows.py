"""The callback for ms-swift, with the rows that version 4.6.0 logged in a real training.

`test_swift_training.py` repeats that training where ms-swift is installed.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import TrainerControl, TrainerState

import grpodoctor
from grpodoctor.frameworks.ms_swift.metrics import FRAMEWORK
from grpodoctor.hooks.adapter import adapter_for
from grpodoctor.hooks.ms_swift import swift_listener
from grpodoctor.hooks.ms_swift.framework_adapter import SwiftAdapter
from grpodoctor.hooks.ms_swift.plugin import swift_callback
from grpodoctor.hooks.trl.framework_adapter import TrlAdapter
from grpodoctor.treatment.mailbox import Mailbox
from grpodoctor.treatment.requests import Request
from grpodoctor.vocabulary.values import NotApplicable, scalar

ROW = {
    "loss": 0.000438932329416275, "grad_norm": 0.8221765160560608, "learning_rate": 0.005,
    "completions/mean_length": 5.0, "completions/min_length": 1.0, "completions/max_length": 8.0,
    "completions/clipped_ratio": 0.1875, "reward": 0.046875, "reward_std": 0.06358679383993149,
    "frac_reward_zero_std": 0.25, "rewards/Sevens/mean": 0.046875,
    "rewards/Sevens/std": 0.07739239931106567, "entropy/mean": 2.757345676422119,
    "entropy/max": 2.7601094245910645, "entropy/min": 2.749523639678955,
    "kl": 0.012729065492749214, "clip_ratio/low_mean": 0.0, "clip_ratio/low_min": 0.0,
    "clip_ratio/high_mean": 0.0, "clip_ratio/high_max": 0.0, "clip_ratio/region_mean": 0.0,
    "step_time": 0.6820973960057017, "epoch": 0.25,
}  # fmt: skip
SUMMARY = {
    "train_runtime": 6.6252, "train_samples_per_second": 9.66, "train_steps_per_second": 0.604,
    "total_flos": 0.0, "train_loss": 0.0007182517147157341, "epoch": 0.5,
}  # fmt: skip


class Trainer:
    """What the loss of ms-swift 4.6.0 reads at each call."""

    loss_type, epsilon_low, epsilon_high, beta, overlong_filter = "grpo", 0.2, 0.2, 0.04, False


def arguments(folder: Path, **changes: Any) -> Any:
    settings = {
        "output_dir": str(folder), "seed": 42, "beta": 0.04, "epsilon": 0.2, "loss_type": "grpo",
        "scale_rewards": "group", "kl_in_reward": False, "num_iterations": 1,
        "steps_per_generation": 1, "gradient_accumulation_steps": 1, "tuner_type": "full",
        "lora_rank": 8, "use_liger_kernel": False,
    }  # fmt: skip
    return SimpleNamespace(to_dict=lambda: settings | changes, **settings | changes)


def drive(callback: Any, args: Any, steps: int = 3) -> None:
    """Call the callback in the order in which transformers does."""
    state, control = TrainerState(), TrainerControl()
    callback.on_train_begin(args, state, control)
    for _ in range(steps):
        callback.on_step_begin(args, state, control)
        state.global_step += 1
        callback.on_step_end(args, state, control)
        callback.on_log(args, state, control, logs=dict(ROW))
    callback.on_log(args, state, control, logs=dict(SUMMARY))
    callback.on_train_end(args, state, control)


@pytest.fixture(autouse=True)
def version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swift_listener, "package_version", lambda _: "4.6.0")


def test_each_row_is_a_step_with_the_meaning_of_the_keys_in_ms_swift(tmp_path: Path) -> None:
    args = arguments(tmp_path)
    drive(swift_callback(args, Trainer()), args)
    run = grpodoctor.open_run(tmp_path / "grpodoctor")
    records = list(run)
    assert [record.step for record in records] == [1, 2, 3]
    values = records[-1].values
    assert scalar(values["reward/mean"]) == ROW["reward"]
    assert scalar(values["groups/reward_std"]) == ROW["reward_std"]  # the batch's in TRL
    assert scalar(values["length/truncated_rate"]) == 0.1875
    assert scalar(values["kl/reference/k3"]) == ROW["kl"]
    assert isinstance(values["clip/low_rate"], NotApplicable)
    assert run.manifest.framework == "ms-swift"
    assert run.manifest.knobs["overlong"] == "none"


def test_a_request_changes_the_attributes_that_the_loss_reads(tmp_path: Path) -> None:
    args, trainer = arguments(tmp_path), Trainer()
    callback = swift_callback(args, trainer)
    began = callback.on_train_begin

    def begin_and_request(*given: Any, **named: Any) -> None:
        began(*given, **named)
        changes = {"clip_high": 0.28, "kl_coefficient": 0.1, "overlong": "mask"}
        request = Request("r", "apply", treatment_id="t", remedy="test", changes=changes)
        Mailbox(tmp_path / "grpodoctor").send(request)

    callback.on_train_begin = begin_and_request
    drive(callback, args)
    assert (trainer.epsilon_low, trainer.epsilon_high, trainer.beta) == (0.2, 0.28, 0.1)
    assert trainer.overlong_filter is True
    (record, *_) = list(grpodoctor.open_run(tmp_path / "grpodoctor"))
    assert record.knobs["clip_high"] == 0.28


@pytest.mark.parametrize(
    ("changes", "attributes", "absent"),
    [
        ({"use_liger_kernel": True}, {}, ("clip_low", "clip_high", "kl_coefficient", "overlong")),
        ({}, {"loss_type": "cispo"}, ("clip_low", "clip_high")),
        ({}, {"beta": 0.0}, ("kl_coefficient",)),
    ],
)
def test_a_knob_without_effect_cannot_be_changed(
    tmp_path: Path, changes: Any, attributes: Any, absent: Any
) -> None:
    args = arguments(tmp_path, **changes)
    trainer = type("Other", (Trainer,), attributes)()
    callback = swift_callback(args, trainer)
    drive(callback, args)
    changeable = callback._listener._hook.knobs.changeable()
    assert not changeable.keys() & set(absent)


def test_another_version_is_one_line_and_its_attributes_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(swift_listener, "package_version", lambda _: "5.0.0")
    args = arguments(tmp_path)
    callback = swift_callback(args, Trainer())
    drive(callback, args)
    lines = [each.getMessage() for each in caplog.records if "5.0.0" in each.getMessage()]
    assert lines == [
        "not recorded: metrics that this version renamed (ms-swift 5.0.0 is not among the verified "
        "versions 4.6.0)"
    ]
    assert not callback._listener._hook.knobs.changeable()


@pytest.mark.parametrize(
    ("settings", "rank"),
    [({"tuner_type": "lora"}, 8), ({"tuner_type": "full"}, 0), ({"train_type": "full"}, 0),
     ({"tuner_type": "vera"}, None), ({}, 8)],
)  # fmt: skip
def test_the_rank_of_an_adapter_counts_only_if_there_is_one(
    settings: dict[str, str], rank: int | None
) -> None:
    assert FRAMEWORK.knobs.read_facts({"lora_rank": 8, **settings}).get("lora_rank") == rank


def test_a_trainer_of_ms_swift_is_not_taken_for_one_of_trl() -> None:
    plain = type("GRPOTrainer", (), {"__module__": "trl.trainer.grpo_trainer"})
    swift = type("GRPOTrainer", (plain,), {"__module__": "swift.rlhf_trainers.grpo_trainer"})
    assert adapter_for(swift()) is SwiftAdapter
    assert adapter_for(plain()) is TrlAdapter


def test_arguments_without_a_directory_stop_nothing(caplog: pytest.LogCaptureFixture) -> None:
    callback = swift_callback(SimpleNamespace(), Trainer())
    drive(callback, SimpleNamespace())
    assert "grpodoctor does not record this training" in caplog.text
