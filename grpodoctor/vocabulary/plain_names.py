"""Metrics in the words of a sentence: "held-out accuracy" for `accuracy/heldout`.

Tables keep the names, which are exact; sentences are for reading.
"""

from __future__ import annotations

import re

PLAIN_NAMES = {
    "reward/mean": "the mean reward",
    "reward/heldout": "the held-out reward",
    "reward/std": "the spread of the rewards",
    "accuracy/train": "training accuracy",
    "accuracy/heldout": "held-out accuracy",
    "entropy/mean": "entropy",
    "entropy/sampled": "the sampled entropy",
    "length/mean": "the mean length",
    "length/max": "the longest response",
    "length/truncated_rate": "the truncated share",
    "groups/zero_variance_rate": "the share of zero-variance groups",
    "groups/zero_variance_rate/inferred": "the inferred share of zero-variance groups",
    "groups/all_correct_rate": "the share of all-correct groups",
    "groups/all_incorrect_rate": "the share of all-incorrect groups",
    "groups/reward_std": "the spread of the rewards within groups",
    "advantage/abs_max": "the largest absolute advantage",
    "optimizer/loss": "the loss",
    "optimizer/grad_norm": "the gradient norm",
    "optimizer/learning_rate": "the learning rate",
    "kl/reference/k1": "the reference KL (k1)",
    "kl/reference/k3": "the reference KL (k3)",
    "kl/old_policy/k1": "the old-policy KL (k1)",
    "kl/old_policy/k3": "the old-policy KL (k3)",
    "ratio/max": "the largest importance ratio",
    "mismatch/nll_gap": "the gap of the log-likelihoods",
    "mismatch/prob_diff_mean": "the mean difference of the probabilities",
    "mismatch/logprob_diff_mean": "the mean difference of the log-probabilities",
    "mismatch/kl_k1": "the KL between the engines (k1)",
    "mismatch/kl_k2": "the KL between the engines (k2)",
    "mismatch/kl_k3": "the KL between the engines (k3)",
    "clip/low_rate": "the share clipped low",
    "clip/high_rate": "the share clipped high",
}
# A name after an equals sign belongs to an option, which must stay as it is typed.
_NAME = re.compile(rf"(?<![\w/=])(?:{'|'.join(map(re.escape, PLAIN_NAMES))})(?![\w/])")


_IN_SENTENCE = re.compile(
    rf"{_NAME.pattern}"
    r"|(?<![\w/=])(?P<measure>accuracy|reward)/heldout/set/(?P<set>[^\s,;()]*[^\s,;():.])"
    r"|(?<![\w/=])pass_at_k/(?P<k>\d+)(?![\w/])"
)
"""Names of metrics, also of those with a part that the log chooses."""


def _words(match: re.Match[str]) -> str:
    if match["set"]:
        return f"{PLAIN_NAMES[match['measure'] + '/heldout']} on {match['set']}"
    return f"pass@{match['k']}" if match["k"] else PLAIN_NAMES[match[0]]


def plain_name(name: str) -> str:
    """The words for a metric or a knob: "updates per batch" for `updates_per_batch`."""
    return PLAIN_NAMES.get(name, name if "/" in name else name.replace("_", " "))


def in_plain_words(sentence: str) -> str:
    """A sentence with words for the names of metrics; it begins with a capital."""
    replaced = _IN_SENTENCE.sub(_words, sentence)
    begins_with_name = _IN_SENTENCE.match(sentence) is not None
    return f"{replaced[:1].upper()}{replaced[1:]}" if begins_with_name else replaced
