"""Runs the preflight on data and reward functions of real projects, and prints its findings.

The data are not part of this repository. A manifest names them, one JSON object per line, with
paths relative to the manifest:

    {"name": "gsm8k", "prompts": "train.jsonl", "held_out": "test.jsonl",
     "reward": "rewards.py:score", "config": "grpo.yaml", "framework": "trl"}

Only `name` is required, with `prompts` or `config`. `options` is a list of further arguments, and
`half` a label that `--half` selects. Read a foreign reward function before you run it.

    python -m tests.benchmarks.real_preflight MANIFEST [--half A] [--only PART] [--notes]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ALARMS = ("critical", "warning")
_FILES = {"prompts": "--prompts", "held_out": "--held-out", "config": "--run-config"}


@dataclass(frozen=True)
class Examined:
    """One case: `findings` as the report in JSON holds them, or the `error` that ended it."""

    name: str
    findings: tuple[dict[str, Any], ...]
    error: str
    seconds: float

    @property
    def alarms(self) -> tuple[dict[str, Any], ...]:
        """Findings of severity warning or critical."""
        return tuple(each for each in self.findings if each["severity"] in _ALARMS)


def main() -> None:
    """Examine the cases of a manifest, and print a table and the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--half", help="label of the cases to examine")
    parser.add_argument("--only", default="", help="part of the names to examine")
    parser.add_argument("--notes", action="store_true", help="print notes and details, too")
    parser.add_argument("--seconds", type=float, default=600, help="time limit of one case")
    arguments = parser.parse_args()
    try:
        cases = read_cases(arguments.manifest)
    except (OSError, ValueError) as error:
        parser.error(f"the manifest cannot be read: {error}")
    cases = [
        case
        for case in cases
        if arguments.only in case["name"] and arguments.half in (None, case.get("half"))
    ]
    counts: Counter[str] = Counter()
    for case in cases:
        examined = examine(case, arguments.manifest.resolve().parent, arguments.seconds)
        _print(examined, notes=arguments.notes)
        counts["ended with an error"] += bool(examined.error)
        counts["without an alarm"] += not (examined.alarms or examined.error)
        counts["took over 60 s"] += examined.seconds > 60
        counts.update(f"{each['severity']} {each['code']}" for each in examined.alarms)
    print(f"\n{len(cases)} cases")
    for what, count in sorted(counts.items()):
        print(f"{count:5d}  {what}")


def read_cases(manifest: Path) -> list[dict[str, Any]]:
    """The cases of a manifest.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if a line is no JSON object with a name.
    """
    cases = []
    for number, line in enumerate(manifest.read_text(encoding="utf-8").splitlines(), 1):
        case = json.loads(line) if line.strip() else None
        if case is not None and not (isinstance(case, dict) and isinstance(case.get("name"), str)):
            raise ValueError(f"line {number} is no JSON object with a name")
        cases += [case] if case else []
    return cases


def examine(case: dict[str, Any], folder: Path, seconds: float) -> Examined:
    """Run the preflight of one case, whose paths are relative to `folder`."""
    command = [sys.executable, "-m", "grpodoctor", "preflight", "--json"]
    for key, option in _FILES.items():
        if case.get(key):
            command += [option, str(folder / case[key])]
    if case.get("reward"):
        command += ["--reward", str(folder / case["reward"])]
    if case.get("framework"):
        command += ["--framework", case["framework"]]
    command += case.get("options", [])
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        error, report = _run([*command, "--work", work], seconds)
    taken = time.monotonic() - begin
    return Examined(case["name"], tuple(report.get("findings", ())), error, taken)


def _run(command: list[str], seconds: float) -> tuple[str, dict[str, Any]]:
    """The error, or "", and the report of a command."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"no result within {seconds:.0f} s", {}
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        return done.stderr.strip()[-500:] or f"exit code {done.returncode}", {}
    return "; ".join(str(each) for each in report.get("failed", ())), report


def _print(examined: Examined, *, notes: bool) -> None:
    codes = [f"{each['code']} {each['severity']}" for each in examined.alarms]
    verdict = "error" if examined.error else ", ".join(codes) or "no alarm"
    print(f"{examined.name} ({examined.seconds:.0f} s): {verdict}", flush=True)
    if examined.error:
        print(f"    {examined.error}")
    for each in examined.findings if notes else examined.alarms:
        print(f"    {each['code']} {each['severity']}: {each['summary']}")
        if notes:
            for line in (*each["details"], *(f"do: {advice}" for advice in each["advice"])):
                print(f"        {line}")


if __name__ == "__main__":
    main()
