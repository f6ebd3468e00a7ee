"""Faults while `grpodoctor check` reads runs and writes reports."""

from __future__ import annotations

import gzip
import os
import shutil
import sqlite3
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from grpodoctor.cli.main import main
from tests.faults.harness import (
    FILE_FAULTS,
    MEMORY_FAULTS,
    PROCESS_FAULTS,
    BrokenPromiseError,
    Ending,
    Harness,
    Scenario,
)
from tests.faults.shim import arm_process
from tests.faults.training import RecorderScenario
from tests.runs.rollout_dumps.samples import WRITERS

LOGS = Path(__file__).parents[1] / "data/logs"
_SAME = "same report"
_SAID = "report that states what could not be read"
_REFUSED = "one line, exit code 2"


class _Check(Scenario):
    """`grpodoctor check` on a log.

    Args:
        name: names the log.
        write: puts the log into an empty folder.
    """

    options: tuple[str, ...] = ()
    memory_points = 40

    def __init__(self, name: str, write: Callable[[Path], object]) -> None:
        super().__init__(name)
        self._write = write
        self.expected = ""
        """What the undisturbed command prints or writes."""

    def prepare(self, home: Path) -> None:
        (home / "log").mkdir()
        self._write(home / "log")

    def run(self, home: Path) -> None:
        sys.argv = ["grpodoctor", "check", "log", "--isolated", *self.options]
        os.chdir(home)
        arm_process()
        main()

    def learn(self, harness: Harness) -> None:
        """Run once to load what the command imports, and once to see its report."""
        harness.preload(self)
        home, ending = harness.undisturbed(self)
        assert ending.code in (0, 1), ending
        self.expected = self.report(home, ending)
        assert self.expected, ending
        shutil.rmtree(home)

    @abstractmethod
    def report(self, home: Path, ending: Ending) -> str:
        """What was printed or written."""


class ReaderScenario(_Check):
    """Faults in the files that are read."""

    area = "readers"
    faults = (
        *(fault for fault in FILE_FAULTS if fault.kind in ("open", "read", "close", "stat")),
        *(fault for fault in FILE_FAULTS if fault.kind in ("list", "lock", "map")),
        *PROCESS_FAULTS,
        *MEMORY_FAULTS,
    )
    options = ("--json",)

    def root(self, home: Path) -> Path:
        return home / "log"

    def report(self, home: Path, ending: Ending) -> str:
        return ending.stdout

    def judge(self, home: Path, ending: Ending) -> str:
        if ending.code == 2:
            if ending.stdout not in ("", self.expected):
                raise BrokenPromiseError(f"exit code 2 with half a report: {ending.stdout[-200:]}")
            return _REFUSED
        report, expected = orjson.loads(ending.stdout), orjson.loads(self.expected)
        if _without_remarks(report) == _without_remarks(expected):
            return _SAME
        if _remarks(report) - _remarks(expected):
            return _SAID
        raise BrokenPromiseError(
            f"another report without a remark: {_difference(report, expected)}"
        )


def _without_remarks(report: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in report.items() if key not in ("notes", "damage")}


def _remarks(report: Mapping[str, Any]) -> set[str]:
    """What a report states about its reading: notes, damaged files, defective rules."""
    lines = (*report["notes"], *report["damage"]["lines"], *report["defects"])
    return {str(line) for line in lines}


def _difference(report: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    keys = [key for key in expected if report.get(key) != expected[key]]
    return "; ".join(f"{key}: {str(report.get(key))[:150]}" for key in keys)


class ReportScenario(_Check):
    """Faults in the file that a report is written to, or in stdout."""

    area = "reports"
    faults = (*FILE_FAULTS, *PROCESS_FAULTS, *MEMORY_FAULTS)

    def __init__(self, name: str, write: Callable[[Path], object], output: str) -> None:
        super().__init__(f"{name} as {output}", write)
        self._output = output
        file = () if output.startswith("--") else ("--output", f"written/{output}")
        self.options = file or tuple(output.split())

    def prepare(self, home: Path) -> None:
        super().prepare(home)
        (home / "written").mkdir()

    def root(self, home: Path) -> Path:
        to_stdout = self._output.startswith("--")
        return home / "terminal/stdout" if to_stdout else home / "written"

    def report(self, home: Path, ending: Ending) -> str:
        if self._output.startswith("--"):
            return ending.stdout
        file = home / "written" / self._output
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def judge(self, home: Path, ending: Ending) -> str:
        report = self.report(home, ending)
        if ending.code in (0, 1):
            if report != self.expected:
                raise BrokenPromiseError(f"exit code {ending.code}, but another report")
            return "whole report written"
        if report not in ("", self.expected):
            raise BrokenPromiseError(f"exit code 2 and half a report: {report[-200:]}")
        left = [path.name for path in (home / "written").iterdir()]
        if left and not report:
            raise BrokenPromiseError(f"exit code 2, and {left} stay behind")
        return "one line, exit code 2"


def _log(name: str) -> Callable[[Path], None]:
    """Writes a real log, unpacked."""

    def write(folder: Path) -> None:
        plain = name.partition("_")[2]
        (folder / plain).write_bytes(gzip.decompress((LOGS / f"{name}.gz").read_bytes()))

    return write


def _packed_log(folder: Path) -> None:
    shutil.copy(LOGS / "sushantmehta_metrics.jsonl.gz", folder / "metrics.jsonl.gz")


def _trackio(folder: Path) -> None:
    with sqlite3.connect(folder / "project.db") as database:
        database.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, "
            "step INTEGER, metrics TEXT)"
        )
        database.execute(
            "CREATE TABLE configs (id INTEGER PRIMARY KEY, run_name TEXT, config TEXT, "
            "created_at TEXT)"
        )
        rows = [
            ("2026", "a", step, orjson.dumps({"reward": step / 40, "reward_std": 0.2}).decode())
            for step in range(40)
        ]
        database.executemany(
            "INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?)", rows
        )
    database.close()


def _own_run(folder: Path) -> None:
    shutil.copytree(RecorderScenario.run_dir, folder, dirs_exist_ok=True)


def reading_scenarios() -> list[Scenario]:
    """The scenarios of this module."""
    logs: dict[str, Callable[[Path], object]] = {
        "own run": _own_run,
        "JSONL": _log("arvindcr4_metrics.jsonl"),
        "JSONL in gzip": _packed_log,
        "CSV": _log("happynessi_grpo.csv"),
        "console": _log("akshay_console.log"),
        "trainer state": _log("abdo_trainer_state.json"),
        "history": _log("dawn_history.json"),
        "TensorBoard": _log("maojiasong_events.out.tfevents.1740427850"),
        "Trackio": _trackio,
        "TRL completions": WRITERS["TRL completions"],
        "verl rollouts": WRITERS["verl rollouts"],
    }
    readers = [ReaderScenario(name, write) for name, write in logs.items()]
    source = logs["JSONL"]
    outputs = ("--output-format text", "--json", "report.html", "report.json", "report.md")
    reports = [ReportScenario("check", source, output) for output in outputs]
    return [*readers, *reports]
