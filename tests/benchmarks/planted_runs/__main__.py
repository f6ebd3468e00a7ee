"""Print how often the first line of `check` names a planted cause.

python -m tests.benchmarks.planted_runs --seed 1
python -m tests.benchmarks.planted_runs --seed 1 --only entropy trl --misses
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.planted_runs.examination import Answer, Planted, cases, examine
from tests.benchmarks.planted_runs.plants import CAUSES, HEALTHY


def _examine(name: str, layout: str, seed: str, kept: str | None) -> Answer:
    with log_directory(kept, name, layout) as directory:
        return examine({**CAUSES, **HEALTHY}[name], layout, seed, directory)


@contextmanager
def log_directory(kept: str | None, name: str, layout: str) -> Iterator[Path]:
    """A directory for the log of a run: below `kept`, or a temporary one."""
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="planted-") as temporary:
            yield Path(temporary)
        return
    directory = Path(kept) / name / layout.replace(" ", "-").replace(",", "")
    directory.mkdir(parents=True, exist_ok=True)
    yield directory


def _in_workers(
    examine: Callable[..., Answer], arguments: Sequence[tuple[object, ...]], workers: int
) -> Iterator[Answer]:
    if workers < 2:
        yield from (examine(*each) for each in arguments)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(examine, *zip(*arguments, strict=True))


def _table(title: str, answers: Sequence[Answer], by: Callable[[Answer], str]) -> Iterator[str]:
    """One row for each cause or format: planted, named first, named, missed."""
    groups: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        groups[by(answer)].append(answer)
    yield f"| {title} | planted | named first | named later | missed | first lines without it |"
    yield "|---|---|---|---|---|---|"
    for name, group in groups.items():
        first = sum(answer.is_named_first for answer in group)
        named = sum(answer.is_named for answer in group)
        others = dict.fromkeys(
            f"{answer.layout}: {' '.join(sorted(answer.first)) or answer.kind}"
            for answer in group
            if not answer.is_named_first
        )
        yield (
            f"| {name} | {len(group)} | {first} | {named - first} | {len(group) - named} | "
            f"{'; '.join(others)} |"
        )


def report(answers: Sequence[Answer], *, misses: bool) -> Iterator[str]:
    """Tables of causes, formats and healthy runs, and the totals."""
    sick = [answer for answer in answers if answer.plant.codes]
    healthy = [answer for answer in answers if not answer.plant.codes]
    yield from _table("cause", sick, lambda answer: answer.plant.name)
    yield ""
    yield from _table("format", sick, lambda answer: answer.layout)
    yield ""
    yield "| healthy run | runs | without alarm | alarms |"
    yield "|---|---|---|---|"
    for name in dict.fromkeys(answer.plant.name for answer in healthy):
        group = [answer for answer in healthy if answer.plant.name == name]
        wrong = [f"{a.layout}: {' '.join(a.alarms)}" for a in group if not a.is_named_first]
        yield f"| {name} | {len(group)} | {len(group) - len(wrong)} | {'; '.join(wrong)} |"
    first, named = sum(a.is_named_first for a in sick), sum(a.is_named for a in sick)
    quiet = sum(a.is_named_first for a in healthy)
    yield ""
    if sick:
        yield (
            f"planted: {first} of {len(sick)} named first ({first / len(sick):.1%}), {named} named"
        )
    yield f"healthy: {len(healthy) - quiet} of {len(healthy)} with an alarm"
    if misses:
        yield ""
        for answer in answers:
            if not answer.is_named_first:
                yield f"{answer.plant.name}, {answer.layout}: {answer.line}"
                yield f"    {' '.join(answer.findings)}"


def _unmatched(only: Sequence[str], chosen: Sequence[tuple[Planted, str, str]]) -> list[str]:
    """The parts of names that match no chosen run."""
    names = [f"{plant.name} {layout}" for plant, layout, _ in chosen]
    return [part for part in only if not any(part in name for name in names)]


def run_examination(
    description: str | None,
    draw: Callable[[int, Sequence[str], int], Iterable[tuple[Planted, str, str]]],
    examine: Callable[..., Answer],
    *,
    formats: int,
) -> None:
    """Examine the runs of a seed, as the command line says, and print the tables.

    Args:
        description: of the command.
        draw: the runs of a seed whose names contain one of some parts, in so many formats each.
        examine: called with a name, a format, a seed, and the directory for the logs or None.
        formats: formats of each cause, if the command line names no number.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seed", type=int, default=1, help="each seed is another examination")
    parser.add_argument("--only", nargs="+", default=[], help="parts of names or formats")
    parser.add_argument("--formats", type=int, default=formats, help="formats per cause; 0 for all")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--misses", action="store_true", help="print the first lines of misses")
    parser.add_argument("--keep", metavar="DIR", help="keep the logs in a directory")
    options = parser.parse_args()
    chosen = list(draw(options.seed, options.only, options.formats))
    if unknown := _unmatched(options.only, chosen):
        sys.exit(
            f"--only: no planted run of this seed has {', '.join(map(repr, unknown))} in its "
            "name or format; --formats 0 examines every format"
        )
    arguments = [(plant.name, layout, seed, options.keep) for plant, layout, seed in chosen]
    answers = []
    for answer in _in_workers(examine, arguments, options.workers):
        answers.append(answer)
        if sys.stderr.isatty():
            print(f"\r{len(answers)}/{len(chosen)}", end="", file=sys.stderr, flush=True)
    print(*report(answers, misses=options.misses), sep="\n")


def main() -> None:
    """Examine the planted causes of a seed."""
    run_examination(__doc__, cases, _examine, formats=4)


if __name__ == "__main__":
    main()
