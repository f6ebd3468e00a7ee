"""A small sample of the runs with mechanisms: `make planted-mechanisms` examines all of them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.benchmarks.planted_mechanisms.examination import (
    LAYOUTS,
    cases,
    examine,
    layouts_with_evidence,
    logged_quantities,
    trained,
)
from tests.benchmarks.planted_mechanisms.plants import HEALTHY, MECHANISMS, Mechanism
from tests.benchmarks.planted_mechanisms.run import Sizes

SAMPLE = [("judge-outages", "verl"), ("weights-stop-arriving", "prime-rl")]
SHORT = 60
"""Steps of a run, for tests that take a second."""


def short(mechanism: Mechanism) -> Mechanism:
    """The mechanism in a short run of few responses."""

    def prepare(draw: Random, sizes: Sizes) -> None:
        if mechanism.prepare:
            mechanism.prepare(draw, sizes)
        sizes.steps, sizes.prompts, sizes.group = SHORT, 16, 8
        sizes.pool, sizes.updates, sizes.rate = 320, 2, 0.02

    return replace(mechanism, prepare=prepare)


@pytest.mark.parametrize(("name", "layout"), SAMPLE)
def test_the_first_line_names_a_mechanism(name: str, layout: str, tmp_path: Path) -> None:
    answer = examine(short(MECHANISMS[name]), layout, f"sample/{name}", tmp_path)
    assert answer.is_named_first, answer.line


def test_a_healthy_run_that_looks_odd_has_no_alarm(tmp_path: Path) -> None:
    answer = examine(short(HEALTHY["curriculum"]), "slime", "sample/curriculum", tmp_path)
    assert answer.is_named_first, answer.line


def test_a_policy_learns_and_its_quantities_agree() -> None:
    """All of them follow from the same responses, so they cannot contradict each other."""
    run, rows = trained(short(HEALTHY["plain"]), "sample/plain")
    first, last = rows[0], rows[-1]
    assert last["truth"] > first["truth"] + 0.1
    assert first["kl"] == pytest.approx(0.0, abs=1e-12)
    assert last["kl"] > 0
    for row in rows:
        assert row["reward"] == pytest.approx(row["accuracy"])
        assert row["zero_variance"] == pytest.approx(row["all_correct"] + row["all_incorrect"])
        assert row["length"] <= run.sizes.limit
        assert row["reward_std"] == pytest.approx(math.sqrt(row["reward"] * (1 - row["reward"])))


def test_every_mechanism_has_a_format_that_can_show_it() -> None:
    assert set(logged_quantities()) == set(LAYOUTS)
    assert [name for name, each in MECHANISMS.items() if not layouts_with_evidence(each)] == []
    assert len(list(cases(1, [], 3))) == 3 * (len(MECHANISMS) + len(HEALTHY))


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_no_healthy_run_has_an_alarm(name: str, tmp_path: Path) -> None:
    answer = examine(HEALTHY[name], "trl", f"slow/{name}", tmp_path)
    assert answer.is_named_first, answer.line
