"""Reward functions as users write them: sound ones, and ones with a fault."""

MATH_TRL = r"""
import re
def _number(text):
    found = re.findall(r"-?\d[\d,]*(?:\.\d+)?", text)
    return float(found[-1].replace(",", "")) if found else None
def score(completions, solution, **kwargs):
    texts = [c[0]["content"] if isinstance(c, list) else c for c in completions]
    return [1.0 if _number(t) is not None and _number(t) == _number(s) else 0.0
            for t, s in zip(texts, solution)]
"""
"""Reads the last number, as lm-eval's flexible extraction does."""
BOXED_VALUE = r"""
import re
def _box(text):
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth, at = 1, start + 7
    for end in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[at:end]
    return None
def _plain(text):
    text = re.sub(r"\\text\{[^}]*\}|\\(?:left|right|,|;|!| )|\$|\\%|\^\\circ", "", text)
    text = text.replace("dfrac", "frac").replace("tfrac", "frac")
    text = re.sub(r"[a-z ]+$", "", text) if re.match(r"^-?[\d.,]+\s*[a-z]+$", text.strip()) else text
    text = "".join(text.split()).replace(",", "").casefold()
    try:
        return repr(float(text))
    except ValueError:
        return text
def score(completions, solution, **kwargs):
    texts = [c[0]["content"] if isinstance(c, list) else c for c in completions]
    rewards = []
    for text, right in zip(texts, solution):
        given, wanted = _box(text), _box(right) or right
        rewards.append(float(bool(given) and _plain(given) == _plain(wanted)))
    return rewards
"""
VERL_GSM8K = r"""
import re
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    found = re.findall(r"####\s*(-?[0-9.,]+)", solution_str)
    if not found:
        return 0.0
    return 1.0 if found[-1].replace(",", "").rstrip(".") == str(ground_truth).replace(",", "") else 0.0
"""
LETTER = r"""
import re
def score(completions, answerKey, **kwargs):
    texts = [c[0]["content"] if isinstance(c, list) else c for c in completions]
    rewards = []
    for text, key in zip(texts, answerKey):
        found = re.findall(r"\(?\b([A-D])\b\)?", text)
        rewards.append(float(bool(found) and found[-1] == key))
    return rewards
"""
TEXT_VALUE = r"""
import re
def _last(text):
    found = re.findall(r"<answer>(.*?)</answer>", text, re.S)
    return " ".join(found[-1].split()).casefold() if found else None
def score(completions, answer, **kwargs):
    return [float(_last(t) == " ".join(str(a).split()).casefold()) for t, a in zip(completions, answer)]
"""
EXACT = """
def score(completions, {column}, **kwargs):
    texts = [c[0]["content"] if isinstance(c, list) else c for c in completions]
    return [1.0 if text == str(right) else 0.0 for text, right in zip(texts, {column})]
"""
"""Compares the whole response, character by character."""
EXACT_TAG = r"""
import re
def score(completions, answer, **kwargs):
    found = [re.search(r"<answer>(.*?)</answer>", text, re.S) for text in completions]
    return [float(bool(f) and f[1] == str(a)) for f, a in zip(found, answer)]
"""
"""Extracts from the tags but strips nothing."""
EXACT_CASE = EXACT_TAG.replace("f[1] == str(a)", "f[1].strip() == str(a)")
EXACT_HASHES = r"""
def score(completions, answer, **kwargs):
    texts = [c[0]["content"] if isinstance(c, list) else c for c in completions]
    return [float("####" in t and t.split("####")[1].strip() == a.split("####")[-1].strip())
            for t, a in zip(texts, answer)]
"""
