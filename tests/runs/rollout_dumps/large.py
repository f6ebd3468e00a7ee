"""A program: write a dump of so many megabytes, read it, print the peak of memory and the count."""

from __future__ import annotations

import sys
from pathlib import Path

import orjson

from grpodoctor.frameworks.rollout_formats.registry import dumps_among
from grpodoctor.runs.rollout_dumps import runners
from grpodoctor.runs.rollout_dumps.dump_reader import DumpReader
from grpodoctor.support.files.regular_files import files_below


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


def peak() -> int:
    """Megabytes that this program had at most; `getrusage` would count those of its parent."""
    status = Path("/proc/self/status").read_text()
    (line,) = (each for each in status.splitlines() if each.startswith("VmHWM:"))
    return int(line.split()[1]) // 1000


def main() -> None:
    """Arguments: directory, megabytes, files."""
    root, megabytes, files = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    write(root, megabytes, files)
    # A worker of a pool does just what this process does.
    reader = DumpReader(dumps_among(files_below(root)), runner=runners.in_process)
    steps = sum(1 for _ in reader.steps())
    print(steps, reader.responses, peak())


if __name__ == "__main__":
    main()
