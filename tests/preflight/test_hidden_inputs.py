"""Columns that only the reward knows, notes as answers, held-out puzzles, lost long answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.preflight.answers.source_tags import columns_read
from grpodoctor.preflight.answers.unusable_answers import filled_in
from tests.preflight.planted import fifteenth_rewards as w
from tests.preflight.planted.cases import Case, examine
from tests.preflight.planted.seventeenth_second import second_half

FAULTS = {case.name: case for case in second_half()}


def _named(words: str) -> Case:
    (case,) = (each for name, each in FAULTS.items() if words in name)
    return case


def _alarms(case: Case, folder: Path, *codes: str) -> str:
    return " ".join(examine(case, folder, codes).alarms)


def test_columns_are_read_from_further_arguments(tmp_path: Path) -> None:
    file = tmp_path / "rewards.py"
    file.write_text(
        "def helper(**kwargs):\n    return kwargs['other']\n"
        "def score(completions, **columns):\n"
        "    weights = columns.get('weights', [1.0])\n"
        "    return [len(columns['facts']), weights, {}.get('no column')]\n"
    )
    assert set(columns_read(f"{file}:score")) == {"weights", "facts"}
    assert columns_read(f"{file}:missing") == ()
    assert columns_read("package.module:score") == ()
    file.write_text("def score(:")
    assert columns_read(f"{file}:score") == ()


def test_a_missing_column_is_named_if_nothing_is_rewarded(tmp_path: Path) -> None:
    case = _named("column that is called otherwise")
    assert "reads the column 'numbers'" in _alarms(case, tmp_path / "a", "REW101")
    reward = case.reward.replace('kwargs.get("numbers")', 'kwargs.get("nums")')
    right = Case(name="", rows=case.rows, reward=reward)
    assert "reads the column" not in _alarms(right, tmp_path / "b", "REW101")


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


def test_held_out_puzzles_are_compared_without_their_order(tmp_path: Path) -> None:
    case = _named("numbers in another order")
    assert "40 of 60 held-out" in _alarms(case, tmp_path, "DAT107")


@pytest.mark.parametrize("words", ["equal the reference", "first 200 characters"])
def test_long_answers_are_lost(words: str, tmp_path: Path) -> None:
    case = _named(words)
    found = _alarms(Case(name="", rows=case.rows[:40], reward=case.reward), tmp_path, "REW104")
    assert "exactly the reference" in found or "words of reasoning lose" in found


def test_sound_long_answers_are_not_lost(tmp_path: Path) -> None:
    case = Case(name="", rows=w.algebra(40, 21), reward=w.MATH)
    assert "reasoning" not in _alarms(case, tmp_path / "a", "REW104")
    case = Case(name="", rows=w.articles(40, 22), reward=w.ROUGE)
    assert "exactly" not in _alarms(case, tmp_path / "b", "REW104")
