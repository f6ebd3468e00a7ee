"""The words of log keys that hold a metric but are in no table."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from grpodoctor.frameworks.registry import generic_framework
from grpodoctor.frameworks.row_keys import is_evaluation, words_of
from grpodoctor.vocabulary.component_names import pays_for_form

Words = frozenset[str]


@dataclass(frozen=True, slots=True)
class WordPattern:
    """The words of keys that hold a metric."""

    metric: str
    words: tuple[Words, ...]
    """A key needs a word of each set."""
    without: Words = frozenset()
    low: float = -math.inf
    high: float = math.inf
    doubt: str = ""
    """What the words leave open, if a key of these words may hold another metric as well."""

    def matches(self, words: Words) -> bool:
        """Whether a key of these words holds the metric."""
        return all(not group.isdisjoint(words) for group in self.words) and self.without.isdisjoint(
            words
        )


def _words(text: str) -> Words:
    return frozenset(text.split())


_EXTREMES = _words("max min std stdev var variance median p95 p50 p90 best worst sum count num")
_COUNT = _words("count counts num n number")
_DURATION = _words("time timing timings sec secs second seconds ms duration latency")
_LENGTH = _words("len length lengths tokens toks")
_KL = _words("kl kld kldiv")
_LOGPROB = _words("logprob logprobs logp logps lp")
_RATE = _words("frac fraction ratio rate share pct percent proportion")
_SAMPLER = _words("rollout sampler sampling vllm sglang inference engine behave behavior mismatch")
_REWARD = _words("reward rewards rew return returns score scores")
_SCORE = _words("score scores")
_CLIP = _words("clip clipped clipfrac clipping")
_OTHER_LENGTHS = (_EXTREMES - {"num"}) | _words("prompt input total turn")
"""Words of keys whose lengths are not the mean length of a response."""
_RIGHT = _words("acc accuracy accuracies correct correctness solved success win pass solve")

_PATTERNS = (
    WordPattern("mismatch/kl_k3", (_KL, _SAMPLER), _EXTREMES),
    WordPattern("mismatch/logprob_diff_mean",
                (_LOGPROB, _words("diff abs gap delta error mismatch")), _EXTREMES, 0),
    WordPattern("kl/reference/k3", (_KL, _words("ref reference base init initial sft")), _EXTREMES),
    WordPattern("kl/old_policy/k1", (_KL, _words("old")), _EXTREMES),
    WordPattern("kl/old_policy/k1", (_KL, _words("approx ppo policy")), _EXTREMES,
                doubt="neither the other policy nor the sign is stated"),
    WordPattern("kl/reference/k3", (_KL,), _EXTREMES | _words("coef coeff beta target loss"),
                doubt="the other policy is not stated"),
    WordPattern("length/truncated_rate", (_words("trunc truncated truncation overlong cutoff"),),
                frozenset(), 0, 1),
    WordPattern("length/truncated_rate", (_words("clip clipped limit"), _LENGTH), frozenset(),
                0, 1),
    WordPattern("groups/zero_variance_rate",
                (_words("zero dead degenerate flat constant uniform same"),
                 _words("std var variance group groups adv advantage advantages")),
                _COUNT, 0, 1),
    WordPattern("groups/reward_std", (_REWARD, _words("std stdev"), _words("group groups")),
                frozenset(), 0),
    WordPattern("reward/std", (_REWARD, _words("std stdev"), _words("batch")), frozenset(), 0),
    WordPattern("reward/std", (_REWARD, _words("std stdev")), frozenset(), 0,
                doubt="it may be of a group (groups/reward_std) or of the batch (reward/std)"),
    WordPattern("clip/any_rate", (_CLIP,), _EXTREMES | _LENGTH, 0, 1),
    WordPattern("ratio/max", (_words("ratio ratios"), _words("max")),
                (_RATE - {"ratio"}) | _CLIP, 0),
    WordPattern("ratio/mean", (_words("ratio ratios"), _words("importance is mean prob policy")),
                _EXTREMES | _CLIP, 0),
    WordPattern("length/correct", (_LENGTH, _words("correct right")), _OTHER_LENGTHS, 0),
    WordPattern("length/incorrect", (_LENGTH, _words("incorrect wrong")), _OTHER_LENGTHS, 0),
    WordPattern("length/max", (_LENGTH, _words("max")),
                _words("prompt input limit config correct incorrect turn"), 1),
    WordPattern("length/mean", (_LENGTH,), _OTHER_LENGTHS, 0),
    WordPattern("entropy/mean", (_words("entropy ent"),),
                _EXTREMES | _words("coef coeff loss target"), 0, 20),
    WordPattern("accuracy/train", (_RIGHT,), _EXTREMES | _words("at format"), 0, 1),
    WordPattern("optimizer/grad_norm", (_words("grad gradient gnorm grads"),
                                     _words("norm gnorm l2")), _words("clip clipped max"), 0),
    WordPattern("optimizer/learning_rate", (_words("lr"),), frozenset(), 0, 1),
    WordPattern("optimizer/learning_rate", (_words("learning"), _words("rate")), frozenset(), 0, 1),
    WordPattern("optimizer/loss", (_words("loss"),),
                _EXTREMES | _words("kl entropy value critic aux scale coef coeff weight")),
    WordPattern("staleness/mean", (_words("stale staleness lag offpolicyness"),), _EXTREMES, 0),
    WordPattern("time/step",
                (_words("time sec seconds duration"), _words("step iter iteration total")),
                _words("rollout gen train update elapsed"), 0),
    WordPattern("reward/mean", (_REWARD,),
                _EXTREMES | _words("format length penalty bonus advantage")),
)  # fmt: skip
"""In this order; the first match counts."""


_SHORTEST = 2
"""Letters of the shortest word that is found within a longer one."""


def separate_words(key: str) -> Words:
    """The words of a key, also of a name without separators: grad and norm of `gradnorm`."""
    known = _known_words()
    words = words_of(key)
    joined = (_split(word, known) for word in words if word not in known)
    return words.union(*joined)


def is_heldout(key: str) -> bool:
    """Whether a key belongs to an evaluation, also without separators: `evalaccuracy`."""
    return is_evaluation(" ".join(separate_words(key)))


@functools.cache
def _known_words() -> Words:
    """The words of the patterns and of common names."""
    groups = [group for pattern in _PATTERNS for group in (*pattern.words, pattern.without)]
    keys = map(words_of, generic_framework().keys)
    return frozenset(_FUNCTION | _NOT_THE_REWARD | _WHOLE).union(*groups, *keys)


def _split(name: str, known: Words) -> Words:
    """The fewest known words that make up a name; none if there are none."""
    best: list[tuple[str, ...] | None] = [()] + [None] * len(name)
    for end in range(_SHORTEST, len(name) + 1):
        for start in range(end - _SHORTEST + 1):
            before, word = best[start], name[start:end]
            shorter = best[end] is None or len(best[end] or ()) > len(before or ()) + 1
            if before is not None and word in known and shorter:
                best[end] = (*before, word)
    return frozenset(best[-1] or ())


def pattern_of(key: str) -> WordPattern | None:
    """The first pattern that a key matches; a duration only matches that of a step."""
    words = separate_words(key)
    is_duration = not _DURATION.isdisjoint(words)
    return next(
        (
            pattern
            for pattern in _PATTERNS
            if pattern.matches(words) and (not is_duration or pattern.metric.startswith("time/"))
        ),
        None,
    )


_NOT_THE_REWARD = (
    _words(
        "best initial final baseline running rolling cumulative schedule weight weights coef "
        "events target threshold delta gap diff error failure progress previous teacher model "
        "margin spread cer wer perplexity ppl loss token tokens"
    )
    | _RATE
)
"""Words of keys about the reward that do not hold the mean reward of a response in a step."""

_WHOLE = _words("total overall combined")
"""Words that tell the whole reward from its components."""

_FUNCTION = _words("func fn function mean avg average train")
"""Words of a component's key that do not describe what the component rewards."""

_MIN_ROWS = 3
"""Rows that must have the key."""


def reward_key_among(keys: Mapping[str, int]) -> str:
    """The key whose words say that it holds the mean reward, if there is just one; else ''.

    Of several, one that holds the whole reward counts, or the only one whose spread is logged too:
    `reward/chosen_mean` with `reward/chosen_std`, next to the means of components, or the only
    reward next to scores, from which a script computes it: `bleu_reward_mean` next to
    `bleu_score_mean`. One of several components, which have the same last words, is not the reward.

    Args:
        keys: keys that no table knows, with the number of rows that have them.
    """
    candidates = [key for key, rows in keys.items() if rows >= _MIN_ROWS and _may_be_reward(key)]
    candidates = [key for key in candidates if not _is_one_of_several(key, keys)]
    whole = [key for key in candidates if not _WHOLE.isdisjoint(words_of(key))]
    spread = [key for key in candidates if "mean" in key and key.replace("mean", "std") in keys]
    rewards = [key for key in candidates if _SCORE.isdisjoint(separate_words(key))]
    for chosen in (candidates, whole, spread, rewards):
        if len(chosen) == 1:
            return chosen[0]
    return ""


_SUFFIX = re.compile(r"_(?:rewards?|scores?)(?:_(?:mean|avg))?$")
"""The last words of `<name>_reward_mean`."""


def _is_one_of_several(key: str, keys: Mapping[str, int]) -> bool:
    """Whether a key such as `brevity_reward_mean` has others of that form next to it.

    Those of the form or the accuracy are no candidates for the whole reward by themselves.
    """
    suffix = _SUFFIX.search(key)
    if suffix is None or not _WHOLE.isdisjoint(words_of(key)):
        return False
    return any(
        other != key
        and rows >= _MIN_ROWS
        and other.endswith(suffix.group())
        and not is_heldout(other)
        and not _may_be_reward(other)
        and _NOT_THE_REWARD.isdisjoint(separate_words(other) - _RATE)
        for other, rows in keys.items()
    )


def whole_reward_among(components: Mapping[str, int]) -> str:
    """The component of the reward whose name says that it is the whole reward; '' without one.

    `rewards/reward/mean` is the mean of a reward function called `reward`, as TRL logs it; a script
    without the key `reward` uses the same name for the total. The sum of other components is not
    known, since their weights are not.

    Args:
        components: keys of components, with the number of rows that have them.
    """
    named = [key for key, rows in components.items() if rows >= _MIN_ROWS and _is_whole(key)]
    if len(named) > 1:
        named = [key for key in named if not _WHOLE.isdisjoint(words_of(key))]
    return named[0] if len(named) == 1 else ""


def lone_reward_among(components: Mapping[str, int]) -> str:
    """The only component of the reward, which is then the reward; '' if it pays for the form.

    Args:
        components: keys of components, with the number of rows that have them.
    """
    named = [key for key, rows in components.items() if rows >= _MIN_ROWS]
    is_lone = len(components) == len(named) == 1 and not pays_for_form(named[0])
    return named[0] if is_lone else ""


def is_training_mean(key: str) -> bool:
    """Whether a key of a component holds neither a spread or an extreme nor an evaluation."""
    return _EXTREMES.isdisjoint(separate_words(key)) and not is_heldout(key)


def _is_whole(key: str) -> bool:
    return not is_heldout(key) and words_of(key) <= _REWARD | _WHOLE | _FUNCTION


def _may_be_reward(key: str) -> bool:
    pattern = pattern_of(key)
    if pattern is None or pattern.metric != "reward/mean" or is_heldout(key):
        return False
    return _NOT_THE_REWARD.isdisjoint(separate_words(key))
