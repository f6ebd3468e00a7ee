"""Base class of all configuration sections."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

MAX_INTEGER = 2**63 - 1


class ConfigSection(BaseModel):
    """Frozen settings; unknown keys, infinite values and integers beyond 64 bits are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_bool_for_number(cls, value: object, info: ValidationInfo) -> object:
        """Refuse `steps=true`, which pydantic would read as 1."""
        if isinstance(value, bool) and not _takes_bool(
            cls.model_fields[str(info.field_name)].annotation
        ):
            raise PydanticCustomError("not_bool", "it does not take true or false")
        return value

    @field_validator("*", mode="after")
    @classmethod
    def _refuse_huge_integer(cls, value: object) -> object:
        """Refuse integers that no checkpoint can hold."""
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            raise PydanticCustomError("too_large", "it does not fit into 64 bits")
        return value


def _takes_bool(annotation: Any) -> bool:
    """Whether a field is a switch, or a section, which validates its own fields."""
    if isinstance(annotation, type) and issubclass(annotation, ConfigSection | bool):
        return True
    return any(map(_takes_bool, get_args(annotation)))
