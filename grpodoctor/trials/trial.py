"""What a trial is: a disease, its remedies and a control, trained from the same seeds.

A run of an arm is determined by the trial's settings, the arm and the seed. The seed varies the
initial weights, and so the warm start, the problems and the sampling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CONTROL, DISEASE = "control", "disease"

BASE_SETTINGS = (
    "threads=1",
    "record.depth=off",
    "rollout.prompts_per_batch=8",
    "evaluation.prompts=128",
)
"""Settings of all arms, which a trial may override: a run takes about ten seconds on one core, and
the three evaluations of its outcome have a standard error of at most 0.026."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """The settings of a run on top of those of its trial."""

    settings: tuple[str, ...] = ()
    """Assignments `section.key=value`."""
    preset: str | None = None
    fault: str | None = None
    """Function in `grpodoctor.trials.faults` that is injected into the trainer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Treated:
    """The disease with a remedy from the first step.

    By default, the remedy itself determines the settings, from the knobs of the diseased run. A
    remedy that needs a restart or a person determines none: they are given here.
    """

    remedy: str
    """Id of the remedy."""
    variant: str = ""
    """Form of the remedy, if a trial has several."""
    settings: tuple[str, ...] = ()
    preset: str | None = None
    removes_fault: bool = False
    """Whether the remedy repairs what the fault broke."""

    @property
    def name(self) -> str:
        """Name of the arm."""
        return f"{self.remedy} ({self.variant})" if self.variant else self.remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Runs of several arms from the same seeds."""

    name: str
    question: str
    """What the experiment asks, in one sentence."""
    settings: tuple[str, ...] = ()
    """Settings of all arms."""
    steps: int = 60
    disease: Arm = field(default_factory=Arm)
    """What is wrong in the diseased and in the treated runs."""
    environment: str | None = None
    """Function in `grpodoctor.trials.environments` that prepares the trainer in all arms."""
    faults: Mapping[str, str] = field(default_factory=dict)
    """Faults that are injected into treated arms in place of the disease's, by arm."""

    @property
    def arms(self) -> Mapping[str, Arm | Treated]:
        """All arms by name."""
        raise NotImplementedError

    def definition(self, arm: str) -> str:
        """All that determines the runs of an arm besides the seed, as text.

        Published runs of another definition do not count.
        """
        chosen = self.arms[arm]
        inherited = (self.disease,) if isinstance(chosen, Treated) else ()
        named = (("environment", self.environment), ("fault", self.faults.get(arm)))
        added = tuple((name, value) for name, value in named if value is not None)
        return repr((BASE_SETTINGS, self.settings, self.steps, inherited, chosen, *added))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial(Experiment):
    """A disease, the rules that should report it, and the remedies that should help."""

    rules: tuple[str, ...]
    """Codes of rules that should fire in the diseased runs and in no control."""
    remedies: tuple[Treated, ...] = ()
    control: Arm = field(default_factory=Arm)
    """The healthy counterpart."""
    onset: int = 1
    """The step at which the disease begins."""
    misses: str = ""
    """Why a rule misses diseased runs, if the published runs show it; Markdown."""

    @property
    def arms(self) -> Mapping[str, Arm | Treated]:
        """All arms by name, control and disease first."""
        treated = {each.name: each for each in self.remedies}
        return {CONTROL: self.control, DISEASE: self.disease, **treated}
