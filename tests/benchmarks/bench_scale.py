"""Reading long runs: processor time, rows per second and peak memory, next to plain parsers.

Each reader is a process of its own on one core. `check` includes rules, diagnosis and the report;
`read` stops at the steps. Processor time counts, because other programs on the machine do not
change it much.

    python tests/benchmarks/bench_scale.py [--part N]

`--part 10` uses a tenth of each size.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

STEPS = 100_000
ROWS = 2_000_000
EVENT_FILES = 10_000
EVENTS_PER_FILE, TAGS = 3, 5

KEYS = (
    "loss", "grad_norm", "learning_rate", "num_tokens", "reward", "reward_std", "kl", "entropy",
    "frac_reward_zero_std", "completions/mean_length", "completions/min_length",
    "completions/max_length", "completions/clipped_ratio", "completions/mean_terminated_length",
    "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean", "epoch", "step_time",
)  # fmt: skip
"""With the step 20 keys, as TRL writes them."""


def write_rows(path: Path, count: int) -> None:
    """JSON lines whose values change from row to row."""
    with path.open("w") as file:
        for step in range(1, count + 1):
            wave = (step * 2_654_435_761 % 2**32) / 2**32
            row = {key: round(0.3 + 0.01 * place + 0.1 * wave, 6) for place, key in enumerate(KEYS)}
            file.write(json.dumps({"step": step, **row}) + "\n")


def write_own_run(folder: Path, count: int) -> None:
    """A run of our recorder: its own lines, without rollouts."""
    from grpodoctor.runs.records import MANIFEST, STEPS, Manifest, StepRecord
    from grpodoctor.vocabulary.values import Mean

    names = (
        "reward/mean", "reward/std", "length/mean", "entropy/mean", "kl/reference", "clip/low_rate",
        "clip/high_rate", "optimizer/grad_norm", "optimizer/learning_rate", "optimizer/loss",
        "ratio/mean", "length/max", "groups/effective_rate", "groups/zero_variance_rate",
        "advantage/zero_rate", "time/step", "time/rollout", "time/learn",
        "text/unique_ngram_rate", "length/truncated_rate",
    )  # fmt: skip
    folder.mkdir()
    (folder / MANIFEST).write_bytes(Manifest().to_json())
    with (folder / STEPS).open("wb") as file:
        for step in range(1, count + 1):
            wave = (step * 2_654_435_761 % 2**32) / 2**32
            values = {name: Mean.of([0.3 + 0.1 * wave, 0.4]) for name in names}
            file.write(StepRecord(step=step, values=values).to_line())


def write_events(folder: Path, count: int) -> None:
    """TensorBoard files of a few steps each, as a job that is launched again and again leaves."""
    from grpodoctor.runs.log_formats.decoding.crc32c import masked_crcs

    folder.mkdir()
    for number in range(count):
        path = folder / f"events.out.tfevents.{1_700_000_000 + number}.host.{number}.0"
        with path.open("wb") as file:
            for offset in range(EVENTS_PER_FILE):
                for tag in KEYS[:TAGS]:
                    message = _event(number * EVENTS_PER_FILE + offset + 1, f"train/{tag}")
                    length = struct.pack("<Q", len(message))
                    sums = masked_crcs([length, message])
                    file.write(length + struct.pack("<I", sums[0]) + message)
                    file.write(struct.pack("<I", sums[1]))


def _event(step: int, tag: str) -> bytes:
    value = _field(1, tag.encode()) + b"\x15" + struct.pack("<f", 0.3 + step % 7 / 100)
    return (
        b"\x09"
        + struct.pack("<d", 1.7e9 + step)
        + b"\x10"
        + _varint(step)
        + _field(5, _field(1, value))
    )


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    digits = []
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


def read(path: Path) -> int:
    """All steps of the run, without examining them."""
    from grpodoctor.runs.reading.opening import open_run

    return sum(1 for _ in open_run(path).steps)


def with_json(path: Path) -> int:
    """Each line parsed by the standard library, and dropped."""
    with path.open() as file:
        return sum(1 for line in file if json.loads(line))


def with_pandas(path: Path) -> int:
    """The whole file as one table."""
    import pandas as pd

    return len(pd.read_json(path, lines=True))


def with_event_loader(folder: Path) -> int:
    """Each file through the loader of the `tensorboard` package."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    return sum(1 for path in folder.iterdir() for _ in EventFileLoader(str(path)).Load())


READERS: dict[str, Callable[[Path], int]] = {
    "grpodoctor, read": read,
    "json.loads per line": with_json,
    "pandas.read_json": with_pandas,
    "tensorboard EventFileLoader": with_event_loader,
}


class Cost:
    """What a finished child used.

    Args:
        command: the child's arguments.
        on_terminal: give it a terminal for stderr, and count what it draws there.
    """

    def __init__(self, command: list[str], *, on_terminal: bool = False) -> None:
        self.pictures = 0
        ends = pty.openpty() if on_terminal else None
        began = time.monotonic()
        child = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=ends[1] if ends else None,
        )
        if ends:
            os.close(ends[1])
            watching = threading.Thread(target=self._count, args=(ends[0],), daemon=True)
            watching.start()
        output = child.stdout.read() if child.stdout else b""
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        self.wall = time.monotonic() - began
        self.seconds = used.ru_utime + used.ru_stime
        self.megabytes = used.ru_maxrss / 1024
        self.code, self.output = child.returncode, output.decode(errors="replace")

    def _count(self, terminal: int) -> None:
        try:
            while drawn := os.read(terminal, 65536):
                self.pictures += len(re.findall(rb"reading", drawn))
        except OSError:  # the child has closed its end
            os.close(terminal)


def reader_cost(name: str, path: Path) -> Cost:
    """Run one of `READERS` in a process of its own.

    Raises:
        SystemExit: if it failed.
    """
    cost = Cost([sys.executable, __file__, "--reader", name, str(path)])
    if cost.code:
        raise SystemExit(f"{name} failed")
    return cost


def check_cost(path: Path) -> Cost:
    """Run `grpodoctor check` with a terminal for its progress bar.

    Raises:
        SystemExit: if it failed.
    """
    cost = Cost(
        [sys.executable, "-m", "grpodoctor", "check", "--json", str(path)], on_terminal=True
    )
    if cost.code not in (0, 1):
        raise SystemExit(f"check failed with exit code {cost.code}")
    return cost


def show(name: str, cost: Cost, count: int, what: str) -> None:
    """Print one line."""
    drawn = f", progress drawn {cost.pictures} times" if cost.pictures else ""
    print(
        f"  {name:30} {cost.seconds:6.1f} s of processor time, {count / cost.seconds:9,.0f} "
        f"{what} per second, peak {cost.megabytes:6.0f} MB{drawn}",
        flush=True,
    )


def parts(part: int, folder: Path) -> Iterator[None]:
    """The comparisons one after another; each removes its files."""
    own, count = folder / "own", STEPS // part
    write_own_run(own, count)
    print(f"own run of {count:,} steps of 20 readings")
    for name, cost in (
        ("grpodoctor check", check_cost(own)),
        ("grpodoctor, read", reader_cost("grpodoctor, read", own)),
        ("json.loads per line", reader_cost("json.loads per line", own / "steps.jsonl")),
    ):
        show(name, cost, count, "steps")
    yield
    for count in (ROWS // part // 10, ROWS // part):
        rows = folder / "rows.jsonl"
        write_rows(rows, count)
        print(f"JSONL of {count:,} rows of 20 keys, {rows.stat().st_size / 1e6:,.0f} MB")
        show("grpodoctor check", check_cost(rows), count, "rows")
        for name in ("grpodoctor, read", "json.loads per line", "pandas.read_json"):
            show(name, reader_cost(name, rows), count, "rows")
        yield
    events, count = folder / "events", EVENT_FILES // part
    write_events(events, count)
    print(f"{count:,} TensorBoard files of {EVENTS_PER_FILE * TAGS} events")
    show("grpodoctor check", check_cost(events), count, "files")
    for name in ("grpodoctor, read", "tensorboard EventFileLoader"):
        show(name, reader_cost(name, events), count, "files")
    yield


def main() -> None:
    """Print all comparisons, or be one of the readers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", type=int, default=1, help="divide all sizes by this number")
    parser.add_argument("--reader", nargs=2, metavar=("NAME", "PATH"))
    chosen = parser.parse_args()
    if chosen.reader:
        print(READERS[chosen.reader[0]](Path(chosen.reader[1])))
        return
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # for the readers too
    with tempfile.TemporaryDirectory() as folder:
        for _ in parts(chosen.part, Path(folder)):
            pass


if __name__ == "__main__":
    main()
