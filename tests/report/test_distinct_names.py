"""Names of runs in a narrow column."""

from __future__ import annotations

import pytest

from grpodoctor.report.distinct_names import distinct_names

LONG = "a-training-of-a-small-model"


@pytest.mark.parametrize("width", [12, 22, 30])
@pytest.mark.parametrize(
    "names",
    [
        [f"{LONG}/seed-{seed}/checkpoints/logs/metrics.jsonl" for seed in (1, 2, 11)],
        [f"{LONG}/{part}/and-a-long-name-at-the-end" for part in ("sgd", "adam")],
        [f"{LONG}-{number}-{LONG}-{LONG}" for number in range(3)],
        ["short", f"{LONG}/short", f"other/{LONG}/short"],
    ],
)
def test_names_fit_and_differ_as_the_paths_do(names: list[str], width: int) -> None:
    shown = distinct_names(names, width)
    assert len(set(shown)) == len(names)
    assert all(len(line) <= width for name in shown for line in name.splitlines())


def test_a_path_is_named_by_its_shortest_end_of_its_own() -> None:
    names = ["experiments/first/log.jsonl", "experiments/second/log.jsonl", "experiments/x/own.csv"]
    assert distinct_names(names, 20) == ["…/first/log.jsonl", "…/second/log.jsonl", "…/own.csv"]
    assert distinct_names(names, 40) == names


def test_the_same_path_twice_has_one_name() -> None:
    assert len(set(distinct_names([f"{LONG}/a/b"] * 2, 12))) == 1
