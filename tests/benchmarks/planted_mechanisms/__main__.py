"""Print how often the first line of `check` names the mechanism that breaks a trained run.

python -m tests.benchmarks.planted_mechanisms --seed 1
python -m tests.benchmarks.planted_mechanisms --seed 1 --only entropy trl --misses
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.benchmarks.planted_mechanisms.examination import cases, examine
from tests.benchmarks.planted_mechanisms.plants import HEALTHY, MECHANISMS
from tests.benchmarks.planted_runs.__main__ import run_examination
from tests.benchmarks.planted_runs.examination import Answer


def _examine(name: str, layout: str, seed: str, kept: str | None) -> Answer:
    chosen = {**MECHANISMS, **HEALTHY}[name]
    if kept:
        directory = Path(kept) / name / layout.replace(" ", "-").replace(",", "")
        directory.mkdir(parents=True, exist_ok=True)
        return examine(chosen, layout, seed, directory)
    with tempfile.TemporaryDirectory(prefix="mechanisms-") as temporary:
        return examine(chosen, layout, seed, Path(temporary))


def main() -> None:
    """Examine the mechanisms of a seed."""
    run_examination(__doc__, cases, _examine, formats=3, keeps=True)


if __name__ == "__main__":
    main()
