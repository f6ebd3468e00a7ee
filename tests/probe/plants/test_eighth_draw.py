"""The eighth natural draw: in proportion to reports, no family twice, and faults as stated."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tests.probe.plants import (
    computing,
    eighth_draw_faults,
    fourth_draw_kinds,
    second_draw_kinds,
    sixth_draw_kinds,
    third_draw_kinds,
)
from tests.probe.plants.catalogue import plants, unseen
from tests.probe.plants.eighth_draw import systematic
from tests.probe.plants.eighth_draw_kinds import KINDS, NEW_KINDS
from tests.probe.plants.set_checks import hidden, kinds_of

PLANTS = [each for each in unseen() if each.group.startswith("eighth-draw")]


def test_no_family_occurs_twice() -> None:
    families = [each.family for each in PLANTS]
    assert len(set(families)) == len(families) == 28


def test_every_fault_is_of_a_kind() -> None:
    assert kinds_of(PLANTS) <= {each.fault.partition(":")[0] for each in KINDS}


def test_the_new_kinds_alone_are_in_no_earlier_set() -> None:
    earlier = [each for each in unseen() if not each.group.startswith("eighth-draw")]
    lists = (second_draw_kinds, third_draw_kinds, fourth_draw_kinds, sixth_draw_kinds)
    known = kinds_of([*plants(), *earlier])
    known |= {each.fault.partition(":")[0] for one in lists for each in one.KINDS}
    known |= {"first_lost"}  # a fault of the first catalogue, which no set planted
    named = {each.fault.partition(":")[0] for each in KINDS}
    assert named - known == set(NEW_KINDS)


def test_a_systematic_sample_has_each_kind_in_proportion() -> None:
    total = sum(each.weight for each in KINDS)
    drawn = Counter(KINDS.index(each) for each in systematic(random.Random(1), 1200))
    for number, kind in enumerate(KINDS):
        assert drawn[number] == pytest.approx(1200 * kind.weight / total, abs=1)


def test_a_learner_reads_a_turn_twice(load: Any) -> None:
    """`load` is needed for the path to the contract."""
    from contract import Response

    given = [Response([3, 4, 5, 6], [7], [-1.0], 0, 0)]
    (read,) = eighth_draw_faults.read(given, {"turn_twice": "2"})
    assert read.prompt_ids == [3, 4, 5, 4, 5, 6]
    assert eighth_draw_faults.read(given, {}) == given


def test_norms_of_one_name_have_another_epsilon(load: Any) -> None:
    healthy, engine = load("olmo2"), load("olmo2")
    computing.FAULTS["norm_eps_of"](engine, "post_attention_layernorm,0.3")
    layer = engine._model.base_model.layers[0]
    assert layer.post_attention_layernorm.variance_epsilon == 0.3
    assert layer.post_feedforward_layernorm.variance_epsilon < 1e-3
    assert (hidden(engine) - hidden(healthy)).abs().max() > 0.05


def test_attention_scores_reach_the_soft_cap(load: Any) -> None:
    healthy, engine = load("gemma2_capped"), load("gemma2_capped")
    computing.FAULTS["without_softcap"](engine, "attention")
    assert (hidden(engine) - hidden(healthy)).abs().max() > 0.05
