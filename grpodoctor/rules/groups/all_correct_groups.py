"""GRP001."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.run_health import (
    NEEDS_NO_VARIANCE,
    RECENT,
    has_critic,
    share_of,
    since,
    why_no_variance,
)
from grpodoctor.runs.chart import Chart

_RIGHT = "groups/all_correct_rate"
_FLAT = "groups/zero_variance_rate"
_HELDOUT = "accuracy/heldout"


@dataclass(frozen=True)
class AllCorrectGroups(Rule):
    """Most groups carry no signal because every response in them is right.

    What it sees:
        A large share of groups in which all responses are correct. It is a note: the run succeeds
        and wastes the compute. It is a warning where held-out prompts are still answered wrongly,
        since then the training prompts are too easy for what the run is evaluated on.

    Why it matters:
        A group whose rewards are all equal has advantages of zero. Its tokens were paid for and
        teach nothing, and the batch that does teach is smaller than it looks.

    Evidence it needs:
        `groups/all_correct_rate`; or `groups/zero_variance_rate` with `accuracy/train` or a reward
        that tells right from wrong.

    Remedies:
        Replace such groups by fresh ones (dynamic sampling), train on harder prompts, or stop: the
        task is solved.

    When it is wrong:
        The share grows with accuracy in every healthy run (from .08 at an accuracy of .55 to .37
        above .8 in small ones), so it is never a failure by itself. Without a split by correctness
        the share is attributed by the accuracy, and not at all where that does not fit. Where a
        critic is the baseline such groups do teach, and the rule does not apply.

    References:
        DAPO, arXiv 2503.14476, section 3.2.
    """

    code: ClassVar[str] = "GRP001"
    name: ClassVar[str] = "all-correct-groups"
    former_names: ClassVar[tuple[str, ...]] = ("zero-variance-groups-too-easy",)
    summary: ClassVar[str] = "Most groups are right throughout and carry no signal."
    inputs: ClassVar[tuple[Need, ...]] = ((_RIGHT, _FLAT),)
    remedies: ClassVar[tuple[str, ...]] = ("dynamic-sampling", "harder-prompts", "stop-training")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)

    clearance: ClassVar[int] = 20

    most: float = 0.6
    """Share of groups. Healthy runs were seen up to .37 (small) and .6 (late, accuracy .82)."""
    unsolved: float = 0.8
    """Held-out accuracy below which easy training prompts are a mistake rather than a success."""
    readings: int = 5
    """Fewest readings for a level."""

    def examine(self, chart: Chart) -> RuleResult:
        """Take the recent share of groups that are right throughout."""
        if has_critic(chart):
            return NEEDS_NO_VARIANCE
        name = _RIGHT if chart.is_fresh(_RIGHT) else _FLAT
        series = chart.series(name)
        if series.last < self.most / 2 or len(series) < self.readings:
            return None
        share = share_of(series, 2 * RECENT)
        if not share >= self.most or (name == _FLAT and why_no_variance(chart) != "easy"):
            return None
        evidence = cite_all(chart, name, "accuracy/train", _HELDOUT)
        text = f"{share:.0%} of the groups are right throughout and carry no signal"
        began = partial(since, series, lambda flat: flat >= self.most)
        heldout = chart.series(_HELDOUT)
        if len(heldout) and heldout.level(3) < self.unsolved:
            held = f"held-out accuracy is {heldout.level(3):.0%}"
            return Sighting("warning", f"{text}, while {held}", evidence, since=began)
        text = f"{text}: these prompts are (nearly) solved"
        return Sighting("info", text, evidence, since=began)
