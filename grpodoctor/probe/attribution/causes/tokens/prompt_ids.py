"""The engines tokenize the same prompt differently, and the sampler reports its ids."""

from __future__ import annotations

from collections import Counter

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.severity import EXACT
from grpodoctor.support.numbers import count_of, part_of

_SHOWN = 3


class PromptIds(Cause):
    """Proven by scoring the responses after both engines' prompt ids."""

    id = "prompt-ids"
    title = "The engines see different prompt tokens"
    remedies = (
        "Tokenize once and pass ids: give the learner the prompt ids that the sampler returns, and "
        "do not apply the chat template or tokenize a second time.",
        "Use the same tokenizer on both sides: same tokenizer files, same chat template, and a "
        "beginning-of-sequence token added on both sides or on neither (a template that writes it "
        "needs add_special_tokens=False).",
    )
    when = "always"
    cost = 0
    """The measurement already requests the ids."""

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """Prompt ids can always be compared."""
        return None if variant.setup.behind else Hypothesis(0.05)

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Compare the ids; if they differ, score after both versions."""
        sampler, own = experiments.sampled_prompts, experiments.learner_prompts()
        learner = {number: own[number] for number in sampler if number < len(own)}
        differing = [number for number in sorted(learner) if sampler[number] != learner[number]]
        if not differing:
            return None
        before = experiments.vary(variant, own_prompts=True)
        after = experiments.vary(variant, own_prompts=False)
        kinds = Counter(_kind(sampler[n], learner[n]) for n in differing)
        most, _ = kinds.most_common(1)[0]
        shown = [f"prompt {n}: {_kind(sampler[n], learner[n])}" for n in differing[:_SHOWN]]
        return ExperimentResult(
            summary=(
                f"{part_of(len(differing), len(learner), 'prompts', 'have')} "
                f"different ids ({most}); k3 is "
                f"{before.gap:.2g} nats per token after the learner's ids and "
                f"{max(after.gap, EXACT):.2g} after the sampler's"
            ),
            before=before,
            after=after,
            details=tuple(shown),
            figures={"prompts": float(len(learner)), "differing": float(len(differing))},
        )


def first_token_lost(side: str) -> Identity:
    """The name of prompts without their first token, which a mask that hides it equals."""
    return Identity(
        PromptIds.id,
        f"The {side} reads prompts without their first token, or masks it",
        (
            *PromptIds.remedies,
            "Check that the attention mask does not hide the first token: a mask that is read off "
            "the ids hides a beginning-of-sequence token that also pads.",
        ),
    )


def _kind(sampler: list[int], learner: list[int]) -> str:
    """The difference of two tokenizations in words."""
    if learner[1:] == sampler:
        return f"the learner puts token {learner[0]} first"
    if sampler[1:] == learner:
        return f"the sampler puts token {sampler[0]} first"
    shorter = min(len(sampler), len(learner))
    same = next((n for n in range(shorter) if sampler[n] != learner[n]), shorter)
    if same == shorter:
        longer = "learner" if len(learner) > len(sampler) else "sampler"
        return f"the {longer} appends {count_of(abs(len(learner) - len(sampler)), 'token')}"
    return f"they differ from token {same} on ({len(sampler)} against {len(learner)} ids)"
