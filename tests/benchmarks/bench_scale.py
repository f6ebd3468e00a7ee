"""Reading long runs: processor time, rows per second and peak memory, next to plain parsers.

Each reader is a process of its own on one core. `check` includes rules, diagnosis and the report;
`read` stops at the steps. Processor time counts, because other programs on the machine do not
change it much. `check` of the longest log runs on a second core, if there is one, next to all
others: about seven minutes on two cores.

    python tests/benchmarks/bench_scale.py [--part N] [--only own|rows|events]

`--part 10` uses a tenth of each size, `--only` one kind of run.
"""

from __future__ import annotations

import argparse
import json
import math
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
from dataclasses import dataclass
from pathlib import Path

import orjson

STEPS = 100_000
ROWS, FEWER_ROWS = 2_000_000, 200_000
EVENT_FILES = 10_000
EVENTS_PER_FILE, TAGS = 3, 5

LEVELS = {
    "loss": ("optimizer/loss", 0.0, 0.0, 0.01),
    "grad_norm": ("optimizer/grad_norm", 0.4, 0.4, 0.05),
    "learning_rate": ("optimizer/learning_rate", 1e-6, 1e-6, 0.0),
    "reward": ("reward/mean", 0.3, 0.6, 0.03),
    "reward_std": ("reward/std", 0.3, 0.3, 0.02),
    "kl": ("kl/reference/k3", 0.005, 0.015, 0.002),
    "entropy": ("entropy/mean", 0.6, 0.5, 0.03),
    "frac_reward_zero_std": ("groups/zero_variance_rate", 0.2, 0.2, 0.05),
    "completions/mean_length": ("length/mean", 300, 350, 10),
    "completions/min_length": ("length/min", 100, 100, 10),
    "completions/max_length": ("length/max", 900, 900, 30),
    "completions/clipped_ratio": ("length/truncated_rate", 0.01, 0.01, 0.005),
    "completions/mean_terminated_length": ("length/terminated_mean", 300, 350, 10),
    "clip_ratio/low_mean": ("clip/low_rate", 0.002, 0.002, 0.001),
    "clip_ratio/high_mean": ("clip/high_rate", 0.002, 0.002, 0.001),
    "clip_ratio/region_mean": ("text/unique_ngram_rate", 0.004, 0.004, 0.001),
    "num_tokens": ("optimizer/update_norm_ratio", 1e-3, 1e-3, 1e-4),
    "epoch": ("advantage/zero_rate", 0.2, 0.2, 0.05),
    "step_time": ("time/step", 10, 10, 0.5),
}
"""A key of TRL's log, with the step 20 keys; a metric of the own run; the level at the start and at
the end of the learning; the noise."""

_LEARNED = 2000.0
"""Steps in which two thirds of the change take place."""


def readings(step: int) -> Iterator[tuple[str, str, float]]:
    """The key, the metric and the value of each reading of a step of a run that learns."""
    share = 1 - math.exp(-step / _LEARNED)
    for place, (key, (metric, start, end, noise)) in enumerate(LEVELS.items()):
        hashed = (step * 2_654_435_761 + place * 40_503_121) % 2**32
        yield key, metric, start + (end - start) * share + noise * (hashed / 2**31 - 1)


def write_rows(path: Path, count: int) -> None:
    """JSON lines whose values change from row to row."""
    with path.open("wb") as file:
        for step in range(1, count + 1):
            row = {key: round(value, 8) for key, _, value in readings(step)}
            file.write(orjson.dumps({"step": step, **row}) + b"\n")


def write_own_run(folder: Path, count: int) -> None:
    """A run of our recorder: its own lines, without rollouts."""
    from grpodoctor.runs.records import MANIFEST, STEPS, Manifest, StepRecord
    from grpodoctor.vocabulary.values import single

    folder.mkdir()
    (folder / MANIFEST).write_bytes(Manifest().to_json())
    with (folder / STEPS).open("wb") as file:
        for step in range(1, count + 1):
            values = {metric: single(value) for _, metric, value in readings(step)}
            file.write(StepRecord(step=step, values=values, time=1.7e9 + 10 * step).to_line())


def write_events(folder: Path, count: int) -> None:
    """TensorBoard files of a few steps each, as a job that is launched again and again leaves."""
    from grpodoctor.runs.log_formats.decoding.crc32c import masked_crcs

    folder.mkdir()
    for number in range(count):
        path = folder / f"events.out.tfevents.{1_700_000_000 + number}.host.{number}.0"
        with path.open("wb") as file:
            for offset in range(EVENTS_PER_FILE):
                for tag in list(LEVELS)[3 : 3 + TAGS]:
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


CHECK = "grpodoctor check"
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


@dataclass(frozen=True)
class Job:
    """A program that reads one of the runs.

    Args:
        run: what is read.
        reader: one of `READERS`, or the name of `CHECK`.
        path: the run on disk.
        count: how many steps, rows or files it has.
        unit: what is counted.
    """

    run: str
    reader: str
    path: Path
    count: int
    unit: str

    def cost(self) -> Cost:
        """Run the program.

        Raises:
            SystemExit: if it failed.
        """
        if self.reader == CHECK:
            words = ["-m", "grpodoctor", "check", "--json", str(self.path)]
            cost = Cost([sys.executable, *words], on_terminal=True)
        else:
            words = [__file__, "--reader", self.reader, str(self.path)]
            cost = Cost([sys.executable, *words])
        if cost.code not in ((0, 1) if self.reader == CHECK else (0,)):
            raise SystemExit(f"{self.reader} failed with exit code {cost.code} on {self.run}")
        return cost

    def show(self) -> None:
        """Run the program and print one line."""
        cost = self.cost()
        drawn = f", progress drawn {cost.pictures} times" if cost.pictures else ""
        print(
            f"{self.run}: {self.reader} {cost.seconds:.1f} s of processor time ({cost.wall:.1f} s "
            f"by the clock), {self.count / cost.seconds:,.0f} {self.unit} per second, peak "
            f"{cost.megabytes:.0f} MB{drawn}",
            flush=True,
        )


def own_jobs(folder: Path, part: int) -> list[Job]:
    """A run of the own recorder."""
    own, count = folder / "own", STEPS // part
    write_own_run(own, count)
    run = f"own run of {count:,} steps of {len(LEVELS)} readings"
    steps = own / "steps.jsonl"
    return [
        *(Job(run, name, own, count, "steps") for name in (CHECK, "grpodoctor, read")),
        Job(run, "json.loads per line", steps, count, "steps"),
    ]


def rows_jobs(folder: Path, part: int) -> list[Job]:
    """Logs of JSON lines, the longest one first."""
    jobs = []
    for count, readers in (
        (ROWS // part, (CHECK, "grpodoctor, read", "json.loads per line")),
        (FEWER_ROWS // part, (CHECK, "grpodoctor, read", "pandas.read_json")),
    ):
        rows = folder / f"rows-{count}.jsonl"
        write_rows(rows, count)
        size = rows.stat().st_size / 1e6
        run = f"JSONL of {count:,} rows of {len(LEVELS) + 1} keys, {size:,.0f} MB"
        jobs += [Job(run, reader, rows, count, "rows") for reader in readers]
    return jobs


def event_jobs(folder: Path, part: int) -> list[Job]:
    """Event files of TensorBoard."""
    events, count = folder / "events", EVENT_FILES // part
    write_events(events, count)
    run = f"{count:,} TensorBoard files of {EVENTS_PER_FILE * TAGS} events"
    readers = (CHECK, "grpodoctor, read", "tensorboard EventFileLoader")
    return [Job(run, reader, events, count, "files") for reader in readers]


KINDS = {"rows": rows_jobs, "own": own_jobs, "events": event_jobs}


def run_all(jobs: list[Job]) -> None:
    """Run the first job on the last core and the others on the first one, or all on the only one.

    Raises:
        SystemExit: if a job failed.
    """
    cores = sorted(os.sched_getaffinity(0))
    failures: list[BaseException] = []

    def run(lane: list[Job], core: int) -> None:
        os.sched_setaffinity(0, {core})  # of this thread, and of the programs that it starts
        try:
            for job in lane:
                job.show()
        except BaseException as failure:  # noqa: BLE001 - raised again by the main thread
            failures.append(failure)

    beside = threading.Thread(target=run, args=(jobs[:1], cores[-1]))
    beside.start()
    if len(cores) == 1:
        beside.join()
    run(jobs[1:], cores[0])
    beside.join()
    for failure in failures:
        raise failure


def main() -> None:
    """Print all comparisons, or be one of the readers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", type=int, default=1, help="divide all sizes by this number")
    parser.add_argument("--only", choices=KINDS, help="one kind of run")
    parser.add_argument("--reader", nargs=2, metavar=("NAME", "PATH"))
    chosen = parser.parse_args()
    if chosen.reader:
        print(READERS[chosen.reader[0]](Path(chosen.reader[1])))
        return
    with tempfile.TemporaryDirectory() as folder:
        kinds = [chosen.only] if chosen.only else list(KINDS)
        run_all([job for kind in kinds for job in KINDS[kind](Path(folder), chosen.part)])


if __name__ == "__main__":
    main()
