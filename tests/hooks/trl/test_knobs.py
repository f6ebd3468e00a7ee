"""Every live knob, by its effect in TRL.

A knob that is set before the first step must give the weights of a training that was configured
with this setting, to the bit, and other weights than without the change.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import grpodoctor
from grpodoctor.treatment.mailbox import Mailbox
from grpodoctor.treatment.requests import Request
from tests.hooks.trl.conftest import share_of_sevens
from tests.hooks.trl.trained_weights import weights
from tests.samples import sampled

pytestmark = pytest.mark.filterwarnings("ignore")

MakeTrainer = Callable[..., Any]
Case = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
"""Settings of the trainer, the change in canonical knobs, and the settings that it stands for."""


def share_of_ones(completions: list[str], **_: Any) -> list[float]:
    return [text.count("1") / 8 for text in completions]


REUSED = {"num_iterations": 3, "learning_rate": 5e-2, "max_steps": 6}
CASES: dict[str, Case] = {
    "clip bounds": (REUSED, {"clip_low": 0.05, "clip_high": 0.01},
                    {"epsilon": 0.05, "epsilon_high": 0.01}),
    "gspo": (REUSED, {"loss": "gspo"},
             {"loss_type": "grpo", "importance_sampling_level": "sequence"}),
    "cispo": (REUSED, {"loss": "cispo"}, {"loss_type": "cispo", "epsilon_high": 1.2}),
    "sequence mean": ({}, {"aggregation": "sequence-mean"}, {"loss_type": "grpo"}),
    "constant": ({}, {"aggregation": "constant"}, {"loss_type": "dr_grpo"}),
    "centred": ({}, {"advantage": "centred"}, {"scale_rewards": "none"}),
    "batch deviation": ({}, {"advantage": "batch_std"}, {"scale_rewards": "batch"}),
    "off-policy mask": (REUSED | {"learning_rate": 0.3}, {"correction": "error_mask"},
                        {"off_policy_mask_threshold": 0.5}),
    "truncated": ({}, {"overlong": "mask"}, {"mask_truncated_completions": True}),
    "learning rate": ({"lr_scheduler_type": "linear", "warmup_steps": 2}, {"learning_rate": 5e-3},
                      {"learning_rate": 5e-3}),
    "penalty": ({"beta": 0.125}, {"kl_coefficient": 2.0}, {"beta": 2.0}),
    "reward weight": ({"reward": [share_of_sevens, share_of_ones]},
                      {"reward_weight/share_of_ones": -0.25}, {"reward_weights": [1.0, -0.25]}),
    "entropy": ({"entropy_coef": 0.01}, {"entropy_coefficient": 0.25}, {"entropy_coef": 0.25}),
    "temperature": ({}, {"temperature": 1.5}, {"temperature": 1.5}),
    "temperature with a reference": ({"beta": 0.125}, {"temperature": 1.5}, {"temperature": 1.5}),
}  # fmt: skip


def request_at_start(trainer: Any, run_dir: Path, changes: dict[str, Any]) -> None:
    """Write a request into the mailbox when the training begins, as another process would."""
    from transformers import TrainerCallback

    class Treat(TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            request = Request("r", "apply", treatment_id="t", remedy="test", changes=changes)
            Mailbox(run_dir).send(request)

    trainer.add_callback(Treat())


def treated(make_trainer: MakeTrainer, changes: dict[str, Any], **settings: Any) -> Any:
    trainer = make_trainer("treated", **settings)
    attachment = grpodoctor.attach(trainer)
    request_at_start(trainer, attachment.run_dir, changes)
    trainer.train()
    return trainer, grpodoctor.open_run(attachment.run_dir)


@pytest.mark.parametrize("case", sampled(CASES, 8))
def test_a_knob_has_the_effect_of_the_setting(make_trainer: MakeTrainer, case: str) -> None:
    from trl import GRPOConfig

    settings, changes, equivalent = CASES[case]
    names = (settings.keys() | equivalent.keys()) - {"reward"}
    if not names <= GRPOConfig.__dataclass_fields__.keys():
        pytest.skip("this version of TRL lacks the setting")
    trainer, run = treated(make_trainer, changes, **settings)
    (applied,) = [event for event in run.events if event.kind == "treatment-applied"]
    assert applied.body["after"] == changes
    configured = make_trainer("configured", **settings | equivalent)
    configured.train()
    untreated = make_trainer("untreated", **settings)
    untreated.train()
    assert np.array_equal(weights(trainer), weights(configured))
    assert not np.array_equal(weights(trainer), weights(untreated))


WITHOUT_EFFECT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"entropy_coefficient": 0.1}, {}),
    ({"kl_coefficient": 0.1}, {}),
    ({"updates_per_batch": 2}, {}),
    ({"correction_cap": 2.0}, {}),
    ({"loss": "vespo"}, {}),
    ({"dynamic_sampling": True}, {}),
    ({"reward_weight/share_of_sevens": 2.0}, {}),
    ({"clip_low": 0.1}, {"loss_type": "sapo"}),
    ({"advantage": "centred"}, {"multi_objective_aggregation": "normalize_then_sum"}),
]


@pytest.mark.parametrize("case", sampled(range(len(WITHOUT_EFFECT)), 10))
def test_a_knob_without_effect_is_refused(make_trainer: MakeTrainer, case: int) -> None:
    changes, settings = WITHOUT_EFFECT[case]
    trainer, run = treated(make_trainer, changes, max_steps=2, **settings)
    (refused,) = [event for event in run.events if event.kind == "treatment-refused"]
    assert "restart" in str(refused.body)
    assert ("never resamples" in str(refused.body)) == ("dynamic_sampling" in changes)
    untreated = make_trainer("untreated", max_steps=2, **settings)
    untreated.train()
    assert np.array_equal(weights(trainer), weights(untreated))
