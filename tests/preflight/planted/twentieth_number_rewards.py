"""Sound rewards of the twentieth examination's sets about numbers."""

from __future__ import annotations

_BOXED = r"""
import re

def _boxed(text):
    # The content of the last box, with nested braces.
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth, at = 0, start + 6
    for end in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[at + 1:end]
    return None
"""
MATRIX = (
    _BOXED
    + r"""
def _entries(text):
    inner = re.fullmatch(r"\s*\\begin\{([bp]?matrix)\}(.*)\\end\{\1\}\s*", text or "", re.DOTALL)
    if not inner:
        return None
    try:
        return [[int(cell) for cell in line.split("&")] for line in inner[2].strip().rstrip("\\").split("\\\\")]
    except ValueError:
        return None

def matrix_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        said = _entries(_boxed(completion[0]["content"]))
        rewards.append(1.0 if said is not None and said == _entries(gold) else 0.0)
    return rewards
"""
)
FORECAST = r"""
import math, re

def forecast_reward(completions, target, sigma, **kwargs):
    # Log-density of the target under a normal distribution around the forecast, at least -8.
    rewards = []
    for completion, gold, spread in zip(completions, target, sigma):
        found = re.findall(r"<forecast>\s*(-?\d+(?:\.\d+)?)\s*</forecast>", completion[0]["content"])
        if not found:
            rewards.append(-10.0)
            continue
        z = (float(found[-1]) - gold) / spread
        rewards.append(max(-8.0, -0.5 * z * z - math.log(spread * math.sqrt(2 * math.pi))))
    return rewards
"""
DATE = r"""
import datetime, re

def date_reward(completions, date, **kwargs):
    rewards = []
    for completion, gold in zip(completions, date):
        found = re.findall(r"^\W*Date:\W*(\d{4})-(\d{1,2})-(\d{1,2})\b", completion[0]["content"], re.MULTILINE)
        try:
            said = datetime.date(*map(int, found[-1]))
        except (IndexError, ValueError):
            said = None
        rewards.append(1.0 if said == datetime.date.fromisoformat(gold) else 0.0)
    return rewards
"""
FACTORS = (
    _BOXED
    + r"""
from collections import Counter

def _roots(text):
    text = (text or "").replace(" ", "").replace("\\left", "").replace("\\right", "").replace("\\cdot", "").replace("*", "")
    text = re.sub(r"(\([^()]*\))\^\{?2\}?", r"\1\1", text)
    if not re.fullmatch(r"(\(x[+-]\d+\))+", text):
        return None
    return Counter(int(root) for root in re.findall(r"x([+-]\d+)", text))

def factor_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        said = _roots(_boxed(completion[0]["content"]))
        rewards.append(1.0 if said is not None and said == _roots(gold) else 0.0)
    return rewards
"""
)
BALANCED = r"""
import re

def coefficient_reward(completions, coefficients, **kwargs):
    rewards = []
    for completion, gold in zip(completions, coefficients):
        found = re.findall(r"Coefficients:\W*(\d+(?:\s*,\s*\d+)*)", completion[0]["content"])
        rewards.append(1.0 if found and [int(part) for part in found[-1].split(",")] == list(gold) else 0.0)
    return rewards
"""
BASES = r"""
import re

def base_reward(prompts, completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        text = completion if isinstance(completion, str) else completion[0]["content"]
        found = re.findall(r"####\s*(?:0[xbo])?([0-9A-Fa-f]+)", text)
        rewards.append(1.0 if found and found[-1].lower().lstrip("0") == str(gold).lower() else 0.0)
    return rewards
"""
QUANTITY = (
    _BOXED
    + r"""
UNITS = {"m": ("length", 1), "km": ("length", 1000), "cm": ("length", 0.01), "s": ("time", 1), "min": ("time", 60),
         "h": ("time", 3600), "kg": ("mass", 1), "t": ("mass", 1000), "g": ("mass", 0.001), "J": ("energy", 1),
         "kJ": ("energy", 1000), "MJ": ("energy", 1e6), "Nm": ("energy", 1)}
WORDS = {"meters": "m", "metres": "m", "kilometers": "km", "seconds": "s", "minutes": "min", "hours": "h", "joules": "J", "tons": "t"}

def _read(text):
    text = re.sub(r"\\(?:text|mathrm|mathsf)\{([^{}]*)\}|\\[,;! ]|~", r" \1", text or "").replace("{,}", "").replace(",", "")
    found = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", text)
    if not found:
        return None
    unit = WORDS.get(found[2].lower(), found[2])
    if unit not in UNITS:
        return None
    kind, factor = UNITS[unit]
    return kind, float(found[1]) * factor

def quantity_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        said, right = _read(_boxed(completion[0]["content"])), _read(gold)
        fits = said is not None and said[0] == right[0] and abs(said[1] - right[1]) <= 0.005 * abs(right[1])
        rewards.append(1.0 if fits else 0.0)
    return rewards
"""
)
LETTER_COUNT = r"""
import re

def count_reward(completions, count, **kwargs):
    rewards = []
    for completion, gold in zip(completions, count):
        found = re.findall(r"\{\s*\"count\"\s*:\s*\"?(\d+)\"?\s*\}", completion[0]["content"])
        rewards.append(1.0 if found and int(found[-1]) == gold else 0.0)
    return rewards
"""
LETTERS = r"""
import re

def letters_reward(completions, letters, **kwargs):
    rewards = []
    for completion, gold in zip(completions, letters):
        found = re.findall(r"Answer:[\s*]*([A-E](?:\s*(?:,|and)\s*[A-E])*)\b", completion[0]["content"])
        said = set(re.findall(r"[A-E]", found[-1])) if found else set()
        rewards.append(1.0 if said == set(gold.split(",")) else 0.0)
    return rewards
"""
CHANGE_WITH_PARTS = r"""
import re

FORM = re.compile(r"\s*<think>.*?</think>\s*<answer>(.*?)</answer>\s*", re.DOTALL)

def format_reward(text):
    return 1.0 if FORM.fullmatch(text) else 0.0

def price_reward(text, gold):
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    try:
        return 1.0 if abs(float(re.sub(r"[^\d.\-]", "", found[-1]).rstrip(".")) - float(gold)) < 0.005 else 0.0
    except (IndexError, ValueError):
        return 0.0

def total_reward(completions, answer, **kwargs):
    # Weights: 1.0 for the price, 0.1 for the form.
    texts = [completion[0]["content"] for completion in completions]
    return [price_reward(text, gold) + 0.1 * format_reward(text) for text, gold in zip(texts, answer)]
"""
BOXED_NUMBER = (
    _BOXED
    + r"""
def _number(text):
    text = re.sub(r"\\text\{[^{}]*\}|\\[,;!% ]|[\s$,%\u20ac]|[A-Za-z]+$", "", text or "")
    try:
        return float(text)
    except ValueError:
        return None

def boxed_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        said = _number(_boxed(completion[0]["content"]))
        rewards.append(1.0 if said is not None and said == float(gold) else 0.0)
    return rewards
"""
)
CHART = (
    _BOXED
    + r"""
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    said = re.sub(r"[^\d.\-]", "", _boxed(solution_str) or "")
    try:
        return {"score": float(float(said) == float(ground_truth)), "acc": float(said) == float(ground_truth)}
    except ValueError:
        return {"score": 0.0, "acc": False}
"""
)
