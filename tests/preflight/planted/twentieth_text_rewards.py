"""Sound rewards of the twentieth examination's sets about texts and labels."""

from __future__ import annotations

WEIGHTED_CLASSES = r"""
import re

WEIGHTS = {"routine": 1.0, "urgent": 3.0, "security": 3.0}

def class_reward(completions, label, **kwargs):
    rewards = []
    for completion, gold in zip(completions, label):
        found = re.findall(r"<label>\s*(\w+)\s*</label>", completion[0]["content"])
        rewards.append(WEIGHTS[gold] if len(found) == 1 and found[0].lower() == gold else 0.0)
    return rewards
"""
FIELDS = r"""
import json, re

def _same(said, gold):
    if isinstance(gold, str) and isinstance(said, str):
        return said.strip().lower() == gold.lower()
    if isinstance(gold, list) and isinstance(said, list):
        return sorted(map(str, said)) == sorted(gold)
    return said == gold and isinstance(said, bool) is isinstance(gold, bool)

def advert_reward(completions, fields, **kwargs):
    rewards = []
    for completion, gold in zip(completions, fields):
        gold = json.loads(gold)
        found = re.findall(r"```json\s*(\{.*?\})\s*```", completion[0]["content"], re.DOTALL)
        try:
            said = json.loads(found[-1])
        except (IndexError, ValueError):
            rewards.append(0.0)
            continue
        if set(said) != set(gold):
            rewards.append(0.0)
        else:
            right = sum(_same(said[key], gold[key]) for key in gold)
            rewards.append(1.0 if right == len(gold) else 0.0)
    return rewards
"""
SENTENCE_BLEU = r"""
import math, re
from collections import Counter

def _grams(words, n):
    return Counter(tuple(words[at:at + n]) for at in range(len(words) - n + 1))

def _bleu(said, gold):
    said, gold = (re.findall(r"\w+|[^\w\s]", text) for text in (said, gold))
    if not said:
        return 0.0
    total = 0.0
    for n in range(1, 5):
        mine, right = _grams(said, n), _grams(gold, n)
        common = sum((mine & right).values())
        if n == 1 and not common:
            return 0.0
        total += math.log((common + (n > 1)) / (max(sum(mine.values()), 0) + (n > 1)))
    return math.exp(total / 4) * min(1.0, math.exp(1 - len(gold) / len(said)))

def bleu_reward(completions, reference, **kwargs):
    return [_bleu(completion[0]["content"].strip(), gold) for completion, gold in zip(completions, reference)]
"""
NEAR_THIRTY = r"""
import re
from collections import Counter

def _f1(said, gold):
    said, gold = (Counter(re.findall(r"\w+", text.lower())) for text in (said, gold))
    common = sum((said & gold).values())
    return 2 * common / max(sum(said.values()) + sum(gold.values()), 1)

def summary_reward(completions, summary, **kwargs):
    rewards = []
    for completion, gold in zip(completions, summary):
        text = completion[0]["content"]
        off = abs(len(text.split()) - 30)
        rewards.append(_f1(text, gold) * max(0.0, 1.0 - max(0, off - 10) / 30))
    return rewards
"""
ANSWER_TAG = r"""
import re

def tag_reward(prompts, completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        text = completion if isinstance(completion, str) else completion[0]["content"]
        found = re.findall(r"<answer>\s*(.*?)\s*</answer>", text, re.DOTALL)
        rewards.append(1.0 if found and found[-1].lower() == gold.lower() else 0.0)
    return rewards
"""
PROMISE = ANSWER_TAG.replace("tag_reward", "promise_reward")
COSINE = r"""
import zlib
import numpy as np

def _embed(text):
    # Stands for a sentence encoder: character trigrams of the words, hashed into a vector.
    vector = np.zeros(512)
    for word in text.lower().replace(".", " ").replace(",", " ").split():
        word = f"  {word}  "
        for at in range(len(word) - 2):
            vector[zlib.crc32(word[at:at + 3].encode()) % 512] += 1
    return vector / max(np.linalg.norm(vector), 1e-9)

def _source(prompt):
    return prompt[-1]["content"].split("\n\n", 1)[1]

def paraphrase_reward(prompts, completions, paraphrase, **kwargs):
    rewards = []
    for prompt, completion, gold in zip(prompts, completions, paraphrase):
        text = completion[0]["content"].strip()
        copied = text.lower().rstrip(".") == _source(prompt).lower().rstrip(".")
        rewards.append(0.0 if copied else float(_embed(text) @ _embed(gold)))
    return rewards
"""
ENTITIES = r"""
import json

def entity_reward(completions, entities, **kwargs):
    rewards = []
    for completion, gold in zip(completions, entities):
        gold = {tuple(pair) for pair in json.loads(gold)}
        try:
            said = json.loads(completion[0]["content"].rpartition("Entities:")[2])
            said = {(str(kind).lower(), str(name)) for kind, name in said}
        except (ValueError, TypeError):
            rewards.append(0.0)
            continue
        rewards.append(2 * len(said & gold) / max(len(said) + len(gold), 1))
    return rewards
"""
CORRECTED = r"""
import re

def _plain(text):
    return " ".join(text.replace("\u2019", "'").split()).rstrip(".").lower()

def correction_reward(completions, corrected, **kwargs):
    rewards = []
    for completion, gold in zip(completions, corrected):
        found = re.findall(r"<corrected>(.*?)</corrected>", completion[0]["content"], re.DOTALL)
        rewards.append(1.0 if found and _plain(found[-1]) == _plain(gold) else 0.0)
    return rewards
"""
GRADE_OF_CROSSWORD = r"""
import re

def word_reward(completions, word, **kwargs):
    rewards = []
    for completion, gold in zip(completions, word):
        found = re.findall(r"Word:\W*(\w+)", completion[0]["content"])
        rewards.append(1.0 if found and found[-1].lower() == gold else 0.0)
    return rewards
"""
FRENCH = r"""
import re

FORMS = {"vert": "verte", "noir": "noire", "blanc": "blanche", "bleu": "bleue"}

def couleur_reward(completions, couleur, **kwargs):
    rewards = []
    for completion, gold in zip(completions, couleur):
        found = re.findall(r"<couleur>\s*(.*?)\s*</couleur>", completion[0]["content"], re.DOTALL)
        said = found[-1].lower().rstrip(".") if found else ""
        rewards.append(1.0 if said in (gold, FORMS.get(gold, gold)) else 0.0)
    return rewards
"""
DECISION = r"""
import re

def decision_reward(completions, decision, **kwargs):
    rewards = []
    for completion, gold in zip(completions, decision):
        found = re.findall(r"Decision:\W*(comply|refuse)\b", completion[0]["content"], re.IGNORECASE)
        rewards.append(1.0 if found and found[-1].lower() == gold else -1.0)
    return rewards
"""
