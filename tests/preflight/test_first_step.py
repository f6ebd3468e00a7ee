"""Faults that the first step of the run would show: rules of puzzles, drafts, scales, warm-ups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from grpodoctor.frameworks.registry import configurable_framework_named
from grpodoctor.preflight.answers.kinds.number_puzzles import (
    LEFT_OUT,
    NOT_GIVEN,
    TWICE,
    Puzzle,
    by_one_operation,
    unfair_solutions,
)
from grpodoctor.preflight.answers.kinds.persons_and_places import numbers_for_names
from tests.preflight.planted import fifteenth_rewards as w
from tests.preflight.planted import fourteenth_tasks as k
from tests.preflight.planted.cases import Case, examine
from tests.preflight.planted.fourteenth_configs import trl, verl
from tests.preflight.planted.models import LLAMA
from tests.preflight.planted.scored import named
from tests.preflight.planted.seventeenth_first import first_half

FAULTS = {case.name: case for case in first_half()}


def _alarms(case: Case, folder: Path, *codes: str) -> str:
    """What some checks say, all of them in one text."""
    return " ".join(examine(case, folder, codes).alarms)


@pytest.mark.parametrize(("numbers", "target"), [((3, 5, 2), 13), ((4, 7, 8, 8), 24), ((6, 2), 8)])
def test_unfair_solutions_reach_the_target(numbers: tuple[int, ...], target: int) -> None:
    found = dict(unfair_solutions(Puzzle(numbers, target)))
    assert {TWICE, NOT_GIVEN} <= found.keys()
    for kind, expression in found.items():
        assert eval(expression, {"__builtins__": {}}) == target  # noqa: S307 - the test's subject
        used = sorted(map(int, expression.translate(str.maketrans("+-*/()", " " * 6)).split()))
        assert used != sorted(numbers), kind
        assert kind != LEFT_OUT or len(used) < len(numbers)


def test_one_operation_solves_a_puzzle() -> None:
    assert by_one_operation(Puzzle((3, 5, 2), 10)) == "adding"
    assert by_one_operation(Puzzle((3, 5, 2), 30)) == "multiplying"
    assert by_one_operation(Puzzle((3, 5, 2), 13)) == ""


@pytest.mark.parametrize(
    ("prompt", "answer", "is_fault"),
    [
        ("[1] Ardenne was laid out by Uma Petrov.\n\nQuestion: Who laid out Ardenne?", "1", True),
        ("Who laid out Ardenne? Answer with the number of the passage.", "1", False),
        ("Who is right, 1 or 2?", "1", False),
        ("How many towns are there?", "5", False),
        ("Who laid out Ardenne?", "Uma Petrov", False),
    ],
)
def test_a_person_is_no_number(prompt: str, answer: str, is_fault: bool) -> None:
    assert numbers_for_names([prompt] * 12, [answer] * 12) == (list(range(12)) if is_fault else [])
    assert numbers_for_names([prompt] * 9, [answer] * 9) == []


def test_a_few_places_in_problems_of_mathematics_are_numbers() -> None:
    lines = [f"Line {at} rises by 2. Where does it cross the axis?" for at in range(12)]
    sums = [f"How much is {at} and 7?" for at in range(200)]
    assert numbers_for_names([*lines, *sums], ["5"] * 212) == []
    assert numbers_for_names([*lines, *sums[:40]], ["5"] * 52) == list(range(12))


def test_former_flags_of_openrlhf_are_read() -> None:
    table = configurable_framework_named("openrlhf").knobs
    former = {"n_samples_per_prompt": 1, "advantage_estimator": "group_norm", "temperature": 0.6}
    assert table.read(former) | {"group_size": 1, "advantage": "group", "temperature": 0.6} == (
        table.read(former)
    )
    both = {**former, "rollout.n_samples_per_prompt": 8}
    assert table.read(both)["group_size"] == 8
    assert table.count_keys(former) == 0  # other frameworks have some of these keys


@pytest.mark.parametrize(("tail", "is_fault"), [("[-1]", False), ("[0]", True)])
def test_a_draft_must_not_be_read(tail: str, is_fault: bool, tmp_path: Path) -> None:
    reward = (
        "import re\n"
        "def value(completions, answer, **kwargs):\n"
        "    found = [re.findall(r'answer(?: is)?:? *(-?\\d+)', c[-1]['content'].lower()) or ['']"
        " for c in completions]\n"
        f"    return [float(each{tail} == str(a)) for each, a in zip(found, answer)]\n"
    )
    ask = "Explain your steps, then write 'Answer: N'."
    case = Case(name="", rows=k.words(30, 11, ask), reward=reward)
    alarms = _alarms(case, tmp_path, "REW104")
    assert ("The first mention of an answer counts" in alarms) == is_fault


def test_a_label_may_follow_reasoning(tmp_path: Path) -> None:
    reward = w.ROUGE.replace("def rouge(", "def _unused(") + (
        "def headed(completions, summary, **kwargs):\n"
        "    found = [re.{search}(r'Summary: (.+)$', c[-1]['content'], re.DOTALL)"
        " for c in completions]\n"
        "    return [_rouge(m.group(1), s) if m else 0.0 for m, s in zip(found, summary)]\n"
    )
    ask = "Think about what matters. Then write 'Summary: ' and two sentences."
    rows = w.articles(30, 12, ask)
    for search in ("match", "search"):
        case = Case(name="", rows=rows, reward=reward.replace("{search}", search))
        alarms = _alarms(case, tmp_path / search, "REW104")
        assert ("Reasoning before 'Summary:'" in alarms) == (search == "match")


def test_sources_have_one_scale(tmp_path: Path) -> None:
    case = replace(named(FAULTS, "from 0 to 100"), rows=named(FAULTS, "from 0 to 100").rows[:160])
    assert "earn 100 in rows with data_source" in _alarms(case, tmp_path / "a", "REW101")
    same = replace(case, reward=case.reward.replace("100.0", "1.0"))
    assert "in rows with" not in _alarms(same, tmp_path / "b", "REW101")


def test_parts_of_messages_are_read_or_reported(tmp_path: Path) -> None:
    case = replace(named(FAULTS, "list of parts"), reward="")
    assert "Python representation" in _alarms(case, tmp_path / "a", "DAT119")
    text = replace(case, rows=w.positions(80, 13), model=LLAMA)
    assert not _alarms(text, tmp_path / "b", "DAT119")


def test_an_empty_part_is_not_printed_by_a_prompt_with_braces(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "Complete class Point {}"}, {}]
    rows = [{"prompt": [{"role": "user", "content": parts}]} for _ in range(20)]
    template = (
        "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}"
    )
    case = Case(name="", rows=rows, model=replace(LLAMA, template=template))
    assert "Python representation" not in _alarms(case, tmp_path, "DAT119")


@pytest.mark.parametrize(
    ("end", "is_opened"),
    [("\n\n### Response:\n", True), ("\nAssistant: <think>", True), ("\n\n### Answer:\n", False)],
)
def test_a_message_ends_with_the_opening_of_a_turn(
    end: str, is_opened: bool, tmp_path: Path
) -> None:
    questions = [f"What is {at} and {at}?{end}" for at in range(20)]
    rows = [{"prompt": [{"role": "user", "content": text}]} for text in questions]
    case = Case(name="", rows=rows, model=LLAMA)
    assert ("assistant's opening" in _alarms(case, tmp_path / "a", "DAT105")) == is_opened
    rows = [
        {"prompt": [{"role": "user", "content": f"Fill in:{chr(10) * 10**5}{at}"}]} for at in (1, 2)
    ]
    assert not _alarms(replace(case, rows=rows), tmp_path / "b", "DAT105")


def test_a_stop_string_ends_the_reasoning(tmp_path: Path) -> None:
    rows = k.words(80, 14)
    for stop, is_fault in ((r"\n\n", True), ("User:", False)):
        config = verl(("n: 8, ", f'n: 8, stop: ["{stop}"], '), ("size: 128", "size: 64"))
        case = Case(name="", rows=rows, reward=k.TAGGED, framework="verl", run_config=config)
        alarms = _alarms(case, tmp_path / str(is_fault), "REW106", "CFG057")
        assert ("stop string" in alarms) == is_fault


def test_the_warm_up_is_compared_with_the_epochs(tmp_path: Path) -> None:
    rows = k.words(100, 15)
    config = trl(warmup_steps=50).replace("max_steps: 400", "num_train_epochs: {}")
    for epochs, is_fault in ((1, True), (40, False), (".inf", False)):
        case = Case(name="", rows=rows, framework="trl", run_config=config.format(epochs))
        alarms = _alarms(case, tmp_path / str(epochs), "OPT102", "CFG057")
        assert ("OPT102" in alarms) == is_fault


_PARSES_THE_ANSWER = """
import re
def reward(completions, answer, **kwargs):
    texts = [c[-1]["content"] if isinstance(c, list) else c for c in completions]
    numbers = [re.findall(r"-?[0-9]+", text) for text in texts]
    return [float(int(a) in map(int, n[-1:])) for n, a in zip(numbers, answer)]
"""


def test_a_row_on_which_the_reward_fails_stops_the_run(tmp_path: Path) -> None:
    """Whatever the model writes: `int("")` raises."""
    sums = [{"prompt": f"How much is {n} and 7?", "answer": str(n + 7)} for n in range(60)]
    broken = [*sums[:5], {**sums[5], "answer": ""}, *sums[6:]]
    settings = {"batch_prompts": 16}
    fault = Case(name="an empty answer", rows=broken, reward=_PARSES_THE_ANSWER, settings=settings)
    (found,) = examine(fault, tmp_path / "fault", ("GRP103",)).alarms
    assert "fails on 1 row of the first step" in found
    sound = Case(name="all answers", rows=sums, reward=_PARSES_THE_ANSWER, settings=settings)
    assert not examine(sound, tmp_path / "sound", ("GRP103",)).alarms
