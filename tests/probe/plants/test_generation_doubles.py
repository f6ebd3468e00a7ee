"""Doubles with a fault of generation: no family twice in a group, and two causes apart."""

from __future__ import annotations

import pytest

from tests.probe.plants.catalogue import Plant, unseen
from tests.probe.plants.sampling_faults import PROCESSORS

GROUPS = {"generation-double": 8, "generation-double-later": 6}
HIDDEN = ("hidden_top_p", "hidden_top_k", "hidden_min_p")


def of(group: str) -> list[Plant]:
    return [each for each in unseen() if each.group == group]


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_has_each_family_once_and_one_fault_of_generation_in_each_pair(group: str) -> None:
    pairs = of(group)
    assert len({each.family for each in pairs}) == len(pairs) == GROUPS[group]
    for pair in pairs:
        first, second = pair.causes
        assert first
        assert not first & second
        kinds = [fault.partition(":")[0] for fault in pair.faults.split("+")]
        assert [kind in (*PROCESSORS, *HIDDEN) for kind in kinds] == [True, False]
        assert pair.stale == ("STALE" in pair.faults)
