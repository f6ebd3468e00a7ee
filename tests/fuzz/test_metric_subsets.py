"""No rule raises, whatever part of the metrics is logged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.metric_subsets import campaign, defects_of, random_run

FORMER_DEFECTS = (0, 46, 287)
"""Runs on which a rule raised before: without the longest length, without a lasting rise, and with
fewer groups with other answers than with the same ones."""


@pytest.mark.parametrize("seed", [*FORMER_DEFECTS, *range(1, 16)])
def test_no_rule_raises_whatever_is_logged(seed: int, tmp_path: Path) -> None:
    assert defects_of(seed, tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_rule_raises_in_a_thousand_runs() -> None:
    assert not campaign(range(16, 1016))


def test_equal_seeds_make_equal_runs() -> None:
    lines = [b"".join(each.to_line() for each in random_run(seed)[1]) for seed in (3, 3, 4)]
    assert lines[0] == lines[1] != lines[2]
