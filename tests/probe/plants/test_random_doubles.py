"""Random doubles: the seed decides which two faults meet, and each of them matters alone."""

from __future__ import annotations

from itertools import islice

from tests.probe.plants.catalogue import Plant
from tests.probe.plants.random_doubles import random_double, random_doubles


def every(_: Plant) -> bool:
    return True


def drawn(seed: int, count: int = 40) -> list[Plant]:
    return list(islice(random_doubles(seed, every), count))


def test_a_seed_draws_the_same_doubles_and_another_one_others() -> None:
    assert drawn(1) == drawn(1)
    assert {each.name for each in drawn(1)} != {each.name for each in drawn(2)}


def test_a_double_has_two_causes_without_a_name_in_common() -> None:
    for double in drawn(3):
        first, second = double.causes
        assert first
        assert second
        assert not first & second
        assert "unknown" not in first | second


def test_old_weights_come_with_their_checkpoint() -> None:
    doubles = drawn(4, 200)
    old = [each for each in doubles if "STALE" in f"{each.faults} {each.options}"]
    assert old
    assert all(each.stale for each in old)


def test_faults_that_do_not_matter_alone_are_not_drawn() -> None:
    asked: list[Plant] = []
    family = drawn(5, 1)[0].family

    def matters(plant: Plant) -> bool:
        asked.append(plant)
        return plant.family != family and "window:12" not in plant.faults

    doubles = list(islice(random_doubles(5, matters), 60))
    assert all(matters(each) for each in doubles)
    assert any(plant.family == family for plant in asked)


def test_a_double_is_found_by_its_key() -> None:
    for double in drawn(6, 5):
        assert random_double(double.key) == double
