"""Prompts of which one side reads two parts in the other order."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.probe.attribution.causes.tokens.exchanged_spans import ExchangedSpans, Spans
from tests.probe.attribution.one_cause import found_by
from tests.probe.attribution.test_other_prompts import found_in_learner
from tests.probe.plants import fifth_draw_faults  # noqa: F401  # its faults

IDS = [10, 11, 12, 13, 14, 15]


def test_parts_are_exchanged_where_a_prompt_has_them() -> None:
    assert Spans(1, 1, 2).exchanged(IDS) == [10, 12, 13, 11, 14, 15]
    assert Spans(-4, 2, 2).exchanged(IDS) == [10, 11, 14, 15, 12, 13]
    assert Spans(3, 2, 2).exchanged(IDS) == [10, 11, 12, 15, 13, 14]
    assert Spans(5, 2, 2).exchanged(IDS) == IDS
    assert Spans(-9, 2, 2).exchanged(IDS) == IDS


def test_borders_move_by_one() -> None:
    near = Spans(0, 1, 2).near()
    assert Spans(1, 2, 3) in near
    assert Spans(0, 1, 2) not in near
    assert all(each.first > 0 and each.second > 0 and each.start >= 0 for each in near)


@pytest.mark.parametrize("fault", ["2,2", pytest.param("4,3", marks=pytest.mark.slow)])
def test_exchanged_spans_are_found(tmp_path: Path, fault: str) -> None:
    start, size = map(int, fault.split(","))
    result = found_by(ExchangedSpans(), tmp_path, "llama", f"spans_exchanged:{fault}")
    assert result is not None
    words = f"{size} and {size} tokens exchanged from place {start + 1} on in every prompt"
    assert result.details == (words,)
    assert result.after is not None
    assert result.after.gap < 1e-9


@pytest.mark.slow
def test_no_exchange_explains_another_fault_of_the_learner(tmp_path: Path) -> None:
    assert found_in_learner(ExchangedSpans(), tmp_path, "attention_scale:1.3") is None
