"""`frozen` makes what `dataclass(frozen=True, slots=True)` makes."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest

from grpodoctor.support.frozen import frozen


@frozen
class Point:
    """A class as the package has them."""

    x: float
    y: float = 0.0
    names: tuple[str, ...] = ()
    note: str = field(default="", compare=False)

    @property
    def length(self) -> float:
        """A property, which cannot be set either."""
        return abs(self.x) + abs(self.y)


@dataclass(frozen=True, slots=True)
class Standard:
    """The same by the standard library."""

    x: float
    y: float = 0.0
    names: tuple[str, ...] = ()
    note: str = field(default="", compare=False)


@frozen
class Named:
    """A class with a method of its own."""

    name: str

    def __repr__(self) -> str:
        return self.name


def test_an_instance_is_like_one_of_the_standard_library() -> None:
    point, standard = Point(1.0, names=("a",)), Standard(1.0, names=("a",))

    assert repr(point) == repr(standard).replace("Standard", "Point")
    assert hash(point) == hash(standard)
    assert [each.name for each in fields(point)] == [each.name for each in fields(standard)]
    assert Point.__match_args__ == Standard.__match_args__
    assert not hasattr(point, "__dict__")


def test_equal_fields_make_equal_instances() -> None:
    assert Point(1.0) == Point(1.0, note="not compared")
    assert Point(1.0) != Point(2.0)
    assert Point(1.0) != Standard(1.0)
    assert replace(Point(1.0), y=3.0) == Point(1.0, 3.0)


@pytest.mark.parametrize("name", ["x", "length", "unknown"])
def test_nothing_can_be_set(name: str) -> None:
    point: Any = Point(1.0)

    with pytest.raises(AttributeError):
        setattr(point, name, 2.0)

    assert point == Point(1.0)


def test_fields_cannot_be_changed_or_deleted() -> None:
    point: Any = Point(1.0)

    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2.0
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))],  # noqa: S301 - own
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies_are_equal_and_frozen(copied: Callable[[Point], Any]) -> None:
    point = copied(Point(1.0, 2.0, ("a",)))

    assert point == Point(1.0, 2.0, ("a",))
    with pytest.raises(FrozenInstanceError):
        point.x = 2.0


def test_a_method_of_the_class_stays() -> None:
    assert repr(Named("a")) == "a"
