"""Print how often the first line of `check` names the mechanism that breaks a trained run.

python -m tests.benchmarks.planted_mechanisms --seed 1
python -m tests.benchmarks.planted_mechanisms --seed 1 --only entropy trl --misses
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.benchmarks.planted_mechanisms.examination import cases, examine
from tests.benchmarks.planted_mechanisms.plants import HEALTHY, MECHANISMS, Mechanism
from tests.benchmarks.planted_runs.__main__ import report, unmatched
from tests.benchmarks.planted_runs.examination import Answer


def _examine(name: str, layout: str, seed: str, kept: str | None) -> Answer:
    chosen = {**MECHANISMS, **HEALTHY}[name]
    if kept:
        directory = Path(kept) / name / layout.replace(" ", "-").replace(",", "")
        directory.mkdir(parents=True, exist_ok=True)
        return examine(chosen, layout, seed, directory)
    with tempfile.TemporaryDirectory(prefix="mechanisms-") as temporary:
        return examine(chosen, layout, seed, Path(temporary))


def _answers(
    chosen: Sequence[tuple[Mechanism, str, str]], workers: int, kept: str | None
) -> Iterator[Answer]:
    arguments = [(plant.name, layout, seed, kept) for plant, layout, seed in chosen]
    if workers < 2:
        yield from (_examine(*each) for each in arguments)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(_examine, *zip(*arguments, strict=True))


def main() -> None:
    """Examine the runs of a seed and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="each seed is another examination")
    parser.add_argument("--only", nargs="+", default=[], help="parts of names or formats")
    parser.add_argument("--formats", type=int, default=3, help="formats per mechanism; 0 for all")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--misses", action="store_true", help="print the first lines of misses")
    parser.add_argument("--keep", metavar="DIR", help="keep the logs in a directory")
    options = parser.parse_args()
    chosen = list(cases(options.seed, options.only, options.formats))
    if unknown := unmatched(options.only, chosen):
        sys.exit(
            f"--only: no run of this seed has {', '.join(map(repr, unknown))} in its name or "
            "format; --formats 0 examines every format"
        )
    answers = []
    for answer in _answers(chosen, options.workers, options.keep):
        answers.append(answer)
        if sys.stderr.isatty():
            print(f"\r{len(answers)}/{len(chosen)}", end="", file=sys.stderr, flush=True)
    print(*report(answers, misses=options.misses), sep="\n")


if __name__ == "__main__":
    main()
