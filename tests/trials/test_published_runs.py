"""The published runs: docs/evidence.md and the pages of rules and remedies are made from them."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

from grpodoctor.report.trial_table import TABLE, remedy_trials, rule_trials
from grpodoctor.trials.evidence import published_runs
from grpodoctor.trials.evidence.evidence_page import as_json, markdown
from grpodoctor.trials.healthy_runs import HEALTHY
from grpodoctor.trials.registry import trial_of
from grpodoctor.trials.results import Alarm, Evaluation, RunResult, RunSpec
from grpodoctor.trials.trial import CONTROL, DISEASE
from tests.cli.in_process import run as grpodoctor

PAGE = Path(__file__).parents[2] / "docs" / "evidence.md"


@pytest.fixture(scope="module")
def evidence():
    return published_runs.published_evidence()


def test_the_page_is_what_the_published_runs_give(evidence):
    assert PAGE.read_text() == markdown(evidence), "run: make docs"


def test_the_table_of_the_rule_pages_is_what_the_published_runs_give(evidence):
    assert json.loads(TABLE.read_bytes()) == as_json(evidence)


def test_no_published_run_has_a_former_definition():
    """A changed trial is trained again, or its former runs leave the file."""
    rows = published_runs.pq.read_metadata(published_runs.RUNS).num_rows
    assert rows == len(published_runs.read_runs())


def test_the_list_states_what_a_seed_took_in_the_published_runs(evidence):
    runs = [run for run in published_runs.read_runs() if run.spec.trial == "small-batch"]
    arms = trial_of("small-batch").arms
    expected = sum(
        mean(run.seconds for run in runs if run.spec.arm == arm and run.seconds) for arm in arms
    )
    header, row, *rest = grpodoctor("trials", "small-batch", "--list").stdout.splitlines()
    assert header.split() == ["trial", "seconds", "question"]
    assert row.split()[:2] == ["small-batch", f"{expected:.0f}"]
    assert f"--quick trains {2 * len(arms)} runs" in rest[-1]
    assert f"{2 * expected / 60:.1f} minutes" in rest[-1]


def test_each_rule_and_remedy_with_a_trial_shows_it_on_its_page(evidence):
    pages = {
        ("rule", rule.code): rule_trials(rule.code)
        for each in evidence.trials
        for rule in each.rules
    } | {
        ("remedy", remedy.remedy): remedy_trials(remedy.remedy)
        for each in evidence.trials
        for remedy in each.remedies
    }
    assert len(pages) > 20
    for (command, name), sentences in pages.items():
        assert sentences
        done = grpodoctor(command, name, "--json")
        assert json.loads(done.stdout)["trials"] == sentences
    (command, name), sentences = next(iter(pages.items()))
    for output_format in ("text", "markdown"):
        done = grpodoctor(command, name, "--output-format", output_format)
        assert " ".join(sentences[0].split()) in " ".join(done.stdout.split())


def made_up(trial="truncation", arm=DISEASE, seed=1):
    return RunResult(
        RunSpec(trial, arm, seed, 60, f"{arm}-{seed}"),
        "done",
        evaluations=(Evaluation(20, 0.5, 1000), Evaluation(60, 0.25, 3000)),
        alarms=(Alarm("LEN002", "critical", 9, 4),),
        levels={"entropy/mean": 0.5, "reward/mean": 0.125},
        seconds=3.5,
    )


def test_runs_survive_the_file(tmp_path):
    path = tmp_path / "runs.parquet"
    runs = [made_up(), made_up(arm=CONTROL), made_up(HEALTHY.name, "sorting gspo")]
    published_runs.write_runs(runs, path)
    assert published_runs.read_runs(path) == runs


def test_runs_of_a_former_definition_do_not_count(tmp_path, monkeypatch):
    path = tmp_path / "runs.parquet"
    published_runs.write_runs([made_up(), made_up("length-bias")], path)
    trial = trial_of("truncation")
    changed = replace(trial, disease=replace(trial.disease, settings=("rollout.max_length=9",)))
    monkeypatch.setitem(published_runs.all_trials(), "truncation", changed)
    assert published_runs.read_runs(path) == [made_up("length-bias")]


def test_the_published_result_from_the_command_line(evidence):
    done = grpodoctor("trials", "--published", "--output-format", "json")
    assert json.loads(done.stdout) == as_json(evidence)
    done = grpodoctor("trials", "--published")
    assert "remedies) improved the outcome" in done.stdout
    assert done.returncode == 0


def test_a_narrow_terminal_shows_each_gain_and_effect_on_one_line(evidence, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = grpodoctor("trials", "--published").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    gains = [each.gain for trial in evidence.trials for each in trial.remedies if each.gain]
    for gain in gains:
        interval = f"({gain.low:+.3f} to {gain.high:+.3f})" if gain.low is not None else ""
        assert any(f"{gain.mean:+.3f} {interval}".strip() in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("truncation", "--published"), "--published cannot be combined with a name"),
        (("truncation", "--healthy"), "--healthy cannot be combined with a name"),
        (("--healthy", "--published"), "--published cannot be combined with --healthy"),
        (("--published", "--list"), "--list cannot be combined with --published"),
        (("--published", "--seeds", "3"), "--published cannot be combined with --seeds"),
        (("--list", "--dir", "x"), "--list cannot be combined with --dir"),
        (("--list", "--output-format", "json"), "--list cannot be combined with --output-format"),
        (("--quick", "--seeds", "2"), "--quick cannot be combined with --seeds"),
        (("--ray", "auto", "--jobs", "1"), "--ray cannot be combined with --jobs"),
        (("--first-seed", "999", "--seeds", "5"), "the last seed would be 1003"),
    ],
)
def test_contradictory_options_are_one_line(arguments, words):
    done = grpodoctor("trials", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") <= 2


def test_only_a_rule_that_misses_runs_has_a_reason_for_it(evidence):
    """The page explains misses; an explanation must not outlive them."""
    explained = [each for each in evidence.trials if each.trial.misses]
    assert explained
    page = markdown(evidence)
    for found in explained:
        assert any(rule.fired.hits < 0.9 * rule.fired.runs for rule in found.rules)
        assert found.trial.misses in page
        assert any(f"`{code}`" in found.trial.misses for code in found.trial.rules)
