"""Logs of real runs: framework, steps, values, and a diagnosis that agrees with an expert's view.

`tests/data/logs/README.md` names their owners; `spot_values.json` next to them was made by another
reader.
"""

from __future__ import annotations

import functools
import gzip
import json
import math
import random
from pathlib import Path

import pytest

from grpodoctor.errors import GrpodoctorError, MixedRunsError
from grpodoctor.monitor.replay import replay
from grpodoctor.monitor.report import Report
from grpodoctor.runs.reading.opening import FrameworkRun, open_run
from grpodoctor.runs.reading.read_notes import is_important
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import scalar
from tests.samples import sampled

DATA = Path(__file__).parents[1] / "data" / "logs"
SPOTS = json.loads((DATA / "spot_values.json").read_text())
NAMES = sorted(path.name.removesuffix(".gz") for path in DATA.glob("*.gz"))

_TRL = {
    "reward": "reward/mean",
    "reward_std": "groups/reward_std",
    "loss": "optimizer/loss",
    "grad_norm": "optimizer/grad_norm",
    "learning_rate": "optimizer/learning_rate",
    "kl": "kl/reference/k3",
    "entropy": "entropy/mean",
    "completion_length": "length/mean",
    "completions/mean_length": "length/mean",
    "completions/clipped_ratio": "length/truncated_rate",
    "frac_reward_zero_std": "groups/zero_variance_rate",
    "clip_ratio/low_mean": "clip/low_rate",
    "clip_ratio/high_mean": "clip/high_rate",
    "clip_ratio/region_mean": "clip/any_rate",
    "accuracy": "accuracy/train",
}
_PLAIN = {
    "accuracy": "accuracy/train",
    "entropy": "entropy/mean",
    "frac_reward_zero_std": "groups/zero_variance_rate",
    "learning_rate": "optimizer/learning_rate",
    "loss": "optimizer/loss",
    "mean_reward": "reward/mean",
    "reward_mean": "reward/mean",
}
_VERL = {
    "actor/entropy": "entropy/mean",
    "actor/entropy_loss": "entropy/mean",
    "actor/kl_loss": "kl/reference/k3",
    "actor/pg_loss": "optimizer/loss",
    "actor/pg_clipfrac": "clip/any_rate",
    "actor/ppo_kl": "kl/old_policy/k1",
    "actor/grad_norm": "optimizer/grad_norm",
    "critic/score/mean": "reward/mean",
    "response_length/mean": "length/mean",
    "response_length/clip_ratio": "length/truncated_rate",
    "group_reward_all_zero_rate": "groups/all_incorrect_rate",
}
_TINKER = {
    "env/all/reward/total": "reward/mean",
    "env/all/by_group/frac_mixed": "groups/effective_rate",
    "env/all/by_group/frac_all_good": "groups/all_correct_rate",
    "env/all/by_group/frac_all_bad": "groups/all_incorrect_rate",
    "test/env/all/reward/total": "reward/heldout",
    "optim/kl_sample_train_v1": "mismatch/kl_k1",
    "optim/lr": "optimizer/learning_rate",
}
_KEYS = {
    "trl": {**_TRL, **{f"train/{key}": metric for key, metric in _TRL.items()}},
    "generic": _PLAIN,
    "verl": {**_VERL, **{key.replace("/", "_"): metric for key, metric in _VERL.items()}},
    "tinker-cookbook": _TINKER,
}

EXPECTED = {
    "abdo_trainer_state.json": ("trl", 25, 10, 250),
    "akshay_console.log": ("trl", 30, 1, 30),
    "arvindcr4_metrics.jsonl": ("tinker-cookbook", 100, 0, 99),
    "beibeizzz_own.jsonl": ("generic", 500, 1, 500),
    "beibeizzz_trl.jsonl": ("trl", 49, 2, 480),
    "dawn_history.json": ("generic", 990, 11, 1000),
    "deltasthicc_trainer_state.json": ("trl", 80, 10, 800),
    "happynessi_grpo.csv": ("verl", 49, 1, 49),
    "happynessi_sft_grpo_mis.csv": ("verl", 323, 1, 323),
    "imjonezz_trainer_state.json": ("trl", 250, 1, 250),
    "maojiasong_events.out.tfevents.1740427850": ("trl", 39, 1, 39),
    "nhockid_console.log": ("trl", 10, 5, 50),
    "sushantmehta_metrics.jsonl": ("tinker-cookbook", 113, 0, 112),
    "zhiyuanhubj_console.log": ("verl", 10, 0, 9),
}
"""Framework, steps, first step, last step."""


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of the logs, each as its job left it."""
    directory = tmp_path_factory.mktemp("logs")
    for name in NAMES:
        (directory / name).write_bytes(gzip.decompress((DATA / f"{name}.gz").read_bytes()))
    return directory


@functools.cache
def read(path: Path) -> tuple[FrameworkRun, list[StepRecord]]:
    run = open_run(path)
    assert isinstance(run, FrameworkRun)
    return run, list(run.steps)


@functools.cache
def checked(path: Path) -> Report:
    return replay(path).report


def gravest(report: Report) -> dict[str, str]:
    """Code to severity of every finding above a note."""
    return {each.code: each.severity for each in report.findings if each.severity != "info"}


def notes(report: Report) -> str:
    return "\n".join(report.notes)


def summary(report: Report, code: str) -> str:
    return " / ".join(each.summary for each in report.findings if each.code == code)


def test_every_log_has_an_expectation() -> None:
    assert sorted([*EXPECTED, "astowolfo_metrics.jsonl"]) == NAMES


@pytest.mark.parametrize("name", EXPECTED)
def test_framework_and_steps(name: str, logs: Path) -> None:
    run, steps = read(logs / name)
    framework, count, first, last = EXPECTED[name]
    assert run.manifest.framework == framework
    assert (len(steps), steps[0].step, steps[-1].step) == (count, first, last)
    assert [each.step for each in steps] == sorted({each.step for each in steps})
    assert run.damaged_lines == 0


@pytest.mark.parametrize("name", EXPECTED)
def test_values_match_an_independent_reader(name: str, logs: Path) -> None:
    _, steps = read(logs / name)
    keys, compared = _KEYS[EXPECTED[name][0]], 0
    for key, (count, first, last, low, high, mean) in SPOTS[name].items():
        metric = keys.get(key)
        readings = [scalar(each.values[metric]) for each in steps if metric in each.values]
        values = [value for value in readings if value is not None]
        if not values:
            continue  # of a version that cannot be told, or a column that is left out
        compared += 1
        held = 10 if name == "dawn_history.json" else 1
        assert len(values) == count / held, key
        found = (values[0], values[-1], min(values), max(values), math.fsum(values) / len(values))
        assert found == pytest.approx((first, last, low, high, mean), rel=6e-4, abs=1e-8), key
    assert compared >= 3


def test_restarts_in_one_file_keep_the_last_values_and_are_noted(logs: Path) -> None:
    """Steps 0, 0, 0, 0, 1, 0: five starts of a job, the first four with all groups wrong."""
    run, steps = read(logs / "astowolfo_metrics.jsonl")
    last = {each.step: scalar(each.values["reward/mean"]) for each in steps}
    assert last[0] == pytest.approx(0.1328, rel=1e-3)
    assert run.manifest.framework == "tinker-cookbook"
    report = checked(logs / "astowolfo_metrics.jsonl")
    assert "jumps back once (to step 0)" in notes(report)
    assert "has 3 rows that repeat a step" in notes(report)
    assert "too short for a verdict" in notes(report)
    assert gravest(report) == {}


HEALTHY = [
    "abdo_trainer_state.json",
    "beibeizzz_own.jsonl",
    "beibeizzz_trl.jsonl",
    "happynessi_sft_grpo_mis.csv",
    "imjonezz_trainer_state.json",
    "sushantmehta_metrics.jsonl",
]
SHORT = ["akshay_console.log", "nhockid_console.log", "zhiyuanhubj_console.log"]
SOLVED = ["arvindcr4_metrics.jsonl", "dawn_history.json"]


@pytest.mark.parametrize("name", [*HEALTHY, *SHORT, *SOLVED])
def test_no_alarm_on_a_healthy_run(name: str, logs: Path) -> None:
    assert gravest(checked(logs / name)) == {}


@pytest.mark.parametrize("name", SHORT)
def test_a_run_too_short_to_judge_is_noted(name: str, logs: Path) -> None:
    assert "too short for a verdict" in notes(checked(logs / name))


def test_reward_components_that_are_always_zero_are_noted(logs: Path) -> None:
    report = checked(logs / "imjonezz_trainer_state.json")
    dead = summary(report, "REW004")
    assert "soft_format_reward_func and strict_format_reward_func (always 0)" in dead
    assert "200 tokens" in summary(report, "LEN003")  # no share of cut responses in this version


def test_a_task_that_was_never_rewarded_is_a_warning(logs: Path) -> None:
    """No batch of 39 has a correct equation; some responses earn the format reward."""
    report = checked(logs / "maojiasong_events.out.tfevents.1740427850")
    assert gravest(report) == {"REW004": "warning"}
    assert "equation_reward_func (always 0)" in summary(report, "REW004")


def test_truncation_and_missing_variance_are_reported_first(logs: Path) -> None:
    """The authors report a rising reward."""
    report = checked(logs / "deltasthicc_trainer_state.json")
    assert gravest(report) == dict.fromkeys(("LEN002", "GRP004"), "critical")
    assert [each.code for each in report.findings[:2]] == ["LEN002", "GRP004"]


def test_a_reward_that_is_always_zero_is_reported(logs: Path) -> None:
    report = checked(logs / "happynessi_grpo.csv")
    assert gravest(report) == {"GRP002": "critical"}
    assert report.findings[0].code == "GRP002"
    assert report.findings[0].remedies[0] == "recheck-reward"


def test_low_entropy_with_rising_reward_is_not_a_collapse(logs: Path) -> None:
    """Entropy .35 to .03 while the reward rises from .27 to .91."""
    report = checked(logs / "happynessi_sft_grpo_mis.csv")
    assert "prompts are solved" in summary(report, "ENT001")


def test_a_metric_that_is_not_computed_is_not_a_collapse(logs: Path) -> None:
    """Entropy and KL are 0 on all 500 rows."""
    report = checked(logs / "beibeizzz_own.jsonl")
    assert "(not computed, or constant): approx_kl, entropy" in notes(report)
    assert any(each.code == "ENT001" for each in report.not_applicable)
    assert summary(report, "GRP004") == ""


def test_keys_that_a_user_added_are_read_by_the_generic_table(logs: Path) -> None:
    report = checked(logs / "beibeizzz_trl.jsonl")
    assert "read by their common names: accuracy as accuracy/train" in notes(report)


def test_solved_prompts_are_reported_as_solved(logs: Path) -> None:
    assert "all-correct" in summary(checked(logs / "arvindcr4_metrics.jsonl"), "GRP001")
    assert "nothing is left to learn" in summary(checked(logs / "dawn_history.json"), "REW006")


def test_repeated_values_count_once(logs: Path) -> None:
    """990 rows, 99 measurements.

    The expert's reading also has a KL that is 0 throughout. In the file it is not: it moves with
    the other values, between 0 and .002. So the report states only that its reference is unknown.
    """
    report = checked(logs / "dawn_history.json")
    assert "repeats each value for up to 10 rows" in notes(report)
    (said,) = filter(is_important, report.notes)
    assert said.startswith("only 99 of the 990 rows are new measurements"), "next to the verdict"
    assert "not computed" not in notes(report)
    assert "kl_divergence is not used: the other policy is not stated" in notes(report)


def test_steps_are_counted_if_all_progress_bars_precede_the_rows(logs: Path) -> None:
    path = logs / "akshay_console.log"
    _, steps = read(path)
    rewarded = [each.step for each in steps if "reward/mean" in each.values]
    assert rewarded == [1, 9, 17, 25]  # eight optimizer steps to a batch of responses
    assert "steps come from the bars that were drawn twice" in notes(checked(path))


def test_a_printed_loss_of_zero_is_no_finding_and_the_length_limit_is_requested(
    logs: Path, tmp_path: Path
) -> None:
    """The mean length is 3,300; only the run's settings contain the limit of 3,584."""
    path = logs / "nhockid_console.log"
    assert "expected" in summary(checked(path), "OPT001")
    settings = tmp_path / "grpo.yaml"
    settings.write_text("max_completion_length: 3584\nnum_generations: 6\n")
    report = replay(path, options=ReadOptions(run_config=settings)).report
    assert "of the limit of 3584 tokens" in summary(report, "LEN003")
    assert gravest(report) == {}


def test_a_framework_can_be_named(logs: Path) -> None:
    run = open_run(logs / "beibeizzz_trl.jsonl", ReadOptions(format="generic"))
    assert run.manifest.framework == "generic"


def test_two_runs_in_one_directory_are_told_apart_by_their_values(
    logs: Path, tmp_path: Path
) -> None:
    for name in ("beibeizzz_own.jsonl", "beibeizzz_trl.jsonl"):
        (tmp_path / name).write_bytes((logs / name).read_bytes())
    with pytest.raises(MixedRunsError, match="contains 2 runs"):
        replay(tmp_path)


def test_of_many_checkpoints_the_newest_state_is_read(logs: Path, tmp_path: Path) -> None:
    state = json.loads((logs / "abdo_trainer_state.json").read_text())
    for step in (100, 200, 250):
        kept = [entry for entry in state["log_history"] if entry["step"] <= step]
        place = tmp_path / f"checkpoint-{step}"
        place.mkdir()
        text = json.dumps({**state, "global_step": step, "log_history": kept})
        (place / "trainer_state.json").write_text(text)
    run = open_run(tmp_path)
    assert [each.step for each in run.steps] == list(range(10, 251, 10))
    assert isinstance(run, FrameworkRun)
    assert not any("differ" in note or "again" in note for note in run.notes)


@pytest.mark.parametrize("name", ["beibeizzz_own.jsonl", "happynessi_sft_grpo_mis.csv"])
def test_a_prefix_of_a_log_gives_the_prefix_of_its_steps(
    name: str, logs: Path, tmp_path: Path
) -> None:
    lines = (logs / name).read_bytes().splitlines(keepends=True)
    prefix = tmp_path / name
    prefix.write_bytes(b"".join(lines[:121]))
    _, whole = read(logs / name)
    found = list(open_run(prefix).steps)
    assert len(found) in (120, 121)  # a table begins with its header
    assert [(each.step, each.values) for each in found] == [
        (each.step, each.values) for each in whole[: len(found)]
    ]


_JUNK = (b"{", b"}", b"\n", b"\r", b"[", b'"', b"NaN", b"step:", b"1e999", b"\x1b[31m", b"\0" * 50)


def _spoilt(text: bytes, chance: random.Random) -> bytes:
    spoilt = bytearray(text)
    for _ in range(chance.randint(1, 20)):
        at = chance.randrange(len(spoilt))
        if chance.random() < 0.4:
            spoilt[at:at] = chance.choice(_JUNK)
        elif chance.random() < 0.5:
            del spoilt[at : at + chance.randint(1, 500)]
        else:
            spoilt[at] = chance.randrange(256)
    return bytes(spoilt)


@pytest.mark.parametrize("name", sampled([name for name in NAMES if "imjonezz" not in name], 3))
def test_a_damaged_log_is_read_as_far_as_possible_or_refused_in_one_line(
    name: str, logs: Path, tmp_path: Path
) -> None:
    chance = random.Random(name)
    path = tmp_path / name
    for _ in range(4):
        path.write_bytes(_spoilt((logs / name).read_bytes(), chance))
        assert _said_of(path).count("\n") == 0


def _said_of(path: Path) -> str:
    try:
        return f"{replay(path).report.run.steps} steps"
    except GrpodoctorError as error:
        return str(error)
