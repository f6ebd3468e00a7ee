"""Metrics in the words of a sentence: "held-out accuracy" for `accuracy/heldout`.

Tables and JSON keep the names, which are exact; the first lines of a report are for reading.
"""

from __future__ import annotations

import re

PLAIN_NAMES = {
    "reward/mean": "the mean reward",
    "reward/heldout": "the held-out reward",
    "accuracy/train": "training accuracy",
    "accuracy/heldout": "held-out accuracy",
    "entropy/mean": "entropy",
    "length/mean": "the mean length",
    "length/truncated_rate": "the truncated share",
    "groups/zero_variance_rate": "the share of zero-variance groups",
    "optimizer/grad_norm": "the gradient norm",
    "optimizer/learning_rate": "the learning rate",
    "kl/reference/k1": "the KL to the reference (k1)",
    "kl/reference/k3": "the KL to the reference (k3)",
    "clip/low_rate": "the share clipped low",
    "clip/high_rate": "the share clipped high",
}
# A name after an equals sign belongs to an option, which must stay as it is typed.
_NAME = re.compile(rf"(?<![\w/=])(?:{'|'.join(map(re.escape, PLAIN_NAMES))})(?![\w/])")


def in_plain_words(sentence: str) -> str:
    """A sentence with words for the names of metrics; it begins with a capital."""
    replaced = _NAME.sub(lambda match: PLAIN_NAMES[match[0]], sentence)
    begins_with_name = _NAME.match(sentence) is not None
    return f"{replaced[:1].upper()}{replaced[1:]}" if begins_with_name else replaced
