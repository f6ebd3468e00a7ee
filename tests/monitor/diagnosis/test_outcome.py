"""A run whose reward rises shows that a suspicious setting did no harm."""

import json
import math
import random

import pytest

from grpodoctor.monitor.replay import replay
from grpodoctor.runs.records import Manifest, StepRecord
from tests.cli.in_process import run
from tests.rules.scenario import reading


@pytest.mark.parametrize(
    ("rise", "severity", "kind"), [(0.6, "info", "healthy"), (0.0, "warning", "sick")]
)
def test_a_missing_baseline_is_a_note_if_the_reward_rises(tmp_path, rise, severity, kind):
    noise = random.Random(1)
    rows = []
    for step in range(60):
        reward = 0.2 + rise * step / 60 + noise.gauss(0, 0.02)
        rows.append(
            {
                "step": step,
                "critic/score/mean": reward,
                "critic/score/max": 1.0,
                "critic/score/min": 0.0,
                "critic/advantages/mean": reward,
                "critic/advantages/max": 1.0,
                "critic/advantages/min": 0.0,
                "actor/entropy": 0.5,
                "actor/grad_norm": 0.3,
                "response_length/mean": 200.0,
            }
        )
    log = tmp_path / "metrics.jsonl"
    log.write_text(
        "".join(json.dumps({"step": row.pop("step"), "data": row}) + "\n" for row in rows)
    )
    report = json.loads(run("check", str(log), "--json").stdout)
    assert {finding["code"]: finding["severity"] for finding in report["findings"]}[
        "GRP005"
    ] == severity
    assert report["verdict"]["kind"] == kind


def kl_rows(kl):
    """The reward dips while the KL rises, and is above its start in the end."""
    noise = random.Random(2)
    for step in range(100):
        dip = 0.3 if 15 <= step < 45 else 0.0
        reward = 0.4 + (0.004 * step if step >= 45 else 0.0) - dip + noise.gauss(0, 0.02)
        yield {
            "step": step,
            "reward": reward,
            "reward_std": 0.4,
            "kl": 0.1 if step < 10 else kl,
            "grad_norm": 0.3,
            "completions/mean_length": 200.0,
        }


@pytest.mark.parametrize(("kl", "severity", "kind"), [(3.0, "info", "healthy"),
                                                      (12.0, "critical", "sick")])  # fmt: skip
def test_a_risen_reward_excuses_a_high_kl_but_no_random_text(tmp_path, kl, severity, kind):
    report, _ = checked(tmp_path, kl_rows(kl))
    finding = next(each for each in report["findings"] if each["code"] == "KLD002")
    assert (finding["severity"], report["verdict"]["kind"]) == (severity, kind)
    assert "went from" not in finding["summary"]  # what it was when the reward was low


def trl_rows(steps, reward, truncated):
    for step in range(steps):
        yield {
            "step": step,
            "reward": reward(step),
            "reward_std": 0.4,
            "entropy": 0.5,
            "grad_norm": 0.3,
            "completions/mean_length": 200.0,
            "completions/clipped_ratio": truncated(step),
        }


def checked(tmp_path, rows):
    state = {"log_history": list(rows), "global_step": 1}
    log = tmp_path / "trainer_state.json"
    log.write_text(json.dumps(state))
    result = run("check", str(log), "--json")
    return json.loads(result.stdout), result.returncode


def test_a_resolved_warning_does_not_fail_the_run(tmp_path):
    noise = random.Random(1)

    def reward(step):
        return 0.2 + 0.5 * step / 100 + noise.gauss(0, 0.03)

    over, code = checked(tmp_path, trl_rows(100, reward, lambda step: 0.7 * (step < 30)))
    (finding,) = [each for each in over["findings"] if each["code"] == "LEN002"]
    assert (finding["severity"], finding["active"]) == ("info", False), "the policy learned it"
    assert (over["verdict"]["kind"], code) == ("healthy", 0)
    flat, code = checked(tmp_path, trl_rows(100, lambda _: 0.3, lambda step: 0.7 * (step < 30)))
    (finding,) = [each for each in flat["findings"] if each["code"] == "LEN002"]
    assert (finding["severity"], finding["active"]) == ("warning", False)
    lasting, code = checked(tmp_path, trl_rows(100, reward, lambda _: 0.7))
    assert (lasting["verdict"]["kind"], code) == ("sick", 1)


@pytest.mark.parametrize(("since", "kind"), [(60, "sick"), (999, "healthy")])
def test_a_run_that_stopped_learning_is_not_healthy_for_what_it_gained_before(
    tmp_path, since, kind
):
    """Copies of one response fill each group: every group has equal rewards."""
    noise = random.Random(1)
    rows = list(
        trl_rows(100, lambda step: 0.2 + 0.4 * step / 100 + noise.gauss(0, 0.03), lambda _: 0.0)
    )
    for row in rows:
        row["frac_reward_zero_std"] = 1.0 if row["step"] >= since else 0.2
    report, _ = checked(tmp_path, rows)
    assert report["verdict"]["kind"] == kind


@pytest.mark.parametrize(("gain", "kind"), [(0.06, "healthy"), (0.0, "flat")])
def test_a_slow_noisy_rise_is_healthy(tmp_path, gain, kind):
    """A public run: .70 to .76 in 1,450 steps, in batches that scatter by .05."""
    noise = random.Random(3)

    def reward(step):
        return 0.70 + gain * step / 400 + noise.gauss(0, 0.05)

    report, _ = checked(tmp_path, trl_rows(400, reward, lambda _: 0.0))
    assert report["verdict"]["kind"] == kind


@pytest.mark.parametrize(
    ("course", "severities", "kind"),
    [
        ((0.2, 0.8, 0.8), {"info"}, "healthy"),
        ((0.5, 0.5, 0.5), {"warning"}, "sick"),
        ((0.2, 0.8, 0.3), {"info"}, "sick"),  # REW002 reports the fall
    ],
    ids=["rose and stayed", "never rose", "rose and fell back"],
)
def test_a_drift_is_a_note_if_the_reward_rose_and_stayed(tmp_path, course, severities, kind):
    """The reward at the end decides, and not the reward at the onset of the KL finding."""
    noise, (first, middle, last) = random.Random(5), course

    def reward(step):
        level = first if step < 40 else middle if step < 80 else last
        return level + noise.gauss(0, 0.03)

    rows = [
        {**row, "kl": 0.001 if row["step"] < 15 else 3.0}
        for row in trl_rows(120, reward, lambda _: 0.0)
    ]
    report, _ = checked(tmp_path, rows)
    drifts = [each for each in report["findings"] if each["code"] == "KLD002"]
    drift = {each["severity"] for each in drifts if each["active"]}
    assert (drift, report["verdict"]["kind"]) == (severities, kind)


@pytest.mark.parametrize(("gain", "severity"), [(1.5, "info"), (0.0, "warning")])
def test_equal_groups_at_first_are_a_note_once_the_reward_rises(tmp_path, gain, severity):
    """A public run: every response fails at first, from -2.9, and 40 % of the groups at the end."""
    noise = random.Random(2)

    def reward(step):
        return -2.5 + gain * max(step - 12, 0) / 12 + noise.gauss(0, 0.15)

    rows = [
        {**row, "frac_reward_zero_std": 0.85 if row["step"] < 14 else 0.85 - 0.3 * (gain > 0)}
        for row in trl_rows(40, reward, lambda _: 0.0)
    ]
    report, _ = checked(tmp_path, rows)
    found = {each["code"]: each["severity"] for each in report["findings"]}
    assert found["GRP004"] == severity


@pytest.mark.parametrize(("rise", "severity"), [(0.6, "info"), (0.0, "warning")])
def test_a_low_entropy_is_a_note_if_the_reward_rises_later(tmp_path, rise, severity):
    noise = random.Random(4)

    def reward(step):
        return 0.2 + rise * (step >= 50) + noise.gauss(0, 0.02)

    rows = [
        {**row, "entropy": 0.5 if row["step"] < 15 else 0.07}
        for row in trl_rows(100, reward, lambda _: 0.0)
    ]
    report, _ = checked(tmp_path, rows)
    found = {each["code"]: each["severity"] for each in report["findings"]}
    assert found["ENT001"] == severity


def treated_run(folder, last):
    """A run whose sampler's log-probabilities serve as old ones until step 40."""
    manifest = Manifest(knobs={"old_logprobs": "sampler", "updates_per_batch": 4})
    folder.mkdir()
    (folder / "run.json").write_bytes(manifest.to_json())
    noise = random.Random(3)
    with (folder / "steps.jsonl").open("wb") as log:
        for step in range(last):
            is_off = step < 40
            curves = {
                "mismatch/first_ratio_off": 0.7 if is_off else 0.0,
                "mismatch/prob_diff_mean": 0.001 + 0.03 * is_off,
                "reward/mean": 0.2 + 0.005 * step + noise.gauss(0, 0.02),
                "entropy/mean": 0.4 + noise.gauss(0, 0.01),
            }
            values = {name: reading(name, point) for name, point in curves.items()}
            knobs = {"old_logprobs": "recompute"} if step == 40 else {}
            log.write(StepRecord(step, values, knobs).to_line())
    return folder


def test_a_treated_run_is_described_as_it_is_now(tmp_path):
    """At each step as the run was then: a prefix of the log is the log of that moment."""
    before = replay(treated_run(tmp_path / "before", 40)).report.diagnosis
    assert (before.verdict.kind, before.verdict.code) == ("sick", "MIS002")
    assert before.verdict.since == 0
    after = replay(treated_run(tmp_path / "after", 120)).report.diagnosis
    assert after.verdict.kind == "healthy"
    assert "resolved: MIS002 importance-ratio-not-one at steps 0 to 39" in after.verdict.line
    (problem,) = [each for each in after.problems if each.cause.code == "MIS002"]
    assert problem.is_treated


def test_a_healthy_run_names_the_measure_that_rose(tmp_path):
    """The reward of the training prompts may stay where it is while held-out prompts improve."""
    rows = [
        {"step": step, "reward": 0.6 + 0.01 * (-1) ** step, "eval/reward": 0.4 + 0.003 * step}
        for step in range(80)
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    verdict = replay(log).report.diagnosis.verdict
    assert verdict.kind == "healthy"
    assert verdict.sentence.startswith("held-out reward 0.41")
    assert ", training reward 0.6 → 0.6 over 80 steps; " in verdict.sentence


def verdict_on(tmp_path, rows):
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return json.loads(run("check", str(log), "--json").stdout)["verdict"]


def test_a_distillation_without_a_reward_is_named_as_one(tmp_path):
    """Its log has no reward to name with `--map`."""
    rows = [
        {"step": step, "teacher_kl": 3.0 / (step + 1), "optim/entropy": 1.0, "optim/lr": 1e-4,
         "env/all/reward/total": 0.0, "env/all/ac_tokens_per_turn": 100.0,
         "optim/kl_sample_train_v1": 1e-3}
        for step in range(30)
    ]  # fmt: skip
    verdict = verdict_on(tmp_path, rows)
    assert verdict["kind"] == "not examined"
    assert verdict["sentence"].startswith("this run distills from a teacher")


def test_a_distillation_whose_responses_loop_is_sick(tmp_path):
    """A public run: no reward to judge, but entropy at .1 % and every response at the limit."""
    rows = [
        {"step": step, "teacher_kl": 3.0 / (step + 1), "optim/entropy": max(0.01, 5.0 - 0.4 * step),
         "optim/lr": 1e-4, "env/all/reward/total": 0.0,
         "env/all/ac_tokens_per_turn": min(4096.0, 800.0 + 220 * step),
         "env/all/turns_per_episode": 1.0, "optim/kl_sample_train_v1": 1e-3}
        for step in range(40)
    ]  # fmt: skip
    verdict = verdict_on(tmp_path, rows)
    assert verdict["kind"] == "sick"
    assert "it loops" in verdict["sentence"]
    assert verdict["code"] == "ENT001"


def test_a_loss_on_held_out_data_beside_rewards_is_no_supervised_training(tmp_path):
    rows = [
        {"step": step, "rewards/total_std": 0.5, "rewards/sim_std": 0.9, "train/loss": 0.2,
         "eval/loss": 0.17, "train/lr": 1e-6}
        for step in range(1, 31)
    ]  # fmt: skip
    verdict = verdict_on(tmp_path, rows)
    assert verdict["kind"] == "not examined"
    assert "--map KEY=reward/mean" in verdict["sentence"]


def test_truncation_by_a_policy_that_becomes_random_is_no_short_limit(tmp_path):
    """A public run: entropy doubled while the reward stayed, and a longer limit was advised."""
    noise = random.Random(1)
    rows = [
        {"step": step, "critic/score/mean": 0.7 + noise.gauss(0, 0.02),
         "critic/score/max": 1.0, "critic/score/min": 0.0,
         "actor/entropy": 1.3 + max(0, step - 15) * 0.036 + noise.gauss(0, 0.02),
         "actor/pg_clipfrac": 0.02, "actor/grad_norm": 0.6,
         "response_length/mean": 35.0 + max(0, step - 10) * 1.5,
         "response_length/clip_ratio": min(0.3, 0.006 + max(0, step - 5) * 0.01)}
        for step in range(1, 51)
    ]  # fmt: skip
    verdict = verdict_on(tmp_path, rows)
    assert (verdict["kind"], verdict["code"]) == ("sick", "ENT002")


@pytest.mark.parametrize(
    ("begin", "advice"),
    [(0, "first, test the reward function"), (40, "first, stop, and return to the last good")],
)
def test_a_fault_of_the_first_step_has_no_checkpoint_before_it(tmp_path, begin, advice):
    rows = [
        {
            "step": step,
            "reward": math.nan if step >= begin else 0.4,
            "grad_norm": math.nan if step >= begin else 0.3,
            "response_length": 200.0 + step % 7,
        }
        for step in range(60)
    ]
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = " ".join(run("check", str(log)).stdout.split())
    assert advice in text
    assert ("checkpoint" in text) == (begin > 0)


def test_a_reward_that_stays_low_for_long_after_plateaus_is_a_collapse(tmp_path):
    """Each value stays for six rows, as if carried forward, until the last one is stuck."""
    rewards = [level for level in (0.0, 0.2, 0.45, 0.7, 0.9) for _ in range(6)] + [-3.0] * 90
    log = tmp_path / "metrics.jsonl"
    log.write_text(
        "".join(
            json.dumps({"step": step, "reward": reward}) + "\n"
            for step, reward in enumerate(rewards)
        )
    )
    report = json.loads(run("check", str(log), "--json").stdout)
    assert report["verdict"]["kind"] == "sick"
    assert "REW002" in {finding["code"] for finding in report["findings"]}


@pytest.mark.parametrize(("mixed", "kind"), [(0.01, "sick"), (0.5, "healthy")])
def test_a_deterministic_policy_learns_no_more_however_short_the_run(tmp_path, mixed, kind):
    """Its entropy is lost within fifty steps; the outcome rose before, and is far below 1."""
    noise = random.Random(3)
    rows = []
    for step in range(58):
        late = min(max(step - 12, 0) / 30, 1.0)
        rows.append(
            {
                "step": step,
                "reward": 0.53 + 0.1 * min(step / 20, 1.0) + noise.gauss(0, 0.03),
                "reward_std": 0.3,
                "entropy": 0.58 * 0.001**late,
                "frac_reward_zero_std": 0.05 + (0.95 - mixed) * late,
                "grad_norm": 0.2,
                "completions/mean_length": 640.0,
            }
        )
    log = tmp_path / "trainer_state.json"
    log.write_text(json.dumps({"log_history": rows}))
    assert json.loads(run("check", str(log), "--json").stdout)["verdict"]["kind"] == kind
