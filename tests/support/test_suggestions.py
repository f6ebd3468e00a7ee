"""Names that an error suggests for a mistyped one."""

import pytest

from grpodoctor.support.suggestions import near_names


@pytest.mark.parametrize(
    ("typed", "known", "first"),
    [
        ("dpao", ("dapo", "dcpo", "dppo", "gdpo"), "dapo"),
        ("tsi", ("mis", "tis", "ris"), "tis"),
        ("tempratur", ("temper", "temperature", "template"), "temperature"),
    ],
)
def test_swapped_letters_come_first(typed: str, known: tuple[str, ...], first: str) -> None:
    assert near_names(typed, known)[0] == first


def test_at_most_three_names_are_suggested() -> None:
    assert len(near_names("group_sise", [f"group_size{number}" for number in range(6)])) == 3


def test_the_beginning_of_a_name_suggests_the_whole_name() -> None:
    known = ["tis_token", "mis_sequence", "mis_token", "minirl"]
    assert near_names("mis", known)[:2] == ["mis_sequence", "mis_token"]
    assert near_names("MIS", known)[:2] == ["mis_sequence", "mis_token"]
    assert near_names("mis_tokem", known) == ["mis_token", "tis_token"]
