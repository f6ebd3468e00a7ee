"""SYN005."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite
from grpodoctor.rules.shared.health.run_health import current_metric
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_ANY = ("reward/mean", "accuracy/train", "optimizer/loss", "optimizer/grad_norm", "length/mean")


class OverlappingBranches(Rule):
    """The log contains the same steps twice: the run was resumed from an earlier checkpoint.

    What it sees:
        Steps at or before one that the log already has, with new values. Each such place is a
        resume. The finding is `info`, since two runs in one log look the same.

    Why it matters:
        Curves drawn over the step mix two branches, and a smoothed curve shows a run that never
        happened. The steps of the abandoned branch were paid for and lost.

    Evidence it needs:
        Any metric of training, in a log that contains the resume.

    Remedies:
        Write a log per attempt, save checkpoints more often, and check the first steps after each
        resume (SYN004).

    When it is wrong:
        Several runs that write into one file look like one that goes back again and again. A run
        that begins again at its first step continues nothing, so the rule does not count it.

    References:
        open-r1 issue 450 and verl issue 3754 for runs whose metrics change at a resume.
    """

    code: ClassVar[str] = "SYN005"
    name: ClassVar[str] = "overlapping-branches"
    condition: ClassVar[Condition] = "other"
    summary: ClassVar[str] = "The log contains the same steps twice, from a resumed run."
    inputs: ClassVar[tuple[Need, ...]] = (_ANY,)
    remedies: ClassVar[tuple[str, ...]] = ("check-resume",)
    references: ClassVar[tuple[str, ...]] = ("github.com/huggingface/open-r1/issues/450",)
    persistence: ClassVar[int] = 1
    clearance: ClassVar[int] = 10_000
    """What the log contains does not change, so the finding stays."""

    def examine(self, chart: Chart) -> RuleResult:
        """Count the resumes and the steps that were trained twice."""
        resumes = [resume for resume in chart.resumes if not resume.starts_over]
        if not resumes:
            return None
        lost = sum(resume.abandoned_step - resume.step + 1 for resume in resumes)
        latest = resumes[-1]
        count = "1 resume repeats" if len(resumes) == 1 else f"{len(resumes)} resumes repeat"
        text = f"Steps {latest.step} to {latest.abandoned_step} occur twice; {count} {lost} steps."
        evidence = (cite(chart, current_metric(chart, _ANY)),)
        return Sighting("info", text, evidence, find_onset=lambda: latest.step)
