"""What a cause is: a hypothesis by signature, an experiment that takes it away, and what to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from grpodoctor.probe.engines.jobs import Processing
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.results.results import Confidence

if TYPE_CHECKING:
    from grpodoctor.probe.attribution.experiments import Experiments
    from grpodoctor.probe.attribution.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Setup:
    """How the two columns of log-probabilities came about; an experiment changes it."""

    learner: EngineSpec
    processing: Processing
    """Of the learner, and of a sampler that scores."""
    own_prompts: bool = False
    behind: Path | None = None
    """A folder with the same responses behind other prompts, which the learner scores."""
    rescored: EngineSpec | None = None
    """The engine whose scores stand in for what the sampler said while it sampled."""
    shift: int = 0
    """By how many tokens the sampler's column is moved against the learner's."""
    without_ends: bool = False
    """Whether end tokens are left out."""
    replay: bool = False
    """Whether the learner is forced to the sampler's experts."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A setup and its tokens."""

    setup: Setup
    tokens: Tokens

    @property
    def gap(self) -> float:
        """k3 in nats per token."""
        return self.tokens.gap


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Why a cause is worth an experiment."""

    strength: float
    """0 to 1: the share of the gap that it may explain, as far as its signature tells."""
    facts: Mapping[str, float | str] = field(default_factory=dict)
    """What the signature has measured, for the experiment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentResult:
    """What an experiment has shown."""

    told: str
    """One sentence with the numbers in it; `{explained}` and `{gap}` may stand in it."""
    after: Variant | None = None
    """With the cause taken away; None if it could only be seen and not removed."""
    before: Variant | None = None
    """What `after` is to be compared with, where that is not the variant as it was."""
    explained: float | None = None
    """Without `after`: the share of the gap that the signature gives to it."""
    confidence: Confidence = "proven"
    """At most this."""
    details: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)


class Cause(ABC):
    """Base of all causes: one class a file in `causes/`, found by looking."""

    id: ClassVar[str]
    title: ClassVar[str]
    remedies: ClassVar[tuple[str, ...]]
    """Best first, one or two plain sentences each."""
    cost: ClassVar[int] = 1
    """Engines that its experiment loads, roughly; 0 for arithmetic alone."""
    least: ClassVar[float] = 0.2
    """The share of the gap that it must take away to be named."""
    subtle: ClassVar[bool] = False
    """Whether it shows within rounding, which moves log-probabilities in no such way: it must then
    take away `least` of what is more than rounding."""
    peels: ClassVar[bool] = True
    """Whether it is taken away; a cause that is not is asked about what the others have left."""
    when: ClassVar[Literal["always", "gap", "above-noise"]] = "above-noise"
    """How large a gap must be: `always` is also asked of none, `gap` of one that may be rounding,
    since two settings are known to differ and an experiment can tell."""

    @abstractmethod
    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """Whether the facts and the data as they are give reason to try it; runs no engine."""

    @abstractmethod
    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Take it away and look; None if it turned out to be nothing.

        Raises:
            EngineError: if the engine that the experiment needs cannot do it.
            BudgetSpentError: if there is no time left.
        """

    def remainder(self, experiments: Experiments, variant: Variant) -> ExperimentResult | None:
        """What can be said of it where no experiment could be made and most of the gap is left."""
        return None
