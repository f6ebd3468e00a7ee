"""What every section of the configuration has in common."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError


class Section(BaseModel):
    """Base of all sections: frozen; an unknown key is an error, and so is an infinite value."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_truth_value(cls, value: object, info: ValidationInfo) -> object:
        """Refuse `steps=true`, which would count as 1."""
        if isinstance(value, bool) and not _takes_bool(
            cls.model_fields[str(info.field_name)].annotation
        ):
            raise PydanticCustomError("truth_value", "it does not take true or false")
        return value


def _takes_bool(annotation: Any) -> bool:
    """Sections say themselves what they are, and so does a union that has one among its kinds."""
    if isinstance(annotation, type) and issubclass(annotation, Section | bool):
        return True
    return any(map(_takes_bool, get_args(annotation)))
