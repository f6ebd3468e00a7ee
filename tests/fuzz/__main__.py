"""Feed damaged files to every reader: `make fuzz`, `python -m tests.fuzz [OPTIONS]`.

Prints a table of the inputs, processor seconds and outcomes per reader, and a command that writes
each input that broke the contract. The exit code is 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import os
import secrets
import time
from pathlib import Path

from tests.fuzz import campaign
from tests.fuzz.targets.catalogue import all_targets
from tests.fuzz.worker import read_one, target_named, write_input


def main() -> int:
    """Run a campaign, or make one input again."""
    chosen = _arguments()
    if chosen.number is not None:
        return _one(chosen)
    targets = [each for each in all_targets() if not chosen.target or each.name in chosen.target]
    began = time.monotonic()
    tallies = campaign.run(
        targets, chosen.inputs, chosen.seed, jobs=chosen.jobs, seconds=chosen.seconds
    )
    _show(tallies, chosen.seed, time.monotonic() - began)
    return int(any(tally.findings for tally in tallies.values()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--inputs", type=int, default=100_000, help="inputs of all readers together"
    )
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time limit")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--target", action="append", help="name of a reader; may be repeated")
    parser.add_argument("--number", type=int, help="read this input of --target alone, here")
    parser.add_argument("--keep", type=Path, help="folder in which --number leaves the input")
    return parser.parse_args()


def _one(chosen: argparse.Namespace) -> int:
    target = target_named(chosen.target[0])
    if chosen.keep:
        print(write_input(target, chosen.seed, chosen.number, chosen.keep))
        target.read(chosen.keep / target.file)
    else:
        print(read_one(target, chosen.seed, chosen.number, Path("/tmp")))  # noqa: S108
    return 0


def _show(tallies: dict[str, campaign.Tally], seed: int, wall: float) -> None:
    print(f"| {'reader':34} | inputs | read | refused | broken | processor seconds |")
    print(f"|{'-' * 36}|-------:|-----:|--------:|-------:|------------------:|")
    for name, tally in tallies.items():
        counts = tally.outcomes
        print(f"| {name:34} | {tally.inputs:,} | {counts['read']:,} | {counts['refused']:,} "
              f"| {counts['broken']:,} | {tally.seconds:.0f} |")  # fmt: skip
    inputs = sum(tally.inputs for tally in tallies.values())
    broken = sum(tally.outcomes["broken"] for tally in tallies.values())
    print(f"\n{inputs:,} inputs for {len(tallies)} readers, seed {seed}, {wall:.0f} seconds; "
          f"{broken} broke the contract")  # fmt: skip
    for tally in tallies.values():
        for finding in tally.findings:
            print(f"\n{finding.target}, input {finding.number}: {finding.what}\n  python -m "
                  f"tests.fuzz --target '{finding.target}' --seed {seed} "
                  f"--number {finding.number} --keep FOLDER")  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
