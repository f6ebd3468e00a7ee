"""Runs scenarios with one fault each, and judges how they end.

A scenario runs in a fork of this process, which has imported everything: a call has the same number
in every run, and a run costs a second. A sweep lets the first, the second, the third ... call
of a kind fail until a run ends without having reached the fault.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import hashlib
import os
import random
import shutil
import signal
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

from tests.faults import shim
from tests.faults.shim import HELPER, TRAINER, Control, Fault

LIMIT_SECONDS = 90.0
"""A run that takes longer hangs; without a fault it takes one or two seconds, and the recorder's
own waits add up to 30."""
_GONE_SECONDS = 30.0
"""How long what a run has started may live on after it."""
_ABORTED = 71
"""Exit code that stands for the abort of a library at a lack of memory."""
_CRASH = 70
"""Exit code of a scenario with an error that its program did not handle."""

FILE_FAULTS = (
    Fault("open", errno.EMFILE),
    Fault("open", errno.EACCES),
    Fault("read", errno.EIO),
    Fault("write", errno.ENOSPC),
    Fault("write", errno.ENOSPC, persists=True),
    Fault("write", errno.EIO),
    Fault("close", errno.EIO),
    Fault("fsync", errno.EIO),
    Fault("stat", errno.EACCES),
    Fault("list", errno.EACCES),
    Fault("mkdir", errno.ENOSPC),
    Fault("rename", errno.EIO),
    Fault("unlink", errno.EACCES),
    Fault("truncate", errno.EIO),
    Fault("lock", errno.ENOLCK),
    Fault("map", errno.ENOMEM),
)
PROCESS_FAULTS = (
    Fault("fork", errno.EAGAIN),
    Fault("exec", errno.ENOMEM),
    Fault("thread", errno.EAGAIN),
    Fault("socket", errno.EMFILE),
    Fault("pipe", errno.EMFILE),
    Fault("send", errno.ENOBUFS),
    Fault("receive", errno.ECONNRESET),
)
MEMORY_FAULTS = (Fault("memory", errno.ENOMEM),)


def in_helper(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """The same faults in the programs that a scenario starts."""
    return tuple(Fault(each.kind, each.error, HELPER, each.persists) for each in faults)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended."""

    code: int
    """Exit code; minus the signal for a killed process."""
    stdout: str
    stderr: str

    @property
    def is_aborted(self) -> bool:
        """Whether code in another language ended the program, as orjson does without memory."""
        if self.code == 3:  # the interpreter itself loses the error
            return "SystemError" in self.stderr or "TypeError" in self.stderr
        return self.code in (-signal.SIGILL, -signal.SIGABRT, -signal.SIGSEGV)


class BrokenPromiseError(AssertionError):
    """A run with a fault did not end as docs/reliability.md promises."""


class Scenario(ABC):
    """A program that is run with faults."""

    area: ClassVar[str]
    faults: ClassVar[tuple[Fault, ...]]
    memory_points: ClassVar[int] = 60
    """Allocations that fail; a run has hundreds of thousands."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def root(self, home: Path) -> Path:
        """Calls that concern paths below it can fail."""

    def excluded(self, home: Path) -> Path | None:
        """Calls that concern paths below it do not."""
        return None

    def learn(self, harness: Harness) -> None:  # noqa: B027 - most have nothing to learn
        """Before the first run with a fault."""

    @abstractmethod
    def prepare(self, home: Path) -> None:
        """Before faults are possible."""

    @abstractmethod
    def run(self, home: Path) -> None:
        """The program; its exit code is that of `SystemExit`."""

    def check_kept(self, home: Path) -> None:  # noqa: B027 - most promise nothing
        """Check that everything acknowledged is kept after an abort.

        Raises:
            BrokenPromiseError: if it is not.
        """

    @abstractmethod
    def judge(self, home: Path, ending: Ending) -> str:
        """Describe the outcome in a few words.

        Raises:
            BrokenPromiseError: if it is not one of those that are promised.
        """


@dataclass(frozen=True, slots=True)
class Point:
    """One fault in one scenario."""

    scenario: Scenario
    fault: Fault
    number: int

    def __str__(self) -> str:
        fault = self.fault
        where = " in the writer process" if fault.role == HELPER else ""
        every = " and all after it" if fault.persists else ""
        call = f"{fault.kind} {self.number}{every}{where} fails with {errno.errorcode[fault.error]}"
        return f"{self.scenario.area}, {self.scenario.name}: {call}"


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a point."""

    point: Point
    fired: bool
    outcome: str
    broken: str = ""
    """Which promise was broken; empty if none was."""
    calls: int = 0
    """Allocations of the undisturbed run, if the point is one of a sample of them."""


class Harness:
    """Runs points, each in a directory of its own. Each process needs its own harness.

    Args:
        home: where the directories are made.
    """

    def __init__(self, home: Path) -> None:
        self._home, self._runs = home, 0
        _adopt_orphans()

    def sweep(
        self,
        scenario: Scenario,
        fault: Fault,
        numbers: Sequence[int] = (),
        *,
        seed: int = 0,
        done: Container[int] = (),
    ) -> Iterator[Result]:
        """Let call 1, 2, 3 ... fail until a run does not reach the fault.

        Args:
            scenario: the program.
            fault: the kind of call, and its error.
            numbers: only these calls; all if empty, or a sample of the allocations.
            seed: chooses this sample.
            done: numbers that are left out.
        """
        calls = self.calls(scenario, fault) if fault.kind == "memory" else 0
        if calls and not numbers:
            numbers = spread(calls, scenario.memory_points, seed)
        for number in numbers or range(1, 10_000):
            if number in done:
                continue
            result = replace(self.run(Point(scenario, fault, number)), calls=calls)
            if result.fired or result.broken:
                yield result
            if not result.fired:
                return

    def sample(self, scenario: Scenario, most: int) -> Iterator[Result]:
        """A few points of all sweeps of a scenario, chosen by a hash; none in memory."""
        home, control = self._new(scenario)
        _run(scenario, home, control)
        shutil.rmtree(home)
        points = [
            Point(scenario, fault, number)
            for fault in scenario.faults
            for number in range(1, control.calls(fault) + 1)
            if fault.kind != "memory"
        ]
        for point in sorted(points, key=lambda point: _hash_of(str(point)))[:most]:
            yield self.run(point)

    def calls(self, scenario: Scenario, fault: Fault) -> int:
        """How many calls of a kind the undisturbed scenario makes."""
        home, control = self._new(scenario)
        _run(scenario, home, control.set(fault, 0))
        shutil.rmtree(home)
        return control.calls(fault)

    def undisturbed(self, scenario: Scenario) -> tuple[Path, Ending]:
        """Run a scenario without a fault; its directory stays."""
        home, control = self._new(scenario)
        return home, _run(scenario, home, control)

    def preload(self, scenario: Scenario) -> None:
        """Import what a scenario imports, so that its runs do not; imports start no threads."""
        home, _ = self.undisturbed(scenario)
        for name in (home / "modules").read_text().split():
            if name not in sys.modules:
                with suppress(ImportError):  # made at run time
                    import_module(name)
        shutil.rmtree(home)
        assert threading.active_count() == 1, "a fork would lack a thread"

    def run(self, point: Point) -> Result:
        """Run a point and judge it."""
        home, control = self._new(point.scenario)
        outcome = broken = ""
        try:
            ending = _run(point.scenario, home, control.set(point.fault, point.number))
            if point.fault.kind == "memory" and ending.is_aborted:
                ending = Ending(_ABORTED, "", "")
            outcome = self.judged(point.scenario, home, ending)
        except BrokenPromiseError as error:
            broken = f"{error} [{control.place}]"
        result = Result(point, control.fired, outcome, broken)
        if not broken:
            shutil.rmtree(home, ignore_errors=True)
        return result

    def judged(self, scenario: Scenario, home: Path, ending: Ending) -> str:
        """Judge an ending, in a fork: reading Parquet starts threads, which later forks lack.

        Raises:
            BrokenPromiseError: as `Scenario.judge`.
        """
        if ending.code != _ABORTED:
            _check(ending)
        pid = os.fork()
        if pid == 0:
            _judge_in_child(scenario, home, ending)
        os.waitpid(pid, 0)
        kept, _, text = (home / "judgement").read_text().partition(":")
        if kept != "kept":
            raise BrokenPromiseError(text)
        return text

    def _new(self, scenario: Scenario) -> tuple[Path, Control]:
        self._runs += 1
        home = self._home / f"{self._runs:05d}"
        home.mkdir(parents=True)
        scenario.prepare(home)
        control = Control(home / "control", scenario.root(home), scenario.excluded(home))
        return home, control


def _hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def spread(calls: int, most: int, seed: int = 0) -> list[int]:
    """Numbers from 1 to `calls`: the first five, the last, and one of each of `most` intervals.

    The intervals grow by an equal factor, because a run begins with the most different calls.
    """
    moments = random.Random(seed)
    factor = max(1, calls) ** (1 / most)
    borders = [round(factor**index) for index in range(most + 1)]
    chosen = {moments.randint(low, high) for low, high in pairwise(borders)}
    return sorted(number for number in {*chosen, *range(1, 6), calls} if 0 < number <= calls)


def _check(ending: Ending) -> None:
    """What is promised for every program."""
    if "Traceback" in ending.stderr or ending.code == _CRASH:
        raise BrokenPromiseError(f"a traceback: {ending.stderr[-1500:]}")
    if ending.code < 0:
        name = signal.Signals(-ending.code).name
        raise BrokenPromiseError(f"killed by {name}: {ending.stderr[-500:]}")
    if ending.code not in (0, 1, 2):
        raise BrokenPromiseError(f"exit code {ending.code}: {ending.stderr[-500:]}")
    if ending.code == 2 and len(errors := _error_lines(ending)) != 1:
        raise BrokenPromiseError(f"exit code 2 with {len(errors)} error lines: {ending.stderr}")


def _error_lines(ending: Ending) -> list[str]:
    return [line for line in ending.stderr.splitlines() if line.startswith("error: ")]


def _adopt_orphans() -> None:
    """Become the parent of processes whose parent has exited, so that they can be awaited."""
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def _run(scenario: Scenario, home: Path, control: Control) -> Ending:
    """Run a scenario in a fork; wait for the end of all processes that it started.

    Raises:
        BrokenPromiseError: if it hangs.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _be_child(scenario, home, control)
    status = _status_within(pid, LIMIT_SECONDS)
    if status is None:
        os.kill(pid, signal.SIGABRT)  # faulthandler prints where it hangs
        time.sleep(0.5)
        _kill_session(pid)
        stderr = (home / "terminal/stderr").read_text(errors="replace")
        raise BrokenPromiseError(f"no end within {LIMIT_SECONDS:.0f} s: {stderr[-1500:]}")
    _await_session(pid)
    code = os.waitstatus_to_exitcode(status)
    stdout, stderr = (
        (home / "terminal" / name).read_text(errors="replace") for name in ("stdout", "stderr")
    )
    return Ending(code, stdout, stderr)


def _be_child(scenario: Scenario, home: Path, control: Control) -> None:
    code = _CRASH
    try:
        os.setsid()
        atexit._clear()  # what this process would do at its own exit
        _redirect(home / "terminal")
        shim.attach(control)
        scenario.run(home)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:  # noqa: BLE001 - the parent reads it
        traceback.print_exc()
    finally:
        code = _end_interpreter(code)
        shim.disarm_process()
        (home / "modules").write_text("\n".join(sys.modules))
        os._exit(code)


def _judge_in_child(scenario: Scenario, home: Path, ending: Ending) -> None:
    text = "broken:the judgement failed"
    try:
        if ending.code == _ABORTED:
            scenario.check_kept(home)
            text = "kept:a library or the interpreter aborts for lack of memory"
        else:
            text = f"kept:{scenario.judge(home, ending)}"
    except BrokenPromiseError as error:
        text = f"broken:{error}"
    except BaseException:  # noqa: BLE001 - the parent reads it
        text = f"broken:{traceback.format_exc()}"
    finally:
        (home / "judgement").write_text(text)
        os._exit(0)


def _redirect(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for number, name in ((1, "stdout"), (2, "stderr")):
        fd = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(fd, number)
        os.close(fd)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)


def _end_interpreter(code: int) -> int:
    """What an interpreter does at its exit, as far as this project takes part in it."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except MemoryError:
        return code  # of the interpreter's exit itself
    except BaseException:  # noqa: BLE001 - the parent reads it
        traceback.print_exc()
        return code or 120
    return code


def _status_within(pid: int, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.005)
    return None


def _await_session(leader: int) -> None:
    """Wait until no process of a session is left.

    Raises:
        BrokenPromiseError: if one stays.
    """
    deadline = time.monotonic() + _GONE_SECONDS
    while _reap() or (left := _session_members(leader)):
        if time.monotonic() > deadline:
            _kill_session(leader)
            raise BrokenPromiseError(f"processes {left} stay behind")
        time.sleep(0.005)


def _reap() -> bool:
    """Reap one exited orphan; whether there was one."""
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def _session_members(leader: int) -> list[int]:
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(ProcessLookupError):
                if os.getsid(int(entry.name)) == leader:
                    members.append(int(entry.name))
    return members


def _kill_session(leader: int) -> None:
    for pid in _session_members(leader):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while _reap():
        pass


__all__ = ["HELPER", "TRAINER", "Ending", "Harness", "Point", "Result", "Scenario"]
