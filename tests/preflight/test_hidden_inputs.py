"""Columns that only the reward knows, notes as answers, held-out puzzles, lost long answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.preflight.answers.kinds.unusable_answers import filled_in
from tests.preflight.planted import fifteenth_rewards as w
from tests.preflight.planted import fourteenth_tables as t
from tests.preflight.planted.cases import Case, examine
from tests.preflight.planted.scored import named
from tests.preflight.planted.seventeenth_second import second_half
from tests.preflight.planted.tables import Row

FAULTS = {case.name: case for case in second_half()}


def _alarms(case: Case, folder: Path, *codes: str) -> str:
    return " ".join(examine(case, folder, codes).alarms)


@pytest.mark.parametrize(
    ("looked_up", "is_fault"),
    [
        ('kwargs.get("numbers")', True),
        ('kwargs.get("nums")', False),
        ('(kwargs.get("numbers") or kwargs.get("nums"))', False),
        ('(kwargs.get("numbers_of_stage_2") and kwargs.get("nums"))', True),
    ],
)
def test_a_column_under_another_name_is_named(
    looked_up: str, is_fault: bool, tmp_path: Path
) -> None:
    case = named(FAULTS, "column that is called otherwise")
    reward = case.reward.replace('kwargs.get("numbers")', looked_up)
    alarms = _alarms(Case(name="", rows=case.rows[:60], reward=reward), tmp_path, "REW101")
    assert ("reads 'numbers" in alarms and "not 'nums'" in alarms) == is_fault


def test_a_key_that_helps_under_no_column_is_not_named(tmp_path: Path) -> None:
    case = named(FAULTS, "column that is called otherwise")
    reward = case.reward.replace("    return _equation(", "    return [0.0] or _equation(")
    rows = case.rows[:60]
    alarms = _alarms(Case(name="", rows=rows, reward=reward), tmp_path, "REW101")
    assert "reads 'numbers'" not in alarms


@pytest.mark.parametrize(
    ("note", "is_note"),
    [
        ("[NO TRANSLATION]", True),
        ("N/A", True),
        ("TODO", True),
        ("None of these", False),
        ("Ich weiß es nicht.", False),
    ],
)
def test_a_note_in_place_of_answers_is_found(note: str, is_note: bool) -> None:
    texts = [f"Der Satz mit der Nummer {at} ist lang." for at in range(80)]
    assert filled_in([*texts, *[note] * 10]) == ({note} if is_note else set())
    assert filled_in([*texts, *[note] * 3]) == set()
    assert filled_in(["spam", "not spam", "[NONE]"] * 30) == set()


@pytest.mark.parametrize(
    ("form", "frequent"),
    [("**Street {}**", "**New York**"), ("STREET OF {}", "NEW YORK"), ("Street {}", "NASA")],
)
def test_answers_that_look_like_notes_are_kept(form: str, frequent: str) -> None:
    names = [form.format(chr(65 + at % 26) + chr(65 + at // 26)) for at in range(80)]
    assert filled_in([*names, *[frequent] * 10]) == set()


def test_held_out_puzzles_are_compared_without_their_order(tmp_path: Path) -> None:
    case = named(FAULTS, "numbers in another order")
    assert "40 of 60 held-out" in _alarms(case, tmp_path, "DAT107")


@pytest.mark.parametrize("words", ["equal the reference", "first 200 characters"])
def test_long_answers_are_lost(words: str, tmp_path: Path) -> None:
    case = named(FAULTS, words)
    found = _alarms(Case(name="", rows=case.rows[:40], reward=case.reward), tmp_path, "REW104")
    assert "exactly the reference" in found or "words of reasoning lose" in found


def test_lines_may_miss_one_of_them(tmp_path: Path) -> None:
    """Words behind line breaks alone: the text without its last line still earns the reward."""
    reward = (
        "def lines(completions, answer, **kwargs):\n"
        "    found = [set(c[-1]['content'].split()) for c in completions]\n"
        "    wanted = [set(a.split()) for a in answer]\n"
        "    return [float(len(f & w) >= 0.8 * len(w)) for f, w in zip(found, wanted)]\n"
    )
    rows: list[Row] = [
        {"prompt": t.chat(f"Describe animal {at} in twelve words, one on each line."),
         "answer": "\n".join(f"word{chr(97 + at)}{chr(97 + n)}" for n in range(12))}
        for at in range(20)
    ]  # fmt: skip
    case = Case(name="", rows=rows, reward=reward)
    assert "exactly the reference" not in _alarms(case, tmp_path, "REW104")


def test_sound_long_answers_are_not_lost(tmp_path: Path) -> None:
    case = Case(name="", rows=w.algebra(40, 21), reward=w.MATH)
    assert "reasoning" not in _alarms(case, tmp_path / "a", "REW104")
    case = Case(name="", rows=w.articles(40, 22), reward=w.ROUGE)
    assert "exactly" not in _alarms(case, tmp_path / "b", "REW104")
