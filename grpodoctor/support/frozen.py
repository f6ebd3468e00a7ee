"""Frozen dataclasses that take a third of the time to make.

`dataclass` writes and compiles eight methods for a frozen class. `check` imports 150 of them, which
takes a tenth of its time for a short log. Here only the constructor is compiled.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

_Class = TypeVar("_Class")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[_Class]) -> type[_Class]:
    """The same as `dataclass(frozen=True, slots=True)`, for classes with few instances.

    An instance takes twice as long to make: its fields are set by a method that all classes share.
    """
    made: Any = dataclass(slots=True, eq=False, repr=False)(cls)
    for name, method in _SHARED.items():
        if name not in vars(cls):
            setattr(made, name, method)
    result: type[_Class] = made
    return result


def _set_once(self: object, name: str, value: object) -> None:
    if hasattr(self, name):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _delete(_: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _repr(self: Any) -> str:
    values = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self))
    return f"{type(self).__qualname__}({values})"


def _eq(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _values(instance: Any) -> tuple[object, ...]:
    return tuple(getattr(instance, each.name) for each in fields(instance) if each.compare)


_SHARED = {
    "__setattr__": _set_once,
    "__delattr__": _delete,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
}
