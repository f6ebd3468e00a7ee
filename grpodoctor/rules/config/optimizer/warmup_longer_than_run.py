"""CFG057."""

from __future__ import annotations

from grpodoctor.rules.base import RuleResult
from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.values import NotApplicable


class WarmupLongerThanRun(ConfigRule):
    """The warm-up of the learning rate takes most of the run.

    What it sees:
        Steps of warm-up that are at least half of the steps of the run, or a share of the run that
        is.

    Why it matters:
        The learning rate never reaches its value, or only at the end. The run learns as slowly as
        with a much smaller learning rate, and looks flat.

    Evidence it needs:
        Settings: `warmup_steps` with `total_steps`, or `warmup_share`.

    Remedies:
        Shorten the warm-up to a few per cent of the run, at most some tens of steps.

    When it is wrong:
        The run is the beginning of a longer one, and is resumed with more steps.

    References:
        transformers, TrainingArguments.warmup_steps.
    """

    code = "CFG057"
    name = "warmup-longer-than-run"
    explains = ("plateau",)
    summary = "The warm-up of the learning rate takes most of the run."
    needs = ()
    remedies = ()
    references = ("huggingface.co/docs/transformers/main_classes/trainer",)
    judges_any_method = True

    largest_share: float = 0.5
    """Share of the run from which the warm-up is a mistake; a tenth is usual."""

    def examine(self, chart: Chart) -> RuleResult:
        """Examine the configuration if it gives the warm-up in steps or as a share."""
        known = chart.config.settings(chart.knobs).keys()
        if "warmup_share" in known or {"warmup_steps", "total_steps"} <= known:
            return super().examine(chart)
        return NotApplicable("the config does not determine warmup_steps, total_steps")

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Compare the warm-up with the run."""
        warmup, total = settings.amount("warmup_steps"), settings.amount("total_steps")
        share = settings.amount("warmup_share")
        if share >= self.largest_share and not warmup:
            text = f"The warm-up takes {share:.0%} of the run: shorten it to a few per cent."
            return ConfigFault("warning", text)
        if not total or warmup < self.largest_share * total:
            return None
        text = (
            f"The warm-up takes {warmup:.0f} of the run's {total:.0f} steps: shorten it to a few "
            "per cent."
        )
        return ConfigFault("warning", text)
