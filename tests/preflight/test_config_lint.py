"""The rules about the configuration in a preflight."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from grpodoctor.errors import ConfigError
from grpodoctor.preflight.catalogue import all_checks, select_checks_and_rules
from grpodoctor.preflight.config_lint import check_config
from grpodoctor.preflight.inputs.request import PreflightRequest
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.run import run_preflight
from grpodoctor.report.preflight.view import facts_line
from grpodoctor.rules.lint import config_rules

FAULTY = """
actor_rollout_ref:
  actor: {policy_loss: {loss_mode: gspo}, use_kl_loss: true}
  rollout: {n: 8, temperature: 1.0}
algorithm: {adv_estimator: grpo, use_kl_in_reward: true}
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def request_of(folder: Path, **options: Path) -> PreflightRequest:
    return PreflightRequest(folder=folder, settings=RunSettings(), **options)


def test_a_faulty_config_is_reported_with_settings_to_paste(tmp_path: Path) -> None:
    results = check_config(write(tmp_path / "config.yaml", FAULTY), None, config_rules())
    by_code = {each.code: each.finding for each in results.findings}
    assert {"CFG001", "CFG041"} <= by_code.keys()
    assert "actor_rollout_ref.actor.clip_ratio_low=0.0003" in by_code["CFG001"].advice[0]
    assert by_code["CFG001"].figures == {"clip_low": 0.2, "clip_high": 0.2}
    assert len(results.passed) > 5
    assert results.skipped == ()


def test_a_remedy_is_written_in_the_framework_s_keys(tmp_path: Path) -> None:
    config = write(tmp_path / "args.json", '{"loss_type": "dr_grpo", "num_generations": 8}')
    results = check_config(config, "trl", config_rules())
    (finding,) = [each.finding for each in results.findings if each.code == "CFG002"]
    assert 'scale_rewards="none"' in finding.advice[0]


def test_without_a_config_one_line_says_what_is_missing() -> None:
    (skipped,) = check_config(None, None, config_rules()).skipped
    assert (skipped.code, skipped.remedy) == ("CFG", "pass --run-config FILE")


def test_an_unknown_config_is_refused_with_the_option_that_helps(tmp_path: Path) -> None:
    config = write(tmp_path / "config.yaml", "colour: blue\n")
    with pytest.raises(ConfigError, match="contains no setting of a known framework") as caught:
        check_config(config, None, config_rules())
    assert "--framework" in str(caught.value)


def test_rules_and_checks_are_selected_together() -> None:
    checks, rules = select_checks_and_rules(
        ("CFG", "DAT"), ("CFG001",), config_rules=config_rules()
    )
    assert {check.family for check in checks} == {"DAT"}
    assert "CFG001" not in {rule.code for rule in rules}
    assert len(rules) == len(config_rules()) - 1
    everything, all_rules = select_checks_and_rules(config_rules=config_rules())
    assert (everything, all_rules) == (all_checks(), config_rules())


def test_a_config_alone_is_checked_without_a_model(tmp_path: Path) -> None:
    request = request_of(tmp_path, run_config=write(tmp_path / "config.yaml", FAULTY))
    checks, rules = select_checks_and_rules((), (), config_rules=config_rules())
    results = run_preflight(request, checks, rules)
    assert {"CFG001", "CFG041"} <= {each.code for each in results.findings}
    assert not results.failed
    assert facts_line(results) == "verl · settings only"
    (others,) = results.skipped
    assert (others.reason, others.remedy) == (
        "no model and no prompts were given",
        "pass --model DIR, --prompts FILE and --reward FILE.py:FUNCTION",
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no model, no prompts and no config were given"),
        ({"control": Path("control"), "run_config": Path("c.yaml")}, "requires --model"),
    ],
)
def test_other_checks_require_a_model(
    options: dict[str, Path], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        run_preflight(request_of(tmp_path, **options), ())


@pytest.mark.parametrize("rate", [2e-4, 2e-5])
def test_a_rate_that_only_adapters_excuse_is_skipped_with_the_reason(
    rate: float, tmp_path: Path
) -> None:
    """A config of TRL's trainer does not contain the adapters, which the caller passes."""
    config = f"num_generations: 8\nlearning_rate: {rate}\nbeta: 0.0\n"
    results = check_config(write(tmp_path / "config.yaml", config), "trl", config_rules())
    assert [each.name for each in results.findings if each.code == "CFG050"] == []
    reasons = [each.reason for each in results.skipped if each.code == "CFG050"]
    assert bool(reasons) == (rate == 2e-4)
    assert ("CFG050" in results.passed) == (rate == 2e-5)
    assert all("suits adapters only" in reason for reason in reasons)


@pytest.mark.parametrize("framework", ["trl", "verl"])
def test_greedy_sampling_is_replaced_by_the_usual_temperature(
    framework: str, tmp_path: Path
) -> None:
    text = {
        "trl": "num_generations: 8\ntemperature: 0.0\n",
        "verl": "actor_rollout_ref: {rollout: {n: 8, temperature: 0.0}}\n",
    }[framework]
    results = check_config(write(tmp_path / "config.yaml", text), framework, config_rules())
    (finding,) = [each for each in results.findings if each.code == "CFG022"]
    assert finding.finding.advice[0].endswith("temperature=1")


def test_a_config_alone_names_a_negative_reward_weight(tmp_path: Path) -> None:
    text = (
        "loss_type: grpo\nnum_generations: 8\nbeta: 0.04\n"
        "reward_funcs: [accuracy, format]\nreward_weights: [1.0, -0.5]\n"
    )
    config = write(tmp_path / "args.yaml", text)
    checks = select_checks_and_rules((), config_rules=config_rules())
    request = replace(request_of(tmp_path / "work", run_config=config), framework="trl")
    results = run_preflight(request, *checks)
    (finding,) = [each.finding for each in results.findings if each.code == "REW107"]
    assert "'format' has the weight -0.5" in finding.summary
    write(config, text.replace("-0.5", "0.5"))
    assert "REW107" in run_preflight(request, *checks).passed
