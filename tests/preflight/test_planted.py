"""A part of the planted faults and healthy sets; `make planted-preflight` examines all of them."""

from pathlib import Path

import pytest

from tests.preflight.planted.cases import Case, examine
from tests.preflight.planted.faults import all_faults
from tests.preflight.planted.healthy import all_healthy


@pytest.mark.parametrize("case", all_faults()[::4], ids=lambda case: case.name)
def test_a_planted_fault_is_named(case: Case, tmp_path: Path) -> None:
    examined = examine(case, tmp_path)
    assert examined.is_named, (examined.alarms, examined.error)


@pytest.mark.parametrize("case", all_healthy()[::3], ids=lambda case: case.name)
def test_a_healthy_set_has_no_warning(case: Case, tmp_path: Path) -> None:
    examined = examine(case, tmp_path)
    assert (examined.alarms, examined.error) == ((), "")


@pytest.mark.slow
@pytest.mark.parametrize("case", [*all_faults(), *all_healthy()], ids=lambda case: case.name)
def test_every_case(case: Case, tmp_path: Path) -> None:
    examined = examine(case, tmp_path)
    assert examined.is_named if case.named else not (examined.alarms or examined.error)
