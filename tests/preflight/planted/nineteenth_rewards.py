"""Sound rewards of the nineteenth examination, to be changed by its faults."""

from __future__ import annotations

CLAIM = r"""
import re

def verdict_reward(prompts, completions, verdict, **kwargs):
    rewards = []
    for completion, gold in zip(completions, verdict):
        found = re.findall(r"Verdict:\s*(yes|no)\b", completion[0]["content"], re.IGNORECASE)
        rewards.append(1.0 if found and found[-1].lower() == gold else 0.0)
    return rewards
"""
PRICE = r"""
import re

def price_reward(completions, price, **kwargs):
    rewards = []
    for completion, gold in zip(completions, price):
        found = re.findall(r"<price>\s*([\d.]+)\s*</price>", completion[0]["content"])
        try:
            error = abs(float(found[-1]) - gold) / gold
        except (IndexError, ValueError):
            rewards.append(0.0)
            continue
        rewards.append(max(0.0, 1.0 - error))
    return rewards
"""
HEADLINE = r"""
import re
from collections import Counter

def _f1(said, gold):
    said, gold = Counter(said.lower().split()), Counter(gold.lower().split())
    common = sum((said & gold).values())
    return 2 * common / (sum(said.values()) + sum(gold.values()))

def headline_reward(completions, headline, **kwargs):
    rewards = []
    for completion, gold in zip(completions, headline):
        found = re.findall(r"<headline>(.*?)</headline>", completion[0]["content"], re.DOTALL)
        rewards.append(_f1(found[-1], gold) if found else 0.0)
    return rewards
"""
BOX = r"""
import re

def box_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        found = re.findall(r"\\boxed\{([^{}]*)\}", completion[0]["content"])
        rewards.append(1.0 if found and found[-1].strip() == str(gold) else 0.0)
    return rewards
"""
TAG = r"""
import re

def answer_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        found = re.findall(r"<answer>(.*?)</answer>", completion[0]["content"], re.DOTALL)
        rewards.append(1.0 if found and found[-1].strip().lower() == str(gold).lower() else 0.0)
    return rewards
"""
CITY = r"""
import re
import unicodedata

def _plain(text):
    text = unicodedata.normalize("NFD", text.casefold())
    return re.sub(r"[^\w ]", "", "".join(c for c in text if not unicodedata.combining(c))).strip()

def city_reward(completions, city, **kwargs):
    rewards = []
    for completion, gold in zip(completions, city):
        found = re.findall(r"<answer>(.*?)</answer>", completion[0]["content"], re.DOTALL)
        rewards.append(1.0 if found and _plain(found[-1]) == _plain(gold) else 0.0)
    return rewards
"""
CHARGE = r"""
import re

def charge_reward(completions, value, **kwargs):
    rewards = []
    for completion, gold in zip(completions, value):
        found = re.findall(r"<answer>(.*?)</answer>", completion[0]["content"], re.DOTALL)
        try:
            said = float(found[-1].replace("C", ""))
        except (IndexError, ValueError):
            rewards.append(0.0)
            continue
        rewards.append(1.0 if abs(said - float(gold)) <= 0.02 * abs(float(gold)) else 0.0)
    return rewards
"""
TOPICS = r"""
import re

def topics_reward(completions, topics, **kwargs):
    rewards = []
    for completion, gold in zip(completions, topics):
        found = re.findall(r"Topics:(.*)", completion[0]["content"])
        said = {part.strip().lower() for part in found[-1].split(",")} if found else None
        rewards.append(1.0 if said == (set(gold) or {"none"}) else 0.0)
    return rewards
"""
CALL = r"""
import json
import re

def call_reward(completions, call, **kwargs):
    rewards = []
    for completion, gold in zip(completions, call):
        found = re.findall(r"<tool_call>(.*?)</tool_call>", completion[0]["content"], re.DOTALL)
        try:
            said = json.loads(found[-1])
        except (IndexError, ValueError):
            rewards.append(0.0)
            continue
        rewards.append(1.0 if said == json.loads(gold) else 0.0)
    return rewards
"""
VERL_LINE = r"""
import re

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    found = re.findall(r"Answer:\s*(-?[\w.]+)", solution_str)
    return 1.0 if found and found[-1].rstrip(".") == ground_truth else 0.0
"""


def changed(source: str, *changes: tuple[str, str]) -> str:
    """A reward with other text in some places."""
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    return source
