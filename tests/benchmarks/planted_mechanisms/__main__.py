"""Print how often the first line of `check` names the mechanism that breaks a trained run.

python -m tests.benchmarks.planted_mechanisms --seed 1
python -m tests.benchmarks.planted_mechanisms --seed 1 --only entropy trl --misses
"""

from __future__ import annotations

from tests.benchmarks.planted_mechanisms.examination import cases, examine
from tests.benchmarks.planted_mechanisms.plants import HEALTHY, MECHANISMS
from tests.benchmarks.planted_runs.__main__ import log_directory, run_examination
from tests.benchmarks.planted_runs.examination import Answer


def _examine(name: str, layout: str, seed: str, kept: str | None) -> Answer:
    with log_directory(kept, name, layout) as directory:
        return examine({**MECHANISMS, **HEALTHY}[name], layout, seed, directory)


def main() -> None:
    """Examine the mechanisms of a seed."""
    run_examination(__doc__, cases, _examine, formats=3)


if __name__ == "__main__":
    main()
