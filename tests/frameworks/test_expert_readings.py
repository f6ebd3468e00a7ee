"""Real logs of eight frameworks and forks: the diagnosis agrees with an expert's reading.

`tests/data/framework_logs/README.md` names their sources.
"""

from __future__ import annotations

import functools
import gzip
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from grpodoctor.monitor.replay import replay
from grpodoctor.monitor.report import Report
from grpodoctor.monitor.report_data import ReportData
from grpodoctor.report import text
from grpodoctor.report.run.view import view_of

DATA = Path(__file__).parents[1] / "data" / "framework_logs"
NAMES = sorted(path.name.removesuffix(".gz") for path in DATA.glob("*.gz"))


@dataclass(frozen=True)
class Reading:
    """What an expert reads in a log, and what the report has to say."""

    framework: str
    steps: tuple[int, int]
    kinds: tuple[str, ...]
    """Verdicts that agree with the expert."""
    first: str = ""
    """Code of the cause that the first line names."""
    warned: tuple[str, ...] = ()
    """Families that have a warning or a critical finding; no other family has one."""
    silent: Mapping[str, str] = field(default_factory=dict)
    """Families that the expert names and the report rightly does not, with the reason."""
    paste: str = ""
    """What the first lines tell the reader to set or type."""


_GAME = Reading(
    # The policy collapses onto a constant -1: entropy from step 6 on, equal rewards from step 11.
    "verl",
    (0, 45),
    ("sick",),
    first="ENT001",
    warned=("ENT", "GRP", "LEN", "OPT", "REW"),
    paste="actor_rollout_ref.rollout.temperature=1.2",
)
READINGS = {
    "agentgym_babyai.log": Reading(
        "verl",
        (1, 100),
        ("sick",),
        first="REW002",
        warned=("DAT", "KLD", "LEN", "REW"),
        silent={"OPT": "the largest gradient norm, 126 at step 21, is three times the first ones"},
        paste="actor_rollout_ref.actor.optim.lr=",
    ),
    "areal_moonlight.txt": Reading("areal", (1, 2), ("too short",)),
    "areal_truncated.txt": Reading(
        "areal",
        (1, 48),
        ("sick",),
        first="LEN003",
        warned=("LEN",),
        silent={
            "REW": "a batch has eight responses, so a fall of the mean reward by 0.2 is noise",
            "GRP": "it does not log what groups earn, and the gradient is 0 in half of the steps",
        },
        paste="gconfig.max_new_tokens=512",
    ),
    "areal_zero_reward.txt": Reading(
        "areal",
        (1, 50),
        ("sick",),
        first="GRP002",
        warned=("GRP", "OPT", "REW"),
        paste="grpodoctor preflight",
    ),
    "events.out.tfevents.verl_game2048": _GAME,
    "joanvelja_v2.jsonl": Reading(
        "tinker-cookbook",
        (0, 47),
        ("sick",),
        first="REW003",
        warned=("REW",),
        silent={"LEN": "responses become shorter while the reward rises, which is progress"},
        paste="grpodoctor preflight",
    ),
    "joanvelja_v3b.jsonl": Reading("tinker-cookbook", (0, 74), ("healthy",)),
    "miles_cp2_ep4.log": Reading(
        "slime",
        (0, 5),
        ("sick",),
        first="LEN002",
        warned=("LEN", "MIS"),
        paste="--rollout-max-response-len ",
    ),
    "opd_verl.log": Reading(
        "verl",
        (1, 238),
        ("sick",),
        first="LEN002",
        warned=("LEN",),
        paste="data.max_response_length=",
    ),
    "skyrl_tx.jsonl": Reading(
        # It learns, in spite of a mismatch that the expert calls fair to warn about.
        "tinker-cookbook",
        (0, 84),
        ("healthy", "flat"),
        warned=("MIS",),
    ),
    "verl_game2048.txt": _GAME,
    "verl_minimal.jsonl": Reading(
        "verl",
        (1, 100),
        ("sick",),
        first="LEN002",
        warned=("GRP", "LEN", "OPT", "REW"),
        paste="data.max_response_length=512",
    ),
    # The held-out accuracy rises from 0.55 to 0.92.
    "verl_titan.jsonl": Reading("verl", (1, 87), ("healthy", "flat")),
}


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("framework_logs")
    for name in NAMES:
        (directory / name).write_bytes(gzip.decompress((DATA / f"{name}.gz").read_bytes()))
    return directory


@functools.cache
def checked(path: Path) -> Report:
    return replay(path).report


def test_every_log_has_a_reading() -> None:
    assert sorted(READINGS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_framework_and_the_steps(name: str, logs: Path) -> None:
    run = checked(logs / name).run
    assert run.framework == READINGS[name].framework
    assert (run.first_step, run.last_step) == READINGS[name].steps


@pytest.mark.parametrize("name", NAMES)
def test_the_diagnosis_is_that_of_the_expert(name: str, logs: Path) -> None:
    reading, report = READINGS[name], checked(logs / name)
    verdict = report.diagnosis.verdict
    assert verdict.kind in reading.kinds
    assert (verdict.code or "") == reading.first
    families = {each.code[:3] for each in report.findings if each.severity != "info"}
    assert families == set(reading.warned)
    assert not families & set(reading.silent)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", [name for name in NAMES if READINGS[name].paste])
def test_the_first_lines_say_what_is_wrong_and_what_to_type(
    name: str, width: int, logs: Path
) -> None:
    report = checked(logs / name)
    lines = text.render(view_of(ReportData(report, ())), width=width).splitlines()
    heading = lines.index(report.run.path)
    sentence = " ".join(lines[:heading])
    cause = next(each for each in report.findings if each.code == READINGS[name].first)
    assert re.match(rf"SICK  since step {cause.onset_step}( \([^)]+\))?: ", sentence)
    assert "; first, " in sentence
    assert READINGS[name].paste in lines[heading - 1]
    assert heading <= 6
    assert len(lines) <= 40
