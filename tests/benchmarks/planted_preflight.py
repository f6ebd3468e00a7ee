"""Prints which planted faults a preflight names, and the alarms on healthy sets.

    python -m tests.benchmarks.planted_preflight [NAME …] [--tell]

NAME is a part of a case's name, or of the title of a set. `--tell` prints all findings. All sets
take about 20 minutes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.preflight.planted.cases import Case, Examined, examine
from tests.preflight.planted.eighteenth_first import first_half as eighteenth_a
from tests.preflight.planted.eighteenth_healthy import healthy_first as eighteenth_healthy_a
from tests.preflight.planted.eighteenth_healthy import healthy_second as eighteenth_healthy_b
from tests.preflight.planted.eighteenth_second import second_half as eighteenth_b
from tests.preflight.planted.eighth_examination import eighth_faults, eighth_healthy
from tests.preflight.planted.eleventh_examination import eleventh_faults, eleventh_healthy
from tests.preflight.planted.examination import examination_faults, examination_healthy
from tests.preflight.planted.faults import all_faults
from tests.preflight.planted.fifteenth_examination import fifteenth_faults, fifteenth_healthy
from tests.preflight.planted.fifth_examination import fifth_faults, fifth_healthy
from tests.preflight.planted.fourteenth_examination import fourteenth_faults, fourteenth_healthy
from tests.preflight.planted.fourth_examination import fourth_faults, fourth_healthy
from tests.preflight.planted.healthy import all_healthy
from tests.preflight.planted.nineteenth_examination import first_half as nineteenth_a
from tests.preflight.planted.nineteenth_examination import second_half as nineteenth_b
from tests.preflight.planted.nineteenth_healthy import healthy_first as nineteenth_healthy_a
from tests.preflight.planted.nineteenth_healthy import healthy_second as nineteenth_healthy_b
from tests.preflight.planted.ninth_examination import ninth_faults, ninth_healthy
from tests.preflight.planted.second_examination import second_faults, second_healthy
from tests.preflight.planted.seventeenth_first import first_half as seventeenth_a
from tests.preflight.planted.seventeenth_healthy import healthy_first as seventeenth_healthy_a
from tests.preflight.planted.seventeenth_healthy import healthy_second as seventeenth_healthy_b
from tests.preflight.planted.seventeenth_second import second_half as seventeenth_b
from tests.preflight.planted.seventh_examination import seventh_faults, seventh_healthy
from tests.preflight.planted.sixteenth_first import first_half
from tests.preflight.planted.sixteenth_healthy import healthy_first, healthy_second
from tests.preflight.planted.sixteenth_second import second_half
from tests.preflight.planted.sixth_examination import sixth_faults, sixth_healthy
from tests.preflight.planted.tenth_examination import tenth_faults, tenth_healthy
from tests.preflight.planted.third_examination import third_faults, third_healthy
from tests.preflight.planted.thirteenth_examination import thirteenth_faults, thirteenth_healthy
from tests.preflight.planted.twelfth_examination import twelfth_faults, twelfth_healthy
from tests.preflight.planted.twentieth_examination import healthy_first as twentieth_healthy_a
from tests.preflight.planted.twentieth_examination import healthy_second as twentieth_healthy_b
from tests.preflight.planted.twentieth_further import further_sets
from tests.preflight.planted.twentyfirst_examination import first_half as twentyfirst_a
from tests.preflight.planted.twentyfirst_examination import second_half as twentyfirst_b
from tests.preflight.planted.unseen import unseen_faults, unseen_healthy

_SETS = {
    "planted": all_faults(),
    "healthy": all_healthy(),
    "planted afterwards": unseen_faults(),
    "healthy, made afterwards": unseen_healthy(),
    "planted in the examination": examination_faults(),
    "healthy, in the examination": examination_healthy(),
    "planted in the second examination": second_faults(),
    "healthy, in the second examination": second_healthy(),
    "planted in the third examination": third_faults(),
    "healthy, in the third examination": third_healthy(),
    "planted in the fourth examination": fourth_faults(),
    "healthy, in the fourth examination": fourth_healthy(),
    "planted in the fifth examination": fifth_faults(),
    "healthy, in the fifth examination": fifth_healthy(),
    "planted in the sixth examination": sixth_faults(),
    "healthy, in the sixth examination": sixth_healthy(),
    "planted in the seventh examination": seventh_faults(),
    "healthy, in the seventh examination": seventh_healthy(),
    "planted in the eighth examination": eighth_faults(),
    "healthy, in the eighth examination": eighth_healthy(),
    "planted in the ninth examination": ninth_faults(),
    "healthy, in the ninth examination": ninth_healthy(),
    "planted in the tenth examination": tenth_faults(),
    "healthy, in the tenth examination": tenth_healthy(),
    "planted in the eleventh examination": eleventh_faults(),
    "healthy, in the eleventh examination": eleventh_healthy(),
    "planted in the twelfth examination": twelfth_faults(),
    "healthy, in the twelfth examination": twelfth_healthy(),
    "planted in the thirteenth examination": thirteenth_faults(),
    "healthy, in the thirteenth examination": thirteenth_healthy(),
    "planted in the fourteenth examination": fourteenth_faults(),
    "healthy, in the fourteenth examination": fourteenth_healthy(),
    "planted in the fifteenth examination": fifteenth_faults(),
    "healthy, in the fifteenth examination": fifteenth_healthy(),
    "planted in the sixteenth examination, half A": tuple(first_half()),
    "healthy, in the sixteenth examination, half A": tuple(healthy_first()),
    "planted in the sixteenth examination, half B": tuple(second_half()),
    "healthy, in the sixteenth examination, half B": tuple(healthy_second()),
    "planted in the seventeenth examination, half A": tuple(seventeenth_a()),
    "healthy, in the seventeenth examination, half A": tuple(seventeenth_healthy_a()),
    "planted in the seventeenth examination, half B": tuple(seventeenth_b()),
    "healthy, in the seventeenth examination, half B": tuple(seventeenth_healthy_b()),
    "planted in the eighteenth examination, half A": tuple(
        case for case in eighteenth_a() if case.named
    ),
    "healthy, in the eighteenth examination, half A": tuple(eighteenth_healthy_a()),
    "planted in the eighteenth examination, half B": tuple(
        case for case in eighteenth_b() if case.named
    ),
    "healthy, in the eighteenth examination, half B": tuple(eighteenth_healthy_b()),
    "planted in the nineteenth examination, half A": nineteenth_a(),
    "healthy, in the nineteenth examination, half A": nineteenth_healthy_a(),
    "planted in the nineteenth examination, half B": nineteenth_b(),
    "healthy, in the nineteenth examination, half B": nineteenth_healthy_b(),
    "healthy, in the twentieth examination, half A": twentieth_healthy_a(),
    "healthy, in the twentieth examination, half B": twentieth_healthy_b(),
    "healthy, further in the twentieth examination": tuple(further_sets()),
    "planted in the twenty-first examination, half A": twentyfirst_a(),
    "planted in the twenty-first examination, half B": twentyfirst_b(),
}


def main(parts: Iterable[str]) -> None:
    """Examine the cases and print a table."""
    tell = "--tell" in (parts := tuple(parts))
    parts = tuple(part for part in parts if part != "--tell")
    with tempfile.TemporaryDirectory() as folder:
        for title, cases in _SETS.items():
            chosen = [
                case
                for case in cases
                if not parts or any(part in case.name or part in title for part in parts)
            ]
            if chosen:
                _print_all(title, chosen, Path(folder), tell=tell)


def _print_all(title: str, cases: list[Case], folder: Path, *, tell: bool) -> None:
    hits = 0
    for number, case in enumerate(cases):
        examined = examine(case, folder / f"{title}-{number}")
        hit = examined.is_named if case.named else not (examined.alarms or examined.error)
        hits += hit
        rest = _all_findings(examined) if tell else _rest(case, examined, hit=hit)
        print(f"{'yes' if hit else 'NO '} {case.name}{rest}", flush=True)
    verdict = "named" if title.startswith("planted") else "without an alarm"
    print(f"{title}: {hits} of {len(cases)} {verdict}\n")


def _all_findings(examined: Examined) -> str:
    """Everything that the preflight says, for grading by hand."""
    lines = [examined.error] if examined.error else []
    return "".join(f"\n      {line}" for line in [*lines, *examined.alarms, *examined.notes])


def _rest(case: Case, examined: Examined, *, hit: bool) -> str:
    """What else the preflight says."""
    lines = [examined.error] if examined.error else []
    if not hit or len(examined.alarms) > 1:
        lines += examined.alarms
    return "".join(f"\n      {line[:170]}" for line in lines)


if __name__ == "__main__":
    main(sys.argv[1:])
