"""Run every benchmark, or those whose names are given: `make bench`, `python -m tests.benchmarks`.

Each is a program of its own, so that its memory and threads are its own too.
"""

import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Run the benchmarks one after another; the exit code is the number that failed."""
    programs = sorted(Path(__file__).parent.glob("bench_*.py"))
    wanted = sys.argv[1:]
    failed = 0
    for program in programs:
        if wanted and program.stem.removeprefix("bench_") not in wanted:
            continue
        print(f"\n── {program.stem} " + "─" * (76 - len(program.stem)), flush=True)
        failed += subprocess.run([sys.executable, str(program)], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
