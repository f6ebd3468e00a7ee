"""Reasons of pydantic's errors in plain words."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from grpodoctor.support.validation_reasons import first_reason, plain_reason


def _refuse(_: int) -> int:
    raise ValueError("Even numbers are not allowed")


class Form(BaseModel):
    """One field of each kind."""

    model_config = ConfigDict(extra="forbid")
    whole: Annotated[int, Field(ge=1, le=60)] = 1
    real: Annotated[float, Field(gt=0, lt=1)] = 0.5
    flag: bool = True
    text: str = ""
    table: dict[str, int] = {}
    choice: Literal["a", "b"] = "a"
    own: Annotated[int, AfterValidator(_refuse)] = 0
    needed: int


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"whole": "x"}, "whole: must be an integer"),
        ({"whole": 0}, "whole: must be at least 1"),
        ({"whole": 61}, "whole: must be at most 60"),
        ({"real": 0}, "real: must be above 0"),
        ({"real": 1}, "real: must be below 1"),
        ({"real": "x"}, "real: must be a number"),
        ({"flag": "x"}, "flag: must be true or false"),
        ({"text": 1}, "text: must be text"),
        ({"table": 1}, "table: must be a table"),
        ({"choice": "c"}, "choice: must be 'a' or 'b'"),
        ({"own": 1}, "own: even numbers are not allowed"),
        ({"wrong": 1}, "wrong: is not a known key"),
    ],
)
def test_a_reason_names_the_key_and_has_no_wording_of_the_library(
    given: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValidationError) as raised:
        Form(needed=1, **given)
    assert first_reason(raised.value) == reason


def test_a_missing_key_and_an_own_message() -> None:
    with pytest.raises(ValidationError) as raised:
        Form()  # type: ignore[call-arg]  # the missing key is the case
    assert first_reason(raised.value) == "needed: is missing"
    assert plain_reason("The file has no rows") == "the file has no rows"
