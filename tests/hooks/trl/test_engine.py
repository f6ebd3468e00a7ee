"""A sampler outside the learner: its log-probabilities, the correction, its temperature.

No vLLM that TRL 1.16 allows runs here, so a stub takes its place behind TRL's own code.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import grpodoctor
from grpodoctor.errors import RunError
from grpodoctor.hooks.trl import private_names
from grpodoctor.probe.contract import Processing, Sampling
from grpodoctor.probe.engines.jobs import SampleJob, ScoreJob
from grpodoctor.probe.engines.shards import read_shards
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.run_mismatch.run_mismatch import measure_run
from grpodoctor.treatment.mailbox import Mailbox
from grpodoctor.treatment.requests import Request
from grpodoctor.vocabulary.values import scalar
from tests.hooks.trl.engine_stub import EngineStub
from tests.hooks.trl.trained_weights import weights
from tests.probe.attribution.in_process import InProcess
from tests.samples import sampled

pytestmark = pytest.mark.filterwarnings("ignore")

MakeTrainer = Callable[..., Any]


SIDES = ("sampler", "learner")
CAP = "vllm_importance_sampling_clip_max"
if not private_names._is_at_least("1.14"):
    CAP = private_names.OLD_CAP
MODE = "vllm_importance_sampling_mode"


def trained(make_trainer: MakeTrainer, changes: dict[str, Any], **settings: Any) -> Any:
    """Train with the stub and request the changes when the training begins."""
    from transformers import TrainerCallback

    trainer = make_trainer("changed" if changes else "plain", **settings)
    engine = EngineStub(trainer, -0.5)
    attachment = grpodoctor.attach(trainer)

    class Treat(TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            if changes:
                request = Request("r", "apply", treatment_id="t", remedy="test", changes=changes)
                Mailbox(attachment.run_dir).send(request)

    trainer.add_callback(Treat())
    trainer.train()
    return trainer, engine, grpodoctor.open_run(attachment.run_dir)


def test_the_sampler_is_compared_with_the_learner(make_trainer: MakeTrainer) -> None:
    trainer, _, run = trained(make_trainer, {}, **{MODE: "token_truncate", CAP: 1.0})
    rows = [row for row in trainer.state.log_history if "reward" in row]
    for record, row in zip(run.records, rows, strict=True):
        weight = row["sampling/importance_sampling_ratio/mean"]
        assert scalar(record.values["correction/weight_mean"]) == pytest.approx(weight, rel=1e-3)
        # TRL averages over tokens, the metric over responses
        gap = row["sampling/sampling_logp_difference/mean"]
        assert scalar(record.values["mismatch/logprob_diff_mean"]) == pytest.approx(gap, rel=0.3)
        assert 0 <= scalar(record.values["correction/capped_rate"]) < 1
        assert scalar(record.values["instruments/failed_parts"]) == 0


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "none": ({"correction": "none"}, {"vllm_importance_sampling_correction": False}),
    "token mask": ({"correction": "mis_token", "correction_cap": 1.0},
                   {MODE: "token_mask", CAP: 1.0}),
    "sequence": ({"correction": "tis_sequence"}, {MODE: "sequence_truncate"}),
    "token": ({"correction": "tis_token"}, {MODE: "token_truncate"}),
    "off-policy mask": ({"correction": "error_mask"},
                        {"vllm_importance_sampling_correction": False,
                         "off_policy_mask_threshold": 0.5}),
    "cap": ({"correction_cap": 1.5}, {CAP: 1.5}),
    "temperature": ({"temperature": 1.5}, {"temperature": 1.5}),
}  # fmt: skip


@pytest.mark.slow
def test_a_recorded_training_is_judged(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer("judged")
    EngineStub(trainer, -0.5)
    attachment = grpodoctor.attach(trainer, depth="full")
    trainer.train()
    result = measure_run(attachment.run_dir, 20)
    records = grpodoctor.open_run(attachment.run_dir).records
    assert [each.step for each in result.steps] == [each.step for each in records]
    for figures, record in zip(result.steps, records, strict=True):
        told = scalar(record.values["mismatch/kl_k3"])
        assert figures.kl_k3 == pytest.approx(told, rel=1e-3)
    assert result.severity == "critical"


def test_without_a_correction_both_sides_are_recorded(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer("uncorrected", vllm_importance_sampling_correction=False, max_steps=2)
    EngineStub(trainer, -0.5)
    attachment = grpodoctor.attach(trainer, depth="full")
    trainer.train()
    assert len(measure_run(attachment.run_dir, 20).steps) == 2


def test_without_vllm_the_missing_side_is_named(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer("alone", max_steps=1)
    attachment = grpodoctor.attach(trainer, depth="full")
    trainer.train()
    with pytest.raises(RunError, match="hold no log-probabilities of the sampler") as error:
        measure_run(attachment.run_dir, 20)
    assert "use_vllm=True" in error.value.remedy
    assert "depth" not in error.value.remedy


@pytest.mark.slow
def test_a_recorded_training_is_an_engine(
    make_trainer: MakeTrainer, model_folder: Path, tmp_path: Path
) -> None:
    """The weights do not change, so a fresh engine computes what the learner computed."""
    trainer = make_trainer("scored", learning_rate=0.0, max_steps=1)
    EngineStub(trainer, -0.5)
    attachment = grpodoctor.attach(trainer, depth="full")
    trainer.train()
    sides = [EngineSpec.parse(f"recorded:{attachment.run_dir}?side={side}") for side in SIDES]
    fresh = EngineSpec.of("transformers", str(model_folder), {"threads": 1})
    with InProcess(tmp_path / "probe", []) as runner:
        (drawn,) = runner.run(sides[0], [SampleJob(sampling=Sampling())])
        job = ScoreJob(rollouts=drawn, processing=Processing(temperature=trainer.temperature))
        recorded, scored = (logprobs(runner.run(engine, [job])) for engine in (sides[1], fresh))
    assert recorded.size > 16 * 4
    assert np.abs(logprobs([drawn]) - recorded).max() == pytest.approx(0.5, abs=1e-3)
    assert recorded == pytest.approx(scored, abs=1e-4)


def logprobs(folders: list[Path]) -> np.ndarray:
    return np.concatenate([shard.logprobs_N for shard in read_shards(folders[0])])


@pytest.mark.parametrize("case", sampled(CASES, {"off-policy mask"}))
def test_a_knob_of_the_sampler_has_the_effect_of_the_setting(
    make_trainer: MakeTrainer, case: str
) -> None:
    settings = {MODE: "sequence_mask", CAP: 3.0}
    changes, equivalent = CASES[case]
    changed, engine, run = trained(make_trainer, changes, **settings)
    assert [event.kind for event in run.events if event.kind.startswith("treatment")] == [
        "treatment-applied"
    ]
    configured, _, _ = trained(make_trainer, {}, **settings | equivalent)
    untreated, _, _ = trained(make_trainer, {}, **settings)
    assert np.array_equal(weights(changed), weights(configured))
    assert not np.array_equal(weights(changed), weights(untreated))
    assert engine.temperature == changed.temperature


class Frozen(EngineStub):
    """Weights never arrive."""

    def sync_weights(self) -> None:
        """Keep the first weights."""


class HalfDelivered(EngineStub):
    """One layer arrives, as if a part of an adapter were dropped."""

    def sync_weights(self) -> None:
        """Take the first layer only."""
        arrived = {
            name: each for name, each in self.learner_weights().items() if "layers.0" in name
        }
        self.model.load_state_dict(self.model.state_dict() | arrived)


class Corrupted(EngineStub):
    """From the second sync on, the rows of the output layer arrive in the wrong places."""

    syncs = 0

    def sync_weights(self) -> None:
        """Take the weights."""
        super().sync_weights()
        self.syncs += 1
        if self.syncs > 1:
            head = self.model.lm_head.weight.data
            head.copy_(head.roll(1, 0))


class WithoutValues(EngineStub):
    """The adapters of one kind of module are not sent, as if the engine had another name for it."""

    def learner_weights(self) -> dict[str, Any]:
        """The merged weights; those of v_proj are the base model's."""
        base = {
            name.removeprefix("base_model.model.").replace(".base_layer", ""): each.detach().clone()
            for name, each in self._trainer.model.named_parameters()
            if "v_proj.base_layer" in name
        }
        return super().learner_weights() | base


NAMED = {
    EngineStub: None,
    Frozen: ("SYN006", "critical", "100% of the learner's change since the start"),
    HalfDelivered: ("SYN006", "critical", "layer 1"),
    Corrupted: ("SYN007", "critical", "fit no weights of the learner"),
}


@pytest.mark.parametrize("kind", sampled(NAMED, {EngineStub, HalfDelivered}))
def test_weights_that_do_not_arrive_are_named(make_trainer: MakeTrainer, kind: Any) -> None:
    """The first generation is before any update: the fault begins at the second sync."""
    bare = make_trainer("bare", max_steps=3)
    kind(bare)
    bare.train()
    trainer = make_trainer("observed", max_steps=3)
    kind(trainer)
    attachment = grpodoctor.attach(trainer)
    trainer.train()
    assert np.array_equal(weights(bare), weights(trainer))
    findings = [each for each in attachment.findings if each.code in ("SYN006", "SYN007")]
    named = NAMED[kind]
    if named is None:
        assert findings == []
        return
    (finding,) = findings
    assert (finding.code, finding.severity, finding.onset_step) == (*named[:2], 2)
    assert named[2] in finding.summary


@pytest.mark.parametrize("kind", [EngineStub, WithoutValues])
def test_adapters_that_are_not_sent_are_named(make_trainer: MakeTrainer, kind: Any) -> None:
    import torch
    from peft import LoraConfig

    torch.manual_seed(0)  # peft draws the adapter before the trainer sets its seed
    modules = ["q_proj", "v_proj", "o_proj", "up_proj"]
    config = LoraConfig(r=4, target_modules=modules, task_type="CAUSAL_LM", lora_dropout=0.1)
    trainer = make_trainer(peft_config=config, max_steps=4, learning_rate=5e-2)
    kind(trainer)
    attachment = grpodoctor.attach(trainer)
    trainer.train()
    findings = [each for each in attachment.findings if each.code in ("SYN006", "SYN007")]
    if kind is EngineStub:
        assert findings == []
    else:
        (finding,) = findings
        assert finding.code == "SYN006"
        assert finding.onset_step <= 3
        assert finding.summary.endswith("of the updates of v_proj.")
