"""A program: write a dump of so many megabytes, read it, print the peak of memory and the count."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import orjson

from grpodoctor.runs.carriers.catalogue import logs_in
from grpodoctor.runs.dumps import runners
from grpodoctor.runs.dumps.catalogue import dumps_among
from grpodoctor.runs.dumps.reading import DumpReader


def write(root: Path, megabytes: int, files: int) -> None:
    """verl's format; one file holds several hundred megabytes when the dump is of gigabytes."""
    words = b"so then we add both sides wait the number is even and therefore odd "
    share = megabytes * 1_000_000 // files
    for step in range(1, files + 1):
        with (root / f"{step}.jsonl").open("wb") as file:
            row = 0
            while file.tell() < share:
                file.write(b"".join(_line(step, each, words) for each in range(row, row + 64)))
                row += 64


def _line(step: int, row: int, words: bytes) -> bytes:
    output = (words * 60)[row % 61 :].decode() + str(row)
    head = {"input": f"p{row // 8}", "output": output, "gts": "", "score": float(row % 3 == 0)}
    return orjson.dumps({**head, "step": step}) + b"\n"


def peak(who: int) -> float:
    """Megabytes."""
    return resource.getrusage(who).ru_maxrss / 1000


def main() -> None:
    """Arguments: directory, megabytes, files, and whether in a pool."""
    root, megabytes, files = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    write(root, megabytes, files)
    runner = runners.pooled(2) if sys.argv[4] == "pool" else runners.here
    reader = DumpReader(dumps_among(logs_in(root)), runner=runner)
    steps = sum(1 for _ in reader.steps())
    workers = peak(resource.RUSAGE_CHILDREN)
    print(steps, reader.responses, f"{peak(resource.RUSAGE_SELF):.0f}", f"{workers:.0f}")


if __name__ == "__main__":
    main()
