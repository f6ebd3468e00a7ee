from __future__ import annotations

import ast
import inspect
import re
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest

from grpodoctor.errors import ConfigError
from grpodoctor.rules import catalogue
from grpodoctor.rules.base import Rule
from grpodoctor.rules.catalogue import all_rules, rule_of, select
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.metrics import metric_of
from tests.rules.scenario import BANNED, MOST_WORDS

HEADINGS = (
    "What it sees:",
    "Why it matters:",
    "Evidence it needs:",
    "Remedies:",
    "When it is wrong:",
    "References:",
)

each_rule = pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)


def codes(rules: tuple[Rule, ...]) -> list[str]:
    return [rule.code for rule in rules]


def test_the_first_dozen_and_more_stand_in_order() -> None:
    found = codes(all_rules())
    assert found == sorted(found)
    assert {"ENT001", "GRP001", "LEN001", "CLP001", "OPT001", "REW001", "MIS001"} <= set(found)


def test_every_module_of_a_family_with_a_code_is_found() -> None:
    package = Path(inspect.getfile(catalogue)).parent
    written = {path.read_text().split('"""')[1].rstrip(".") for path in package.glob("*/**/*.py")}
    assert {each for each in written if each[3:].isdigit()} == set(codes(all_rules()))


@each_rule
def test_manual_has_its_headings_in_order(rule: Rule) -> None:
    lines = rule.manual().splitlines()
    assert [line for line in lines if line in HEADINGS] == list(HEADINGS)
    assert lines[0].endswith(".")
    sections = [lines.index(heading) for heading in HEADINGS]
    assert all(lines[place + 1].strip() for place in sections)


@each_rule
def test_every_threshold_has_a_reason(rule: Rule) -> None:
    tree = ast.parse(inspect.getsource(type(rule)).lstrip())
    body = tree.body[0].body  # type: ignore[attr-defined]  # the source of a class is a class
    explained = {
        before.target.id
        for before, after in pairwise(body)
        if isinstance(before, ast.AnnAssign)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
    }
    assert rule.thresholds().keys() <= explained


@each_rule
def test_inputs_are_metrics_and_the_rule_names_a_source(rule: Rule) -> None:
    names = [name for need in rule.inputs for name in ((need,) if isinstance(need, str) else need)]
    assert names or rule.reads_config
    assert all(metric_of(name) for name in names)
    assert rule.references
    assert rule.summary.endswith(".")
    assert rule.family.isalpha()


@each_rule
def test_remedies_exist(rule: Rule) -> None:
    from grpodoctor.frameworks.registry import all_frameworks
    from grpodoctor.remedies.catalogue import all_remedies

    known = {remedy.id for remedy in all_remedies()}
    literals = {
        node.value
        for node in ast.walk(
            ast.parse(inspect.getsource(inspect.getmodule(type(rule)) or catalogue))
        )
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    named = (
        {each for each in literals if re.fullmatch("[a-z]+(-[a-z]+)+", each)}
        - {"all-correct", "all-incorrect"}
        - {rule.name, *rule.former_names, *get_args(Condition)}
        - {framework.name for framework in all_frameworks()}
    )
    assert named <= known
    assert set(rule.remedies) <= known


def test_select_by_code_prefix_and_name() -> None:
    entropy = [code for code in codes(all_rules()) if code.startswith("ENT")]
    assert codes(select(all_rules(), ["ent"])) == entropy
    assert codes(select(all_rules(), ["gradient-spike"])) == ["OPT002"]
    assert codes(select(all_rules(), ["MOE", "OPT002"], ["MOE002"]))[-2:] == ["MOE006", "OPT002"]
    assert "MOE002" not in codes(select(all_rules(), ["MOE", "OPT002"], ["MOE002"]))
    assert select(all_rules()) == all_rules()
    assert codes(select(all_rules(), [], ["MIS", "GRP"])) == [
        code for code in codes(all_rules()) if code[:3] not in {"MIS", "GRP"}
    ]


@pytest.mark.parametrize("selector", ["ENT009", "entropy-colapse", "", "[bold]", "x" * 500])
def test_an_unknown_selector_is_one_line_that_helps(selector: str) -> None:
    for keep, drop in ([selector], []), ([], [selector]):
        with pytest.raises(ConfigError) as caught:
            select(all_rules(), keep, drop)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300
    with pytest.raises(ConfigError):
        rule_of(selector)


def test_a_near_miss_is_named() -> None:
    with pytest.raises(ConfigError, match="entropy-collapse"):
        rule_of("entropy-colapse")
    assert rule_of("ent001") is rule_of("entropy-collapse")


@each_rule
def test_a_rule_s_module_and_class_are_named_after_it(rule: Rule) -> None:
    assert type(rule).__module__.rpartition(".")[2] == rule.name.replace("-", "_")
    assert type(rule).__name__ == "".join(word.capitalize() for word in rule.name.split("-"))


@each_rule
def test_a_former_name_still_selects_the_rule(rule: Rule) -> None:
    for former in rule.former_names:
        assert rule_of(former) is rule
        assert select(all_rules(), [former]) == (rule,)


def test_names_of_the_first_release_still_work() -> None:
    assert rule_of("zero-variance-groups-too-easy").code == "GRP001"
    assert rule_of("samples-not-from-the-learner").code == "MIS003"
    with pytest.raises(ConfigError, match="large-policy-updates"):
        rule_of("policy-move-far-in-one-batch")


def test_codes_are_never_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    original = type(rule_of("ENT001"))
    monkeypatch.setattr(catalogue, "_rule_classes", lambda: iter([original, original]))
    with pytest.raises(ValueError, match="ENT001"):
        all_rules.__wrapped__()


@each_rule
def test_the_page_of_a_rule_is_plain(rule: Rule) -> None:
    page = rule.manual().lower()
    assert len(rule.summary.split()) <= MOST_WORDS
    assert not [phrase for phrase in BANNED if re.search(rf"\b{phrase}\b", page)]


def test_a_family_in_place_of_a_rule_is_answered_with_its_rules() -> None:
    members = [rule.code for rule in all_rules() if rule.family == "ENT"]
    with pytest.raises(ConfigError, match=f"ENT is a family of {len(members)} rules") as raised:
        rule_of("ent")
    assert all(code in str(raised.value) for code in members)
