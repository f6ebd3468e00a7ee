"""The sampler read a different prompt than it reports: a token more or less, or only a part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import itemgetter

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.causes.tokens.prompt_ids import PromptIds, first_token_lost
from grpodoctor.probe.attribution.engine_files import read_config
from grpodoctor.probe.attribution.engine_variants import model_path
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Tokens
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.results.token_text import texts_of

_MOST_LIMITS = 3
_WITHOUT_FIRST = "without its first token"
_BEGINS = ("<s>", "<bos>", "[BOS]", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>")
_Change = Callable[[list[int]], list[int]]


class HiddenPrompt(Cause):
    """Same cause as `PromptIds`, detected from log-probabilities by scoring after other prompts."""

    id = PromptIds.id
    title = PromptIds.title
    remedies = (
        "Check the ids that reach the sampler's model: a beginning-of-sequence token may be "
        "added, a limit on prompts may apply (vLLM: truncate_prompt_tokens), or slicing may drop "
        "the first or last token.",
        *PromptIds.remedies,
    )
    least = 0.5

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """A gap that no cheaper experiment explains."""
        setup = variant.setup
        if setup.behind or setup.own_prompts or setup.rescored or setup.shift or setup.replay:
            return None
        return Hypothesis(0.02) if experiments.exceeds_rounding(variant) else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Score after each prompt that the sampler may have read."""
        prompts = experiments.sampled_prompts
        tried: dict[str, dict[int, list[int]]] = {}
        for words, change in _changes(experiments, variant):
            changed = {number: change(ids) or ids for number, ids in prompts.items()}
            if changed != prompts and changed not in tried.values():
                tried[words] = changed
        if not variant.tokens.counted_N.all():  # a part of the responses: others may be mixed in
            tried |= dict(_mixed(prompts))
        if not tried:
            return None
        variants = experiments.variants_behind(
            variant, [experiments.behind(ids) for ids in tried.values()]
        )
        words, after = min(zip(tried, variants, strict=True), key=lambda pair: pair[1].gap)
        return ExperimentResult(
            summary=(
                f"the sampler reports the learner's prompt ids, but after each prompt {words}, k3 "
                f"falls from {variant.gap:.2g} to {after.gap:.2g} nats per token"
            ),
            after=after,
            details=(words,),
            identity=first_token_lost("sampler") if words == _WITHOUT_FIRST else None,
        )


def _changes(experiments: Experiments, variant: Variant) -> Iterator[tuple[str, _Change]]:
    """Possible changes to a prompt, with a description."""
    yield _WITHOUT_FIRST, itemgetter(slice(1, None))
    yield "without its last token", itemgetter(slice(-1))
    yield "with its last token twice", lambda ids: [*ids, ids[-1]]
    for token in _begins(experiments):
        yield f"with token {token} first", partial(_prefixed, token)
    for limit in _limits(experiments, variant.tokens):
        yield f"cut to its last {limit} tokens", itemgetter(slice(-limit, None))
        yield f"cut to its first {limit} tokens", itemgetter(slice(limit))


def _mixed(prompts: Mapping[int, list[int]]) -> Iterator[tuple[str, dict[int, list[int]]]]:
    """Prompts that begin like the one before or after, as from a wrong block of a prefix cache."""
    numbers = sorted(prompts)
    for words, step in (("before", -1), ("after", 1)):
        moved = [numbers[(at + step) % len(numbers)] for at in range(len(numbers))]
        others = dict(zip(numbers, moved, strict=True))
        for size in _BLOCKS:
            mixed = {
                number: [*prompts[others[number]][:size], *ids[size:]]
                for number, ids in prompts.items()
            }
            yield f"with the first {size} tokens of the prompt {words} it", mixed


_BLOCKS = (4, 8, 16, 32, 64)
"""Tokens of a block of a prefix cache."""


def _prefixed(token: int, ids: list[int]) -> list[int]:
    return [token, *ids]


def _begins(experiments: Experiments) -> list[int]:
    """Possible beginning-of-sequence tokens: reported, configured, or named so."""
    case = experiments.case
    config = read_config(model_path(case.learner)).get("bos_token_id")
    reported = [case.sampler_facts.begin_id, case.learner_facts.begin_id, config]
    by_text = [token for token, text in texts_of(case.learner.model).items() if text in _BEGINS]
    candidates = dict.fromkeys([*reported, *sorted(by_text)])
    return [token for token in candidates if isinstance(token, int)]


def _limits(experiments: Experiments, tokens: Tokens) -> list[int]:
    """Possible limits on the prompt length: shorter prompts show no gap."""
    lengths_B = tokens.prompt_lengths_B
    counts_B = np.bincount(tokens.rows_N, weights=tokens.finite_N, minlength=lengths_B.size)
    known = np.unique(lengths_B).tolist()
    sound = [
        length
        for length in known
        if not experiments.is_loud(
            float(tokens.gap_B[lengths_B <= length].sum())
            / max(float(counts_B[lengths_B <= length].sum()), 1.0)
        )
    ]
    if sound and sound[-1] < known[-1]:
        between = range(sound[-1], known[known.index(sound[-1]) + 1])
        usual = [limit for limit in between if limit.bit_count() == 1]
        return list(dict.fromkeys([*usual, *between]))[:_MOST_LIMITS]
    powers = [2**n for n in range(3, 20) if 2**n < known[0]]
    return powers[-_MOST_LIMITS:][::-1]
