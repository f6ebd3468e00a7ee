import graphlib
from typing import get_args

from grpodoctor.monitor.diagnosis.causal_table import CAUSES, CONFIRM, mechanism, path_between
from grpodoctor.rules.catalogue import all_rules
from grpodoctor.vocabulary.conditions import Condition

CONDITIONS = set(get_args(Condition))


def anything(_):
    return True


def test_the_table_has_no_cycle():
    graph = {cause: set(effects) for cause, effects in CAUSES.items()}
    assert set(graphlib.TopologicalSorter(graph).static_order()) <= CONDITIONS


def test_truncation_leads_to_a_zero_gradient_by_way_of_equal_rewards():
    path = path_between(["truncation"], "zero-gradient", anything)
    assert path == ("truncation", "equal-rewards", "zero-gradient")
    assert mechanism(path) == "equal rewards leave no advantage"
    assert path_between(["zero-gradient"], "truncation", anything) is None


def test_no_path_leads_through_a_condition_that_was_looked_for_and_not_found():
    def without_equal_rewards(condition):
        return condition != "equal-rewards"

    path = path_between(["diversity-loss"], "zero-gradient", anything)
    assert path == ("diversity-loss", "equal-rewards", "zero-gradient")
    assert path_between(["diversity-loss"], "zero-gradient", without_equal_rewards) is None


def test_a_long_chain_needs_a_finding_on_the_way():
    assert path_between(["entropy-loss"], "zero-gradient", anything) is None


def test_a_rule_may_name_further_effects_of_its_own():
    assert path_between(["wrong-settings"], "clipped-tokens", anything) is None
    path = path_between(["wrong-settings", "clipped-tokens"], "entropy-loss", anything)
    assert path == ("wrong-settings", "clipped-tokens", "entropy-loss")


def test_every_alarm_has_a_condition_and_a_way_to_confirm_it():
    for rule in all_rules():
        assert rule.condition in CONDITIONS, rule.code
        assert set(rule.explains) <= CONDITIONS, rule.code
        known = rule.condition in {"solved", "expected", "other"}
        assert known or rule.confirm or CONFIRM.get(rule.condition), rule.code


def test_sentences_are_short():
    for text in CONFIRM.values():
        assert text.endswith(".")
        assert len(text.split()) <= 22, text
