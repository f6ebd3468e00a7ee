"""A part of the planted faults and healthy sets; `make planted-preflight` examines all of them."""

import re
from pathlib import Path

import pytest

from tests.preflight.planted.cases import Case, examine
from tests.preflight.planted.eighth_examination import eighth_faults, eighth_healthy
from tests.preflight.planted.eleventh_examination import eleventh_faults, eleventh_healthy
from tests.preflight.planted.examination import examination_faults, examination_healthy
from tests.preflight.planted.faults import all_faults
from tests.preflight.planted.fifteenth_examination import fifteenth_faults, fifteenth_healthy
from tests.preflight.planted.fifth_examination import fifth_faults, fifth_healthy
from tests.preflight.planted.fourteenth_examination import fourteenth_faults, fourteenth_healthy
from tests.preflight.planted.fourth_examination import fourth_faults, fourth_healthy
from tests.preflight.planted.healthy import all_healthy
from tests.preflight.planted.ninth_examination import ninth_faults, ninth_healthy
from tests.preflight.planted.second_examination import second_faults, second_healthy
from tests.preflight.planted.seventh_examination import seventh_faults, seventh_healthy
from tests.preflight.planted.sixth_examination import sixth_faults, sixth_healthy
from tests.preflight.planted.tenth_examination import tenth_faults, tenth_healthy
from tests.preflight.planted.third_examination import third_faults, third_healthy
from tests.preflight.planted.thirteenth_examination import thirteenth_faults, thirteenth_healthy
from tests.preflight.planted.twelfth_examination import twelfth_faults, twelfth_healthy
from tests.samples import sampled

_CHOSEN = [
    *all_faults()[::4],
    *examination_faults()[::2],
    *second_faults()[::2],
    *third_faults()[::3],
    *fourth_faults()[::2],
    *fifth_faults()[::2],
    *sixth_faults()[1::2],
    *seventh_faults()[::5],
    *eighth_faults()[:-1:3],
    *ninth_faults()[::3],
    *tenth_faults()[::7],
    *eleventh_faults()[2::5],
    *twelfth_faults()[3::5],
    *thirteenth_faults()[6::12],
    *fourteenth_faults()[11:13],
    *fifteenth_faults()[4:6],
    *(case for case in sixth_faults()[::2] if re.search("DAT122|CFG|REW10.16", case.named)),
]
_FAULTS = list({case.named: case for case in _CHOSEN}.values())  # one case of each finding
_HEALTHY = [
    *all_healthy()[::6],
    *examination_healthy()[::4],
    *second_healthy()[::2],
    *third_healthy()[::4],
    *fifth_healthy()[::2],
    *sixth_healthy()[1::4],
    *seventh_healthy()[::6],
    *eighth_healthy()[::4],
    *ninth_healthy()[::5],
    *tenth_healthy()[::6],
    *eleventh_healthy()[1::4],
    *twelfth_healthy()[3::4],
    *thirteenth_healthy()[4::5],
    *fourteenth_healthy()[5::9],
    *fifteenth_healthy()[2:3],
]


_PROGRAMS = re.compile("exits passes the tests|without a name in the prompt")
"""Cases that start hundreds of programs."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case, marks=pytest.mark.slow if number % 2 or _PROGRAMS.search(case.name) else ()
        )
        for number, case in enumerate(_FAULTS)
    ],
    ids=lambda case: case.name,
)
def test_a_planted_fault_is_named(case: Case, tmp_path: Path) -> None:
    examined = examine(case, tmp_path)
    assert examined.is_named, (examined.alarms, examined.error)


@pytest.mark.parametrize("case", sampled(_HEALTHY, 2), ids=lambda case: case.name)
def test_a_healthy_set_has_no_warning(case: Case, tmp_path: Path) -> None:
    examined = examine(case, tmp_path)
    assert (examined.alarms, examined.error) == ((), "")


_EVERY_CASE = [
    *all_faults(), *all_healthy(), *examination_faults(), *examination_healthy(), *second_faults(),
    *second_healthy(), *third_faults(), *third_healthy(), *fourth_faults(), *fourth_healthy(),
    *fifth_faults(), *fifth_healthy(), *sixth_faults(), *sixth_healthy(), *seventh_faults(),
    *seventh_healthy(), *eighth_faults(), *eighth_healthy(), *ninth_faults(), *ninth_healthy(),
    *tenth_faults(), *tenth_healthy(), *eleventh_faults(), *eleventh_healthy(), *twelfth_faults(),
    *twelfth_healthy(), *thirteenth_faults(), *thirteenth_healthy(),
    *fourteenth_faults(), *fourteenth_healthy(), *fifteenth_faults(), *fifteenth_healthy(),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", _EVERY_CASE, ids=lambda case: case.name)
def test_every_case(case: Case, tmp_path: Path) -> None:
    examined = examine(case, tmp_path)
    assert examined.is_named if case.named else not (examined.alarms or examined.error)
