"""Sound rewards of the twentieth examination's further sets."""

from __future__ import annotations

RANKING = r"""
import math, re

def _gain(order, relevance):
    return sum((2 ** relevance[at - 1] - 1) / math.log2(place + 2) for place, at in enumerate(order))

def ndcg_reward(completions, relevance, **kwargs):
    rewards = []
    for completion, grades in zip(completions, relevance):
        found = re.findall(r"Ranking:\s*(\[\d+\](?:\s*>\s*\[\d+\])*)", completion[0]["content"])
        order = [int(each) for each in re.findall(r"\d+", found[-1])] if found else []
        if sorted(order) != list(range(1, len(grades) + 1)):
            rewards.append(0.0)
            continue
        best = sorted(range(1, len(grades) + 1), key=lambda at: -grades[at - 1])
        rewards.append(_gain(order, grades) / _gain(best, grades))
    return rewards
"""
YAML = r"""
import re
import yaml

def yaml_reward(completions, settings, **kwargs):
    rewards = []
    for completion, gold in zip(completions, settings):
        found = re.findall(r"```ya?ml\s*\n(.*?)```", completion[0]["content"], re.DOTALL)
        try:
            said = yaml.safe_load(found[-1])
        except (IndexError, ValueError, yaml.YAMLError):
            said = None
        rewards.append(1.0 if isinstance(said, dict) and said == yaml.safe_load(gold) else 0.0)
    return rewards
"""
JACCARD = r"""
import re

def jaccard_reward(completions, alarms, **kwargs):
    rewards = []
    for completion, gold in zip(completions, alarms):
        found = re.findall(r"<alarms>(.*?)</alarms>", completion[0]["content"], re.DOTALL)
        said = {each.strip().lower() for each in found[-1].split(",")} if found else set()
        right = {each.strip() for each in gold.split(",")}
        rewards.append(len(said & right) / len(said | right))
    return rewards
"""
CHECKED = r"""
import re

def final_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        found = re.findall(r"\\boxed\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}", completion[0]["content"])
        said = re.sub(r"\\text\{[^{}]*\}|\\[,; ]|[\s,$]|[a-zA-Z]+", "", found[-1]) if found else ""
        try:
            rewards.append(1.0 if float(said) == float(gold) else 0.0)
        except ValueError:
            rewards.append(0.0)
    return rewards
"""
DEVANAGARI = r"""
import re

DIGITS = str.maketrans("०१२३४५६७८९", "0123456789")

def uttar_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        found = re.findall(r"उत्तर\s*[:：]\W*([\d,]+)", completion[0]["content"].translate(DIGITS))
        rewards.append(1.0 if found and found[-1].replace(",", "") == gold else 0.0)
    return rewards
"""
OVERLONG = r"""
import re

LIMIT, BUFFER = 16000, 4000

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    # DAPO: +1 or -1, and up to -1 for responses in the last part of the allowed length.
    found = re.findall(r"(?i)Answer\s*:\s*([^\n]+)", solution_str[-300:])
    said = re.sub(r"\\boxed\{([^{}]*)\}|[$,\s*]", r"\1", found[-1]).rstrip(".") if found else "[INVALID]"
    correct = said == ground_truth
    penalty = min(max(len(solution_str) - (LIMIT - BUFFER), 0) / BUFFER, 1.0)
    return {"score": (1.0 if correct else -1.0) - penalty, "acc": correct, "pred": said}
"""
TARGETS = r"""
import re, string

def _plain(text):
    text = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())

def compute_score_em(data_source, solution_str, ground_truth, extra_info=None):
    found = re.findall(r"<answer>(.*?)</answer>", solution_str, re.DOTALL)
    if not found:
        return 0.0
    return float(any(_plain(found[-1]) == _plain(each) for each in ground_truth["target"]))
"""
RULES = r"""
import json, re

def rules_reward(completions, constraints, **kwargs):
    rewards = []
    for completion, given in zip(completions, constraints):
        text, rules = completion[0]["content"].strip(), json.loads(given)
        words = re.findall(r"[a-z']+", text.lower())
        varied = len(set(words)) >= 0.4 * len(words) if words else False
        met = [len(words) >= rules["min_words"], words.count(rules["keyword"]) >= 2, text.endswith(rules["end"])]
        rewards.append(1.0 if all(met) and varied else 0.0)
    return rewards
"""
ROMAN = r"""
import re

def numeral_reward(completions, numeral, **kwargs):
    rewards = []
    for completion, gold in zip(completions, numeral):
        found = re.findall(r"Numeral:\W*([IVXLCDM]+)\b", completion[0]["content"], re.IGNORECASE)
        rewards.append(1.0 if found and found[-1].upper() == gold else 0.0)
    return rewards
"""
CSV = r"""
import csv, io, re

def _cells(text):
    return [[cell.strip() for cell in line] for line in csv.reader(io.StringIO(text.strip())) if line]

def csv_reward(completions, **kwargs):
    rewards = []
    for completion, gold in zip(completions, kwargs["csv"]):
        found = re.findall(r"```csv\s*\n(.*?)```", completion[0]["content"], re.DOTALL)
        try:
            rewards.append(1.0 if found and _cells(found[-1]) == _cells(gold) else 0.0)
        except csv.Error:
            rewards.append(0.0)
    return rewards
"""
LIGHTS = r"""
import json, re

def lights_reward(completions, grid, **kwargs):
    rewards = []
    for completion, lights in zip(completions, grid):
        found = re.findall(r"<press>\s*(\[[\d,\s]*\])\s*</press>", completion[0]["content"])
        try:
            cells = set(json.loads(found[-1]))
        except (IndexError, ValueError):
            rewards.append(0.0)
            continue
        left = list(lights)
        for cell in cells:
            for other in range(9):
                near = abs((cell - 1) // 3 - other // 3) + abs((cell - 1) % 3 - other % 3) <= 1
                left[other] ^= near
        rewards.append(1.0 if cells <= set(range(1, 10)) and not any(left) else 0.0)
    return rewards
"""
BRIER = r"""
import re

def calibrated_reward(completions, answer, **kwargs):
    # RLCR: correctness minus the Brier score of the stated confidence.
    rewards = []
    for completion, gold in zip(completions, answer):
        text = completion[0]["content"]
        found = re.findall(r"<answer>\s*(yes|no)\s*</answer>", text, re.IGNORECASE)
        sure = re.findall(r"<confidence>\s*(0(?:\.\d+)?|1(?:\.0+)?|\.\d+)\s*</confidence>", text)
        if not found or not sure:
            rewards.append(-1.0)
            continue
        right = float(found[-1].lower() == gold)
        rewards.append(right - (float(sure[-1]) - right) ** 2)
    return rewards
"""
