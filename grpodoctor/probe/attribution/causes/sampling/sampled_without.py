"""A setting of the sampler that acts while it draws: the sampler draws again without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.causes.sampling.wrong_sampler import drawn_deviation
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.variant import Setup, Variant
from grpodoctor.probe.engines.engine_facts import EngineFacts
from grpodoctor.probe.inputs.engine_spec import EngineSpec, Option

_LEFT = 0.1
"""Largest share of a gap above rounding that may be left without the setting."""


@dataclass(frozen=True, slots=True)
class _Setting:
    """A setting that can be turned off."""

    option: str
    off: Option | None
    """The value that turns it off; None if it is off when it is not given."""
    identity: Identity


_SETTINGS = (
    _Setting(
        "speculative_config", None,
        Identity(
            "speculative-decoding", "Speculative decoding draws from another distribution",
            ("Turn off speculative decoding in the sampler while training, or update the engine: "
             "accepted drafts must follow the target model.",),
        ),
    ),
    _Setting(
        "structured_outputs", None,
        Identity(
            "structured-output", "Structured output forbids tokens in the sampler",
            ("Turn off structured output while training: the learner cannot apply it, because it "
             "depends on the text.",),
        ),
    ),
    _Setting(
        "enable_prefix_caching", False,
        Identity(
            "prefix-caching", "The sampler's prefix cache changes its results",
            ("Clear the prefix cache after every weight sync (vLLM: reset_prefix_cache()), or turn "
             "prefix caching off while training (vLLM: enable_prefix_caching=False).",),
        ),
    ),
)  # fmt: skip


class SampledWithout(Cause):
    """Proven by the responses that the sampler draws without the setting."""

    id = "sampled-without"
    title = "A setting of the sampler acts while it draws"
    remedies = ("Turn the setting off while training.",)
    peels = False
    when = "always"
    cost = 2

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """Something is unexplained, and vLLM runs with such a setting."""
        if not _settings_of(experiments, variant):
            return None
        is_odd = experiments.exceeds_rounding(variant) or drawn_deviation(experiments, variant)
        return Hypothesis(0.95) if is_odd else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Draw other responses without each setting, and measure them alike."""
        odd = drawn_deviation(experiments, variant)
        was = ""
        if odd is not None and "z" in odd.facts:
            was = f"; with it, {odd.facts['of']} has z = {float(odd.facts['z']):.1f}"
        for setting in _settings_of(experiments, variant):
            case = experiments.case
            without = case.sampler.with_options(**{setting.option: setting.off})
            setup = Setup(case.learner, case.processing)
            again = Variant(setup, experiments.sampled_again(without))
            loud = experiments.exceeds_rounding(variant)
            if experiments.is_loud(again.gap) and again.gap > _LEFT * variant.gap:
                continue
            if drawn_deviation(experiments, again) is not None:
                continue
            gap = f"k3 is {variant.gap:.2g} with it and {again.gap:.2g} without"
            return ExperimentResult(
                summary=f"tokens drawn without {setting.option} follow the learner: {gap}{was}",
                explained=1 - again.gap / variant.gap if loud else None,
                figures={"gap_with": variant.gap, "gap_without": again.gap},
                identity=setting.identity,
            )
        return None


def _settings_of(experiments: Experiments, variant: Variant) -> list[_Setting]:
    """The settings that are on, and that the sampler can draw without."""
    case = experiments.case
    if case.sampler.engine != "vllm" or variant.setup.swapped:
        return []
    on = [each for each in _SETTINGS if each.identity.id not in experiments.named]
    return [each for each in on if _is_on(each, case.sampler, case.sampler_facts, variant)]


def _is_on(setting: _Setting, sampler: EngineSpec, facts: EngineFacts, variant: Variant) -> bool:
    if setting.off is None:
        return bool(sampler.options.get(setting.option))
    settings: Mapping[str, object] = facts.settings
    # A cache that no prompt came from changes nothing.
    return bool(settings.get(setting.option)) and bool((variant.tokens.cached_B > 0).any())
