"""Prints which planted faults a preflight names, and the alarms on healthy sets.

    python -m tests.benchmarks.planted_preflight [NAME …] [--tell]

NAME is a part of a case's name, or of the title of a set, such as "set 21". The numbers are those
of docs/preflight-results.md; set 5 is not in the repository. `--tell` prints all findings. All sets
take about 20 minutes.
"""

from __future__ import annotations

import re
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
    "set 1": all_faults(),
    "set 1, healthy": all_healthy(),
    "set 2": unseen_faults(),
    "set 2, healthy": unseen_healthy(),
    "set 3": examination_faults(),
    "set 3, healthy": examination_healthy(),
    "set 4": second_faults(),
    "set 4, healthy": second_healthy(),
    "set 6": third_faults(),
    "set 6, healthy": third_healthy(),
    "set 7": fourth_faults(),
    "set 7, healthy": fourth_healthy(),
    "set 8": fifth_faults(),
    "set 8, healthy": fifth_healthy(),
    "set 9": sixth_faults(),
    "set 9, healthy": sixth_healthy(),
    "set 10": seventh_faults(),
    "set 10, healthy": seventh_healthy(),
    "set 11": eighth_faults(),
    "set 11, healthy": eighth_healthy(),
    "set 12": ninth_faults(),
    "set 12, healthy": ninth_healthy(),
    "set 13": tenth_faults(),
    "set 13, healthy": tenth_healthy(),
    "set 14": eleventh_faults(),
    "set 14, healthy": eleventh_healthy(),
    "set 15": twelfth_faults(),
    "set 15, healthy": twelfth_healthy(),
    "set 16": thirteenth_faults(),
    "set 16, healthy": thirteenth_healthy(),
    "set 17": fourteenth_faults(),
    "set 17, healthy": fourteenth_healthy(),
    "set 18": fifteenth_faults(),
    "set 18, healthy": fifteenth_healthy(),
    "set 19, half A": tuple(first_half()),
    "set 19, half A, healthy": tuple(healthy_first()),
    "set 19, half B": tuple(second_half()),
    "set 19, half B, healthy": tuple(healthy_second()),
    "set 20, half A": tuple(seventeenth_a()),
    "set 20, half A, healthy": tuple(seventeenth_healthy_a()),
    "set 20, half B": tuple(seventeenth_b()),
    "set 20, half B, healthy": tuple(seventeenth_healthy_b()),
    "set 21, half A": tuple(case for case in eighteenth_a() if case.named),
    "set 21, half A, healthy": tuple(eighteenth_healthy_a()),
    "set 21, half B": tuple(case for case in eighteenth_b() if case.named),
    "set 21, half B, healthy": tuple(eighteenth_healthy_b()),
    "set 22, half A": nineteenth_a(),
    "set 22, half A, healthy": nineteenth_healthy_a(),
    "set 22, half B": nineteenth_b(),
    "set 22, half B, healthy": nineteenth_healthy_b(),
    "set 23, half A, healthy": twentieth_healthy_a(),
    "set 23, half B, healthy": twentieth_healthy_b(),
    "set 23, further, healthy": tuple(further_sets()),
    "set 24, half A": twentyfirst_a(),
    "set 24, half B": twentyfirst_b(),
}


def main(parts: Iterable[str]) -> None:
    """Examine the cases and print a table."""
    tell = "--tell" in (parts := tuple(parts))
    parts = tuple(part for part in parts if part != "--tell")
    found = False
    with tempfile.TemporaryDirectory() as folder:
        for title, cases in _SETS.items():
            chosen = [
                case
                for case in cases
                if not parts or any(part in case.name or _is_of(part, title) for part in parts)
            ]
            if chosen:
                found = True
                _print_all(title, chosen, Path(folder), tell=tell)

    if not found:
        sys.exit(f"no set or case has {' or '.join(parts)} in its name, such as 'set 24'")


def _is_of(part: str, title: str) -> bool:
    """Whether a title has a part; "set 2" is no part of "set 21"."""
    return re.search(rf"{re.escape(part)}(?!\d)", title) is not None


def _print_all(title: str, cases: list[Case], folder: Path, *, tell: bool) -> None:
    hits = 0
    for number, case in enumerate(cases):
        examined = examine(case, folder / f"{title}-{number}")
        hit = examined.is_named if case.named else not (examined.alarms or examined.error)
        hits += hit
        rest = _all_findings(examined) if tell else _rest(case, examined, hit=hit)
        print(f"{'yes' if hit else 'NO '} {case.name}{rest}", flush=True)
    verdict = "without an alarm" if title.endswith("healthy") else "named"
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
