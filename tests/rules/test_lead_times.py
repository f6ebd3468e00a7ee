"""How early a rule fired, as a sentence."""

from __future__ import annotations

from inspect import getmodule, getsource

import pytest

from grpodoctor.cli.rule_page import lead_time_text
from grpodoctor.rules.catalogue import all_rules
from grpodoctor.rules.lead_times import NOTES_ONLY, LeadTime, lead_time_of
from grpodoctor.runs.records import Manifest
from tests.benchmarks.bench_lead_time import alarms
from tests.benchmarks.lead_time_runs import records_of

ALARMS = ("warning", "critical")


@pytest.mark.parametrize(
    ("lead", "sentence"),
    [
        (
            LeadTime({"early": 1, "at onset": 7, "audit": 10}, 66),
            "In 18 sick runs, this rule fired early once, at the onset 7 times and late 10 times. "
            "The early finding came 66 steps before half of the fall of the reward.",
        ),
        (
            LeadTime({"early": 2}, 5),
            "In 2 sick runs, this rule fired early twice. The early findings came a median of 5 "
            "steps before half of the fall of the reward.",
        ),
        (LeadTime({"audit": 1}), "In 1 sick run, this rule fired late once."),
        (
            LeadTime({"at onset": 2}, simulated=True),
            "In 2 simulated runs, this rule fired at the onset twice.",
        ),
    ],
)
def test_the_sentence_says_fall_and_not_loss(lead: LeadTime, sentence: str) -> None:
    assert lead.sentence == sentence


def test_the_page_of_a_rule_says_where_its_lead_time_comes_from() -> None:
    pages = {rule.code: lead_time_text(rule) for rule in all_rules()}
    assert pages["DAT003"].startswith("In 4 simulated runs")
    assert pages["CFG002"].startswith("before the run")
    assert pages["INS001"].startswith("In 4 simulated runs")
    assert pages["REW020"].startswith("none: its findings are notes")
    assert not any(page.startswith("not measured") for page in pages.values())


def test_rules_without_a_lead_time_never_raise_an_alarm() -> None:
    """Their files name no severity of an alarm, and those of other rules do."""
    for rule in all_rules():
        module = getmodule(type(rule))
        assert module is not None
        is_alarm = any(f'"{word}"' in getsource(module) for word in ALARMS)
        if rule.code in NOTES_ONLY:
            assert not is_alarm, rule.code
        elif lead_time_of(rule.code) is None:
            assert rule.reads_config, rule.code


@pytest.mark.parametrize("code", ["SYN004", "DAT001", "ENT005"])
def test_the_simulated_runs_raise_the_rule_that_they_are_for(code: str) -> None:
    assert code in alarms(Manifest(), records_of(code, 0))
