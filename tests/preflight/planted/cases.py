"""A case: the inputs of a planned run, and what a preflight must say about them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpodoctor.errors import GrpodoctorError
from grpodoctor.preflight.catalogue import select_checks_and_rules
from grpodoctor.preflight.inputs.request import PreflightRequest
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.results.preflight_results import PreflightFinding
from grpodoctor.preflight.run import run_preflight
from grpodoctor.rules.lint import config_rules
from tests.preflight.planted.models import CHATML, Model
from tests.preflight.planted.tables import Row, write


@dataclass(frozen=True, kw_only=True)
class Case:
    """The inputs of a planned run."""

    name: str
    rows: Sequence[Row]
    model: Model = CHATML
    suffix: str = ".jsonl"
    held_out: Sequence[Row] = ()
    reward: str = ""
    """Source of a module; its last function is the reward function."""
    run_config: str = ""
    """A YAML file."""
    framework: str = ""
    """Framework of the config, as its user names it; empty to have it detected."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    named: str = ""
    """Expression that the code and summary of a warning must match; empty for a healthy set."""
    advised: str = ""
    """Expression that the advice of this finding must match."""
    accepted: str = ""
    """What the report must say, in words, where a person grades the result."""
    critical: bool = False


@dataclass(frozen=True)
class Examined:
    """The result of a preflight on a case."""

    alarms: tuple[str, ...]
    """Code and summary of each warning and critical finding."""
    is_named: bool
    error: str = ""
    notes: tuple[str, ...] = ()
    """Code and summary of each note."""


def examine(case: Case, folder: Path, select: tuple[str, ...] = ()) -> Examined:
    """Write the case's files and run all checks on them, or those of some codes."""
    try:
        results = run_preflight(
            _request(case, folder), *select_checks_and_rules(select, config_rules=config_rules())
        )
    except GrpodoctorError as error:
        return Examined((), is_named=False, error=str(error))
    alarms = [finding for finding in results.findings if finding.severity != "info"]
    return Examined(
        tuple(_words(each) for each in alarms if not _depends_on_the_machine(case, each)),
        is_named=any(_is_named(case, finding) for finding in alarms),
        error="; ".join(f"{each.code}: {each.reason}" for each in results.failed),
        notes=tuple(_words(each) for each in results.findings if each.severity == "info"),
    )


def _depends_on_the_machine(case: Case, finding: PreflightFinding) -> bool:
    """Whether a reward is slow because it starts programs: their start takes long if others run."""
    return finding.code == "REW105" and "subprocess" in case.reward


def _request(case: Case, folder: Path) -> PreflightRequest:
    folder.mkdir(parents=True, exist_ok=True)
    held_out = write(case.held_out, folder / f"test{case.suffix}") if case.held_out else None
    reward = None
    if case.reward:
        (folder / "rewards.py").write_text(case.reward)
        function = re.findall(r"^(?:async )?def (\w+)", case.reward, re.MULTILINE)[-1]
        reward = f"{folder / 'rewards.py'}:{function}"
    config = None
    if case.run_config:
        config = folder / "config.yaml"
        config.write_text(case.run_config)
    return PreflightRequest(
        model=case.model.save(folder / "model"),
        prompts=write(case.rows, folder / f"train{case.suffix}"),
        held_out=held_out, reward=reward, run_config=config,
        framework=case.framework or None, folder=folder / "work",
        settings=RunSettings(**case.settings),
    )  # fmt: skip


def _words(finding: PreflightFinding) -> str:
    return f"{finding.code} {finding.severity}: {finding.finding.summary}"


def _is_named(case: Case, finding: PreflightFinding) -> bool:
    if not case.named or (case.critical and finding.severity != "critical"):
        return False
    advice = " ".join(finding.finding.advice)
    return bool(
        re.search(case.named, _words(finding), re.IGNORECASE)
        and re.search(case.advised, advice, re.IGNORECASE)
    )
