"""Workers side by side over all targets, and what came out of them."""

from __future__ import annotations

import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.limits import READ, REFUSED, SECONDS
from tests.fuzz.targets.base import Target

ROOT = Path(__file__).parents[2]

PER_RANGE = 100
"""Inputs that a worker receives at once."""

SILENCE = 30.0 * SECONDS
"""Seconds without an outcome in which a worker only waits, after which it hangs."""

_WAIT = 1.0


@dataclass(frozen=True)
class Finding:
    """An input that broke the contract."""

    target: str
    number: int
    what: str


@dataclass
class Tally:
    """What happened to the inputs of one target."""

    inputs: int = 0
    seconds: float = 0.0
    """Processor time of the readers and of writing their inputs."""
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def note(self, target: str, number: int, what: str) -> None:
        """Count the outcome of an input."""
        self.inputs += 1
        is_good = what in (READ, REFUSED)
        self.outcomes[what if is_good else "broken"] += 1
        if not is_good:
            self.findings.append(Finding(target, number, what))


class Worker:
    """A process that reads ranges of inputs; it goes on behind an input that ended its fork.

    Args:
        seed: of the mutations.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._answered = time.monotonic()
        self._process: subprocess.Popen[str] | None = None

    def run(self, target: Target, first: int, count: int, tally: Tally) -> None:
        """Read a range of a target's inputs.

        Raises:
            RuntimeError: if the worker ended outside an input.
        """
        end = first + count
        while first < end:
            first = self._read(target, first, end - first, tally)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def _read(self, target: Target, first: int, count: int, tally: Tally) -> int:
        """Read up to the end of the range or of the fork that reads; return the next number."""
        process = self._process = self._process or self._start()
        process.stdin.write(f"{first} {count} {target.name}\n")
        process.stdin.flush()
        in_flight = False
        for line in process.stdout:
            self._answered = time.monotonic()
            mark, _, rest = line.rstrip("\n").partition(" ")
            if mark == "done":
                return first
            if mark == "!":
                return self._note_death(target, first, int(rest), tally, in_flight=in_flight)
            in_flight = mark == ">"
            if mark == "=":
                seconds, _, what = rest.partition(" ")
                tally.seconds += float(seconds)
                tally.note(target.name, first, what)
                first += 1
        self._process = None
        process.communicate()
        return self._note_death(target, first, process.returncode, tally, in_flight=in_flight)

    def _note_death(
        self, target: Target, number: int, code: int, tally: Tally, *, in_flight: bool
    ) -> int:
        if not in_flight:
            raise RuntimeError(
                f"the worker ended before an input of {target.name}: exit code {code}"
            )
        tally.note(target.name, number, _cause(code, target.seconds))
        return number + 1

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker", str(self._seed)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0,
        )  # fmt: skip
        self._answered = time.monotonic()
        threading.Thread(target=self._kill_if_silent, args=(process,), daemon=True).start()
        return process

    def _kill_if_silent(self, process: subprocess.Popen[str]) -> None:
        answered, waits = self._answered, 0
        while process.poll() is None:
            if answered != self._answered:
                answered, waits = self._answered, 0
            elif _is_asleep(process.pid):
                waits += 1
            if waits * _WAIT > SILENCE:
                _kill_with_forks(process.pid)
            time.sleep(_WAIT)


def _is_asleep(group: int) -> bool:
    """Whether each process of a group waits for something.

    One that is ready to run and gets no processor, or is suspended, does not hang. One that runs
    for too long reaches its limit of processor time.
    """
    states = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, owner = path.read_text().rpartition(")")[2].split()[:3]
            if int(owner) == group:
                states.append(state)
    return set(states) <= {"S", "D", "Z"}


def _kill_with_forks(pid: int) -> None:
    """Kill a worker and the fork that reads for it: both are a process group."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _cause(code: int, seconds: int) -> str:
    if code == -signal.SIGXCPU:
        return f"more than {seconds} s of processor time"
    if code == -signal.SIGKILL:
        return f"hangs: no outcome for {SILENCE:.0f} s, or killed for memory"
    return f"the process died: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"


def ranges(targets: Sequence[Target], inputs: int) -> list[tuple[Target, int, int]]:
    """Target, first number and count of each range, so that all inputs are shared out by weight.

    Every target has its sound file and at least one other input. The readers take turns, so that a
    campaign that ends early has tried all of them.
    """
    total = sum(target.weight for target in targets)
    found = []
    for target in targets:
        count = max(2, round(inputs * target.weight / total))
        parts = math.ceil(count / PER_RANGE)
        borders = [count * part // parts for part in range(parts + 1)]
        found += [
            (place / parts, target, borders[place], borders[place + 1] - borders[place])
            for place in range(parts)
        ]
    return [each[1:] for each in sorted(found, key=lambda each: each[0])]


def run(
    targets: Sequence[Target], inputs: int, seed: int, *, jobs: int, seconds: float = float("inf")
) -> dict[str, Tally]:
    """Read the inputs with several workers.

    Args:
        targets: the readers.
        inputs: inputs of all targets together.
        seed: of the mutations; equal seeds make equal inputs.
        jobs: workers at the same time.
        seconds: wall-clock time after which no further worker is started.

    Returns:
        The tallies by the names of the targets.
    """
    todo: queue.SimpleQueue[tuple[Target, int, int]] = queue.SimpleQueue()
    for each in ranges(targets, inputs):
        todo.put(each)
    tallies = {target.name: Tally() for target in targets}
    failures: list[BaseException] = []
    deadline = time.monotonic() + seconds

    def work() -> None:
        worker = Worker(seed)
        while time.monotonic() < deadline and not failures:
            try:
                target, first, count = todo.get_nowait()
                worker.run(target, first, count, tallies[target.name])
            except queue.Empty:
                break
            except BaseException as error:  # noqa: BLE001 - raised again below
                failures.append(error)
        worker.close()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return tallies
