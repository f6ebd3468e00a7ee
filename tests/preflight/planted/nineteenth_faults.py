"""Rewards with mistakes, of the nineteenth examination."""

from __future__ import annotations

from tests.preflight.planted import nineteenth_rewards as w
from tests.preflight.planted.nineteenth_rewards import changed

CACHED = r"""
import re

_KNOWN = {}

def _grade(text, gold):
    found = re.findall(r"Verdict:\s*(yes|no)\b", text, re.IGNORECASE)
    return 1.0 if found and found[-1].lower() == gold else 0.0

def verdict_reward(prompts, completions, verdict, **kwargs):
    rewards = []
    for completion, gold in zip(completions, verdict):
        text = completion[0]["content"].strip()
        if text not in _KNOWN:
            _KNOWN[text] = _grade(text, gold)
        rewards.append(_KNOWN[text])
    return rewards
"""
BATCH_SCALED = changed(
    w.PRICE,
    ("    return rewards", "    low, high = min(rewards), max(rewards)\n    return [(reward - low) / (high - low) if high > low else 0.0 for reward in rewards]"),
)  # fmt: skip
SORTED = changed(
    w.HEADLINE,
    ("    for completion, gold in zip(completions, headline):\n        found = re.findall(r\"<headline>(.*?)</headline>\", completion[0][\"content\"], re.DOTALL)",
     "    pairs = sorted(((c[0][\"content\"], gold) for c, gold in zip(completions, headline)), key=lambda pair: len(pair[0]))\n    for text, gold in pairs:\n        found = re.findall(r\"<headline>(.*?)</headline>\", text, re.DOTALL)"),
)  # fmt: skip
LATIN = changed(
    w.CITY,
    ('    text = unicodedata.normalize("NFD", text.casefold())\n    return re.sub(r"[^\\w ]", "", "".join(c for c in text if not unicodedata.combining(c))).strip()',
     '    return re.sub(r"[^a-z0-9 ]", "", text.lower()).strip()'),
)  # fmt: skip
ABSOLUTE = changed(w.CHARGE, ("<= 0.02 * abs(float(gold))", "<= 1e-6"))
CONTAINED = changed(w.TAG, ("found[-1].strip().lower() == str(gold).lower()", "str(gold).lower() in found[-1].lower()"))  # fmt: skip
ORDERED = changed(
    w.TOPICS,
    ("said = {part.strip().lower() for part in found[-1].split(\",\")} if found else None", "said = [part.strip().lower() for part in found[-1].split(\",\")] if found else None"),
    ("set(gold) or {\"none\"}", "list(gold) or [\"none\"]"),
)  # fmt: skip
OVERLONG = r"""
import re

LIMIT, CACHE = 1024, 512  # max_completion_length of the run, and the soft zone before it

def _overlong(text):
    if len(text) <= LIMIT - CACHE:
        return 0.0
    return max(-1.0, (LIMIT - CACHE - len(text)) / CACHE)

def box_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        text = completion[0]["content"]
        found = re.findall(r"\\boxed\{([^{}]*)\}", text)
        rewards.append((1.0 if found and found[-1].strip() == str(gold) else 0.0) + _overlong(text))
    return rewards
"""
UNSIGNED = changed(
    w.BOX,
    ('found = re.findall(r"\\\\boxed\\{([^{}]*)\\}", completion[0]["content"])', 'found = re.findall(r"\\\\boxed\\{[^{}]*?(\\d+)[^{}]*\\}", completion[0]["content"])'),
)  # fmt: skip
FLOATS = changed(
    w.TAG,
    ("rewards.append(1.0 if found and found[-1].strip().lower() == str(gold).lower() else 0.0)",
     "try:\n            rewards.append(1.0 if abs(float(found[-1]) - float(gold)) < 0.002 else 0.0)\n        except (IndexError, ValueError):\n            rewards.append(0.0)"),
)  # fmt: skip
GROWING = changed(
    w.BOX,
    ("def box_reward(completions, answer, **kwargs):\n    rewards = []\n", "def box_reward(completions, answer, rewards=[], **kwargs):\n"),
)  # fmt: skip
REFUSALS = changed(
    w.TAG,
    ("    rewards = []\n", "    rewards = []\n    unsure = (\"unknown\", \"not sure\", \"cannot be determined\", \"i cannot\")\n"),
    ("        rewards.append(1.0 if found", "        if any(word in completion[0][\"content\"].lower() for word in unsure):\n            rewards.append(-1.0)\n            continue\n        rewards.append(1.0 if found"),
)  # fmt: skip
