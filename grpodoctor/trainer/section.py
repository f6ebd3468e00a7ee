"""What every section of the configuration has in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of all sections: frozen; an unknown key is an error, and so is an infinite value."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
