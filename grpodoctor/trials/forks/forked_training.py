"""Training that tries remedies on branches: fork, compare, continue the better settings.

When the doctor proposes a remedy, the run writes a checkpoint and pauses. Treated and untreated
branches continue copies of it, in pairs with the same seed. The run then continues from its
checkpoint with the settings of the better branches. Its randomness depends on the seed and the step
only, so it equals the branch with the same seed to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from grpodoctor.monitor.session import Session
from grpodoctor.remedies.catalogue import remedy_of
from grpodoctor.rules.base import Finding
from grpodoctor.treatment.mailbox import Mailbox
from grpodoctor.treatment.requests import Request, note_request
from grpodoctor.treatment.treatments import Treatment
from grpodoctor.trials.forks.branches import (
    ForkPlan,
    levels_of,
    remove_checkpoints,
    train_branches,
)
from grpodoctor.trials.forks.comparison import compare_branches
from grpodoctor.trials.process_pool import processors

if TYPE_CHECKING:
    from grpodoctor.trainer.config.train_config import TrainConfig
    from grpodoctor.trainer.loop import StepReport, Trainer

_RECENT = 10
"""Steps whose time is the forecast of a step."""


class ForkSettings(BaseModel):
    """Size of a fork."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pairs: int = Field(6, ge=5, le=12)
    """Pairs of branches. Five can reach p = .031, the first value below 5 %; six bear one pair
    whose difference is near zero."""
    branch_steps: int = Field(16, ge=4, le=10_000)
    """Steps of a branch; the second half of them is compared."""
    cool_down_steps: int = Field(12, ge=0, le=10_000)
    """Steps of the run between two forks."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A remedy for which the run pauses."""

    treatment: Treatment
    finding: Finding
    baselines: dict[str, float]


class ForkController:
    """Watches a training in its own process, and forks it when a remedy is proposed.

    Args:
        run_dir: the run directory.
        apply: which remedies may be tried.
        settings: size of a fork.
        say: receives lines for the user.

    Raises:
        ConfigError: if the project's settings file is not valid.
    """

    def __init__(
        self,
        run_dir: Path,
        apply: Literal["safe", "unsafe"],
        settings: ForkSettings,
        say: Callable[[str], None],
    ) -> None:
        self._run_dir, self._apply, self._settings, self._say = run_dir, apply, settings, say
        self._earliest = 0
        self._seconds: list[float] = []
        self._session = Session(run_dir, apply="ask")
        self.proposal: Proposal | None = None
        """The remedy that the run has paused for."""

    def watch(self, trainer: Trainer, report: StepReport) -> None:
        """Examine the run after a step, and pause it if a remedy is proposed."""
        self._seconds = [*self._seconds[1 - _RECENT :], report.seconds]
        for event in self._session.tick().events:
            if event.kind == "treatment-stopped":
                self._say(str(event.body.get("verdict", "")))
        proposal = self._session.doctor.proposal
        if proposal is None or report.step < self._earliest or self.proposal is not None:
            return
        remedy = remedy_of(proposal.remedy)
        if self._apply == "safe" and remedy.applicability != "safe":
            self._session.decline(proposal.id)
            return
        engine = self._session.examination.engine
        finding = next(
            each for each in engine.diagnosis().findings if each.code == proposal.finding
        )
        baselines = {
            target.metric: baseline.level
            for target in remedy.targets
            if (baseline := engine.chart.baseline(target.metric)) is not None
        }
        self.proposal = Proposal(proposal, finding, baselines)
        trainer.stop()

    def fork(self, config: TrainConfig, step: int) -> None:
        """Train the branches of the proposal, and tell the paused run what to continue with.

        Args:
            config: the run's configuration.
            step: the step of its checkpoint.

        Raises:
            RunError: if the checkpoint is missing, or a branch dies.
        """
        proposal, self.proposal = self.proposal, None
        if proposal is None:
            return
        treatment = replace(proposal.treatment, proposed_step=step, requested_step=step)
        plan = ForkPlan(
            self._run_dir,
            step,
            self._settings.pairs,
            self._settings.branch_steps,
            treatment.changes,
            config.seed,
        )
        seconds, jobs = sum(self._seconds) / len(self._seconds), jobs_of(config)
        self._say(f"{treatment.remedy} is proposed for {treatment.finding} at step {step}")
        self._say(plan.cost(seconds, jobs))
        treated, untreated = train_branches(plan, jobs, lambda _: None)
        assessment = compare_branches(
            remedy_of(treatment.remedy),
            levels_of(treated, plan),
            levels_of(untreated, plan),
            proposal.baselines,
        )
        remove_checkpoints([*treated, *untreated])
        is_kept = assessment.decision == "keep"
        arm = "treated" if is_kept else "untreated"
        self._say(f"{assessment.verdict}: the run continues with the settings of the {arm} branch")
        closed = replace(
            treatment,
            state="kept" if is_kept else "undone",
            comparisons=assessment.comparisons,
            verdict=f"fork of {plan.pairs} pairs: {assessment.verdict}",
        )
        self._tell(closed, proposal.finding, step)
        self._earliest = step + self._settings.cool_down_steps
        self._session = Session(self._run_dir, apply="ask")

    def _tell(self, closed: Treatment, finding: Finding, step: int) -> None:
        """Put the change, if it is kept, and the journal lines into the mailbox of the run."""
        mailbox = Mailbox(self._run_dir)
        name = closed.id
        mailbox.send(note_request(closed.proposal(finding), f"{name}/proposed"))
        if closed.state == "kept":
            change = Request(f"{name}/apply", "apply", name, closed.remedy, dict(closed.changes))
            mailbox.send(change)
        mailbox.send(note_request(closed.closing(step), f"{name}/{closed.state}"))


def jobs_of(config: TrainConfig) -> int:
    """Branches at a time: as many as have processors for their threads."""
    available = processors()
    return max(1, available // (config.threads or available))
