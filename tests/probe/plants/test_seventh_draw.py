"""The seventh natural draw: kinds that no earlier set has, and faults that do what they say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.probe.plants import computing, seventh_draw_faults
from tests.probe.plants.catalogue import plants, unseen
from tests.probe.plants.set_checks import hidden, kinds_of
from tests.probe.plants.seventh_draw import THREADS

PLANTS = [each for each in unseen() if each.group.startswith("seventh-draw")]
EARLIER = [each for each in (*plants(), *unseen()) if not each.group.startswith("seventh-draw")]


def test_every_kind_has_a_thread_and_none_is_in_an_earlier_set() -> None:
    assert kinds_of(PLANTS) == set(THREADS)
    assert not set(THREADS) & kinds_of(EARLIER)


def test_no_family_occurs_twice() -> None:
    families = [each.family for each in PLANTS]
    assert len(set(families)) == len(families) == 28


def test_a_prompt_loses_its_middle() -> None:
    read = seventh_draw_faults.read_prompts
    assert read({"middle_cut": "3"}, [[1, 2], [1, 2, 3, 4, 5]]) == [[1, 2], [1, 4, 5]]


def test_the_likeliest_tokens_are_excluded_at_half_of_the_steps() -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    excluded = seventh_draw_faults.changed_row(logits, [1], {"xtc": "0.1"})
    assert excluded.isfinite().tolist() == [False, False, True, True]
    assert seventh_draw_faults.changed_row(logits, [2], {"xtc": "0.1"}) is logits


def test_tokens_far_below_the_likeliest_are_excluded() -> None:
    logits = torch.tensor([4.0, 3.0, 0.0, 0.0])
    kept = seventh_draw_faults.changed_row(logits, [1], {"top_sigma": "1"})
    assert kept.isfinite().tolist() == [True, True, False, False]


def test_values_are_those_after_the_shortest_prompt(load: Any) -> None:
    from contract import Processing, Response

    engine = load("cohere")
    rows = [Response([3, 4], [5, 6, 7], [], 0, 0), Response([3, 4, 5], [6, 7], [], 1, 0)]
    right = engine.score(rows, Processing(), ())
    computing.FAULTS["columns_of_shortest"](engine, "")
    wrong = engine.score(rows, Processing(), ())
    assert wrong[0].logprobs == pytest.approx(right[0].logprobs)
    assert wrong[1].logprobs == pytest.approx(right[0].logprobs[:2])


def test_rows_have_the_mask_of_the_first(load: Any) -> None:
    from contract import Processing, Response

    engine = load("qwen2")
    rows = [Response([3, 4, 5, 6], [7, 8], [], 0, 0), Response([3, 4], [7, 8], [], 1, 0)]
    right = engine.score(rows, Processing(), ())
    computing.FAULTS["mask_of_first_row"](engine, "")
    wrong = engine.score(rows, Processing(), ())
    assert wrong[0].logprobs == pytest.approx(right[0].logprobs, abs=1e-4)
    assert wrong[1].logprobs != pytest.approx(right[1].logprobs, abs=1e-2)


def test_a_race_changes_from_run_to_run(load: Any) -> None:
    engine = load("olmo2")
    assert torch.equal(hidden(engine), hidden(engine))
    computing.FAULTS["race"](engine, "0.2")
    assert not torch.equal(hidden(engine), hidden(engine))
