"""Base class of all configuration sections."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError


class Section(BaseModel):
    """Frozen settings; unknown keys and infinite values are errors."""

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


def _takes_bool(annotation: Any) -> bool:
    """Whether a field is a switch, or a section, which validates its own fields."""
    if isinstance(annotation, type) and issubclass(annotation, Section | bool):
        return True
    return any(map(_takes_bool, get_args(annotation)))
