"""A loop instrumented with `Doctor`."""

import logging
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch

import grpodoctor
from grpodoctor.hooks.torch_loop.doctor import Doctor
from grpodoctor.runs.records import StepRecord
from grpodoctor.treatment.mailbox import Mailbox
from grpodoctor.treatment.requests import Request
from grpodoctor.vocabulary.values import NotApplicable, Rate, scalar

B, T, V = 8, 6, 16
LENGTHS = torch.tensor([6, 2, 3, 6, 1, 4, 5, 6])
MASK = torch.arange(T) < LENGTHS[:, None]


def tensors(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(B, T, V, generator=generator)
    tokens = torch.randint(V, (B, T), generator=generator)
    return {"logits": logits, "tokens": tokens, "rewards": (tokens[:, 0] % 2).double()}


def take(step: object, seed: int = 0, **more: object) -> dict[str, torch.Tensor]:
    data = tensors(seed)
    step.rollouts(
        tokens=data["tokens"], mask=MASK, rewards=data["rewards"], groups=4,
        advantages=data["rewards"] - 0.5, **more,
    )  # fmt: skip
    return data


def records(run_dir: Path) -> list[StepRecord]:
    return list(grpodoctor.open_run(run_dir).records)


def only_record(run_dir: Path) -> StepRecord:
    (record,) = records(run_dir)
    return record


def test_readings_equal_a_direct_computation(tmp_path: Path) -> None:
    with Doctor(tmp_path / "run", model="m", seed=5) as doctor, doctor.step(4) as step:
        data = take(step, correct=[True, False] * 4, truncated=LENGTHS == T)
        logprobs = (data["logits"] / 0.7).log_softmax(-1)
        token_logprobs = logprobs.gather(-1, data["tokens"][..., None])[..., 0]
        step.logits(data["logits"], temperature=0.7)
        step.logprobs(sampler=token_logprobs + 0.01, reference=token_logprobs - 0.5)
        step.update(loss=torch.tensor(0.25), grad_norm=3, learning_rate=1e-4, clip_low=0.2)
        step.reading("accuracy/heldout", 0.5)
    record = only_record(tmp_path / "run")
    values = {name: scalar(reading) for name, reading in record.values.items()}
    entropy = -(logprobs.exp() * logprobs).sum(-1)[MASK].mean().item()
    assert record.step == 4
    assert values["entropy/mean"] == pytest.approx(entropy, rel=1e-5)
    assert values["reward/mean"] == pytest.approx(data["rewards"].mean().item())
    assert values["length/mean"] == LENGTHS.double().mean().item()
    assert record.values["length/truncated_rate"] == Rate(3, 8)
    assert record.values["accuracy/train"] == Rate(4, 8)
    assert values["mismatch/logprob_diff_mean"] == pytest.approx(0.01, rel=1e-3)
    assert values["kl/reference/k1"] == pytest.approx(0.5, rel=1e-4)
    assert values["optimizer/loss"] == 0.25
    assert values["optimizer/grad_norm"] == 3
    assert values["accuracy/heldout"] == 0.5
    assert isinstance(record.values["clip/low_rate"], NotApplicable)
    manifest = grpodoctor.open_run(tmp_path / "run").manifest
    assert (manifest.model, manifest.seed) == ("m", 5)


def test_two_updates_have_ratios_and_clip_fractions(tmp_path: Path) -> None:
    with Doctor(tmp_path / "run") as doctor, doctor.step() as step:
        data = take(step)
        step.logits(data["logits"])
        first = data["logits"].log_softmax(-1).gather(-1, data["tokens"][..., None])[..., 0]
        for factor in (0.0, 0.4):
            step.update(loss=0, logprobs=first + factor, clip_low=0.2, clip_high=0.2)
    record = only_record(tmp_path / "run")
    assert scalar(record.values["updates_per_batch"]) == 2
    positive = MASK[data["rewards"] > 0.5].sum().item()
    assert record.values["clip/high_rate"] == Rate(positive, 2 * MASK.sum().item())
    assert scalar(record.values["ratio/max"]) == pytest.approx(np.exp(0.4), rel=1e-5)
    assert scalar(record.values["optimizer/grad_norm"]) is None  # the loop did not tell it


def test_micro_batches_and_hidden_states_give_the_same_readings(tmp_path: Path) -> None:
    head = torch.nn.Linear(12, V)
    hidden = torch.randn(B, T, 12)
    for name in ("whole", "halves", "hidden"):
        with Doctor(tmp_path / name) as doctor, doctor.step() as step:
            take(step)
            if name == "hidden":
                step.hidden(hidden, head, temperature=0.9)
            else:
                size = B if name == "whole" else B // 2
                for rows in (slice(start, start + size) for start in range(0, B, size)):
                    step.logits(head(hidden[rows]), rows=rows, temperature=0.9)
    whole, halves, of_hidden = (
        only_record(tmp_path / each) for each in ("whole", "halves", "hidden")
    )
    assert halves.values["entropy/mean"] == whole.values["entropy/mean"]
    assert scalar(of_hidden.values["entropy/mean"]) == pytest.approx(
        scalar(whole.values["entropy/mean"]), rel=1e-6
    )


def test_scores_of_a_part_of_the_responses_are_not_taken_for_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the log-probability of the others would be 0."""
    with Doctor(tmp_path / "run") as doctor, doctor.step() as step:
        data = take(step)
        step.logits(data["logits"][:3], rows=slice(0, 3))
        step.logprobs(sampler=torch.zeros(B, T))
    names = only_record(tmp_path / "run").values.keys()
    assert not [name for name in names if name.startswith(("entropy/", "mismatch/"))]
    assert "learner logprobs (step 0 gave it for 3 of 8 responses)" in caplog.text


@pytest.mark.parametrize(
    ("config", "recorded"), [(Namespace(lr=0.1), {"lr": 0.1}), ({"lr": 0.1}, {"lr": 0.1}), (3, {})]
)
def test_a_config_of_another_kind_does_not_stop_the_loop(
    config: object, recorded: dict[str, float], tmp_path: Path
) -> None:
    with Doctor(tmp_path / "run", config=config) as doctor, doctor.step() as step:
        take(step)
    assert grpodoctor.open_run(tmp_path / "run").manifest.config == recorded
    assert "reward/mean" in only_record(tmp_path / "run").values


def test_what_the_loop_does_not_tell_is_absent(tmp_path: Path) -> None:
    with Doctor(tmp_path / "run") as doctor, doctor.step() as step:
        take(step)
    names = only_record(tmp_path / "run").values.keys()
    unknown = ("accuracy/", "entropy/", "length/trunc", "mismatch/", "optimizer/", "text/refl")
    assert not [name for name in names if name.startswith(unknown)]
    rows = grpodoctor.open_run(tmp_path / "run").rollouts().to_pylist()
    assert {row["text"] for row in rows} == {row["truncated"] for row in rows} == {None}


def test_texts_are_decoded_where_the_loop_has_none(tmp_path: Path) -> None:
    decode = lambda rows: [" ".join(map(str, row)) for row in rows]  # noqa: E731
    with Doctor(tmp_path / "run", decode=decode) as doctor, doctor.step() as step:
        data = take(step)
    (text, *_) = grpodoctor.open_run(tmp_path / "run").rollouts()["text"].to_pylist()
    assert text == " ".join(map(str, data["tokens"][0].tolist()))


def test_the_loop_keeps_its_random_numbers_gradients_and_tensors(tmp_path: Path) -> None:
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002 - the state that a loop might use
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    data = tensors(0)
    logits = data["logits"].clone().requires_grad_()
    with Doctor(tmp_path / "run") as doctor, doctor.step() as step:
        take(step)
        step.logits(logits)
        step.update(loss=logits.sum(), grad_norm=torch.tensor(1.0), learning_rate=1e-3)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002
    assert torch.equal(logits, data["logits"])
    logits.sum().backward()
    assert torch.equal(logits.grad, torch.ones_like(logits))


def test_arrays_may_change_after_the_call(tmp_path: Path) -> None:
    rewards = np.ones(B)
    with Doctor(tmp_path / "run") as doctor, doctor.step() as step:
        step.rollouts(tokens=np.ones((B, T), int), mask=np.ones((B, T)), rewards=rewards, groups=4)
        rewards[:] = 0
    assert scalar(only_record(tmp_path / "run").values["reward/mean"]) == 1


def test_wrong_input_is_one_line_and_costs_only_its_part(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Doctor(tmp_path / "run") as doctor:
        for number in range(3):
            with doctor.step(number) as step:
                data = take(step)
                step.logits(data["logits"][:, :-1])
                step.update(loss=1.0, grad_norm=1.0)
                step.reading("accuracy/held-out", 1)
        findings = doctor.findings
    warnings = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(warnings) == 2
    assert "logits of shape (8, 5, 16) do not fit tokens of (8, 6)" in warnings[0]
    assert "no metric 'accuracy/held-out'" in warnings[1]
    assert [each.code for each in findings] == ["INS003"]
    assert "2 parts of the live hook failed" in findings[0].summary
    assert len(records(tmp_path / "run")) == 3
    assert "optimizer/loss" in records(tmp_path / "run")[2].values


def test_an_exception_of_the_loop_passes_and_its_step_is_not_recorded(tmp_path: Path) -> None:
    def train() -> None:
        with Doctor(tmp_path / "run") as doctor:
            for number in range(3):
                with doctor.step(number) as step:
                    take(step)
                    _ = 1 / (1 - number)

    with pytest.raises(ZeroDivisionError):
        train()
    run = grpodoctor.open_run(tmp_path / "run")
    assert [record.step for record in run] == [0]
    assert "finished" not in {event.kind for event in run.events}


def test_a_request_from_another_process_changes_the_loop(tmp_path: Path) -> None:
    rate = [1e-3]
    doctor = Doctor(tmp_path / "run")
    doctor.knob("learning_rate", lambda: rate[0], lambda value: rate.__setitem__(0, value))
    doctor.knob("group_size", lambda: 4)
    doctor.knob("lerning_rate", lambda: rate[0])
    assert doctor.knobs == {"learning_rate": 1e-3, "group_size": 4}
    for number in range(3):
        with doctor.step(number) as step:
            take(step)
        change = Request("1", "apply", "t", "lower-learning-rate", {"learning_rate": 5e-4})
        if number == 0:
            Mailbox(doctor.run_dir).send(change)
    doctor.close()
    run = grpodoctor.open_run(tmp_path / "run")
    assert rate == [5e-4]
    assert run.manifest.knobs == {"learning_rate": 1e-3, "group_size": 4}
    assert [dict(record.knobs) for record in run] == [{}, {"learning_rate": 5e-4}, {}]
    (applied,) = (event for event in run.events if event.kind == "treatment-applied")
    assert applied.step == 1


def test_a_second_run_gets_a_directory_of_its_own(tmp_path: Path) -> None:
    for name in ("run", "run-2", "run-3"):
        with Doctor(tmp_path / "run") as doctor, doctor.step() as step:
            take(step)
        assert doctor.run_dir == tmp_path / name
    with Doctor(tmp_path / "run", resume=True) as doctor, doctor.step(1) as step:
        take(step)
    assert [record.step for record in records(tmp_path / "run")] == [0, 1]


def test_a_closed_doctor_records_nothing(tmp_path: Path) -> None:
    doctor = Doctor(tmp_path / "run")
    doctor.close()
    with doctor.step() as step:
        take(step)
    assert not (tmp_path / "run").exists()


def test_invalid_options_are_replaced_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Doctor(tmp_path / "run", apply="always", depth="deep").close()
    assert [each.getMessage() for each in caplog.records] == [
        "apply cannot be 'always'; no remedy is applied",
        "depth cannot be 'deep'; the depth is summary",
    ]


def test_a_report_never_raises(tmp_path: Path) -> None:
    doctor = Doctor(tmp_path / "run")
    assert doctor.findings == ()
    assert doctor.report().verdict.sentence == "nothing is recorded yet."
    with doctor.step() as step:
        take(step)
    assert doctor.report().verdict.kind == "too short"
    doctor.close()
    assert doctor.report().data.report.run.steps == 1


def test_findings_follow_the_settings_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    for ignored, shown in (('["INS003"]', 0), ("[]", 1)):
        (tmp_path / "grpodoctor.toml").write_text(f"ignore = {ignored}")
        with Doctor(tmp_path / "run") as doctor:
            for number in range(3):
                with doctor.step(number) as step:
                    step.reading("no/such", 1)
            assert len(doctor.findings) == shown
    (tmp_path / "grpodoctor.toml").write_text("ignor = 1")
    with Doctor(tmp_path / "run") as doctor, doctor.step() as step:
        take(step)
    assert "grpodoctor.toml" in doctor.report().verdict.sentence
