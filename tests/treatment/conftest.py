"""A small deterministic run that reacts to its knobs, takes requests and writes its journal."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from grpodoctor.remedies.catalogue import all_remedies
from grpodoctor.rules.base import Evidence, Finding, Severity
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.records import Event, StepRecord
from grpodoctor.treatment.doctor import Doctor, TreatmentMode
from grpodoctor.treatment.doctor_settings import DoctorSettings
from grpodoctor.treatment.mailbox import Inbox, Mailbox
from grpodoctor.treatment.requests import Refused, Request, validate
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Mean

Levels = Callable[[Mapping[str, Setting], int], Mapping[str, float]]


def make_finding(
    code: str = "MIS001",
    remedies: tuple[str, ...] = ("recompute-old-logprobs",),
    severity: Severity = "critical",
    onset: int = 8,
    *,
    active: bool = True,
) -> Finding:
    return Finding(
        code=code,
        name=code.lower(),
        severity=severity,
        onset_step=onset,
        last_step=onset + 2,
        active=active,
        summary=f"{code} was seen",
        evidence=(Evidence("mismatch/prob_diff_max", onset, 0.4, 0.01),),
        remedies=remedies,
        references=(),
    )


KNOBS: Mapping[str, Setting] = {
    "loss": "ppo_clip",
    "clip_high": 0.2,
    "old_logprobs": "sampler",
    "correction": "none",
    "correction_cap": 2.0,
    "learning_rate": 1e-4,
    "updates_per_batch": 4,
    "aggregation": "sequence-mean",
    "advantage": "group",
    "temperature": 1.0,
    "dynamic_sampling": False,
}
"""Settings of the run that is treated."""


@dataclass
class Patient:
    """A run: its knobs, what its metrics are under them, and a doctor that watches it."""

    run_dir: Path
    levels: Levels
    knobs: dict[str, Setting] = field(default_factory=lambda: dict(KNOBS))
    findings: Callable[[Chart], list[Finding]] = lambda _: [
        make_finding(remedies=("recompute-old-logprobs", "tis"))
    ]
    causes: Callable[[Chart], Mapping[str, Finding]] = lambda _: {}
    apply: TreatmentMode = "safe"
    settings: DoctorSettings = field(default_factory=DoctorSettings)
    noise: float = 0.02
    seed: int = 0
    deaf: bool = False
    """It never looks into its mailbox."""
    step: int = 0
    journal: list[Event] = field(default_factory=list)
    chart: Chart = field(default_factory=Chart)
    sent: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start = dict(self.knobs)
        self.random = random.Random(self.seed)
        self.inbox, self.mailbox = Inbox(self.run_dir), Mailbox(self.run_dir)
        self.new_doctor()
        self.chart.knobs.update(self.knobs)

    def new_doctor(self) -> None:
        """Another observer, who knows the journal and the chart alone."""
        self.doctor = Doctor(all_remedies(), self.apply, self.settings, random.Random(self.seed))
        self.heard = 0

    def train(self, steps: int = 1, *, watched: bool = True) -> None:
        for _ in range(steps):
            self.step += 1
            changes = {} if self.deaf else self.obey()
            levels = self.levels(self.knobs, self.step)
            values = {
                name: Mean.of([level + self.noise * self.random.gauss(0, 1)])
                for name, level in levels.items()
            }
            self.chart.observe(StepRecord(self.step, values, changes))
            if watched:
                self.watch()

    def obey(self) -> dict[str, Setting]:
        changed: dict[str, Setting] = {}
        for request in self.inbox.take(self.step):
            if isinstance(request, Refused):
                self.journal.append(Event("treatment-refused", self.step, request.body()))
            elif request.kind == "note":
                self.journal.append(request.as_event())
            else:
                changed |= self.change(request)
        return changed

    def change(self, request: Request) -> dict[str, Setting]:
        granted = validate(request, self.knobs)
        if isinstance(granted, Refused):
            self.journal.append(Event("treatment-refused", self.step, granted.body()))
            return {}
        before = {name: self.knobs[name] for name in granted}
        self.knobs |= granted
        body = {**request.body(), "before": before, "after": granted}
        self.journal.append(Event(request.applied_kind, self.step, body))
        return granted

    def watch(self) -> None:
        # Through JSON, as the journal on disk would be.
        news = [Event.from_line(event.to_line()) for event in self.journal[self.heard :]]
        self.heard = len(self.journal)
        findings, causes = self.findings(self.chart), self.causes(self.chart)
        for request in self.doctor.observe(self.chart, findings, news, causes):
            self.sent.append(request)
            self.mailbox.send(request)

    def kinds(self) -> list[str]:
        """What the journal says of treatments, in order, without their blocks."""
        kinds = [e.kind.removeprefix("treatment-") for e in self.journal if "treatment" in e.kind]
        return [kind for kind in kinds if kind not in ("scheduled", "switched")]

    def states(self) -> list[tuple[str, str]]:
        return [(each.remedy, each.state) for each in self.doctor.history]


@pytest.fixture
def patient(tmp_path: Path) -> Callable[..., Patient]:
    def admit(levels: Levels, run_dir: Path = tmp_path, **settings: object) -> Patient:
        return Patient(run_dir, levels, **settings)  # type: ignore[arg-type]

    return admit


@pytest.fixture
def finding() -> Callable[..., Finding]:
    return make_finding
