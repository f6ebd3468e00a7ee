"""The interface of a cause: its hypothesis, its experiment and its remedies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from grpodoctor.probe.attribution.edits import Edits
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.results.results import Confidence
from grpodoctor.probe.severity import EXACT

if TYPE_CHECKING:
    from grpodoctor.probe.attribution.experiments import Experiments


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """The reason to run a cause's experiment."""

    strength: float
    """0 to 1: the share of the gap that the cause may explain, judging by its signature."""
    facts: Mapping[str, float | str] = field(default_factory=dict)
    """Measurements of the signature, passed on to the experiment."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The name of a cause that one of several experiments of a kind found."""

    id: str
    title: str
    remedies: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentResult:
    """The result of an experiment."""

    summary: str
    """One sentence with its numbers."""
    after: Variant | None = None
    """Without the cause; None if the cause was detected but could not be removed."""
    before: Variant | None = None
    """The variant to compare `after` with, if it is not the experiment's input."""
    explained: float | None = None
    """Without `after`: the share of the gap that the signature accounts for."""
    confidence: Confidence = "proven"
    """The highest confidence that this result supports."""
    details: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    identity: Identity | None = None
    """The name under which the cause is reported, if it is not the class's own."""
    is_exact: bool = False
    """Whether an imitation has no error of its own, as the same arithmetic on both columns."""
    is_conclusive: bool = False
    """Whether the data show the cause by themselves, whatever else is left: it is accepted before
    dearer experiments are run on a gap that it distorts."""
    rivals: Edits = ()
    """What-if edits of other causes that leave about as much of the gap."""
    alternatives: tuple[ExperimentResult, ...] = ()
    """Other causes that the experiment found, next best first: one of them may be the right one
    next to a second cause."""

    parts: tuple[ExperimentResult, ...] = ()
    """The causes of a result that are only found together, each with its `before` and `after`."""


class Cause(ABC):
    """Base class of all causes: one class per file below `causes/`, discovered automatically."""

    id: ClassVar[str]
    title: ClassVar[str]
    remedies: ClassVar[tuple[str, ...]]
    """Best first, one or two plain sentences each."""
    cost: ClassVar[int] = 1
    """Approximate number of engines that the experiment loads; 0 for arithmetic only."""
    least: ClassVar[float] = 0.2
    """Share of the gap that must disappear without the cause for it to be named."""
    subtle: ClassVar[bool] = False
    """Whether the cause is detectable below the rounding noise because rounding leaves another
    signature. It must then remove the share `least` of the gap in excess of rounding."""
    peels: ClassVar[bool] = True
    """Whether the cause can be removed. Other causes are examined last, on the remaining gap."""
    stage: ClassVar[int] = 0
    """Order among the causes that cannot be removed: experiments (0), then signatures (1), then
    what only narrows the cause down (2)."""
    is_surrogate: ClassVar[bool] = False
    """Whether the experiment imitates the cause instead of removing it. Such a cause is proven only
    if nothing but rounding remains in the end."""
    uses_other_files: ClassVar[bool] = False
    """Whether the experiment runs another checkpoint, which imitations need not compete with."""
    is_symmetric: ClassVar[bool] = False
    """Whether the experiment also makes sense if a reference engine stands in for the sampler."""
    repeats: ClassVar[bool] = False
    """Whether further causes of the kind can be found after the first."""
    needs_steady: ClassVar[bool] = False
    """Whether the experiment compares many changes of one computation, which is in vain for a side
    that differs from itself."""
    when: ClassVar[Literal["always", "gap", "above-noise"]] = "above-noise"
    """Smallest gap for which the cause is examined: `always` includes no gap; `gap` includes a gap
    that may be rounding, because two settings are known to differ and an experiment decides."""

    def is_relevant(self, variant: Variant, *, quiet: bool) -> bool:
        """Whether the gap is large enough; `quiet` states whether it is rounding."""
        if self.when == "always":
            return True
        return variant.gap > EXACT and (self.when == "gap" or not quiet)

    @abstractmethod
    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """Judge from facts and data whether the experiment is worthwhile; runs no engine."""

    @abstractmethod
    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Remove the cause and measure the gap; None if the cause is not present.

        Raises:
            EngineError: if the engine does not support the experiment.
            BudgetSpentError: if the time budget is used up.
        """

    def remainder(self, experiments: Experiments, variant: Variant) -> ExperimentResult | None:
        """A guess for a gap that is mostly unexplained when no experiment was possible."""
        return None
