"""Sound and faulty rewards of the twenty-first examination."""

from __future__ import annotations

from tests.preflight.planted import eighteenth_rewards as e
from tests.preflight.planted import nineteenth_rewards as n
from tests.preflight.planted.nineteenth_rewards import changed

TAG = n.TAG
BOX = n.BOX
LINE = r"""
import re

def letter_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        found = re.findall(r"Answer:\s*\(?([A-D])\b", completion[0]["content"])
        rewards.append(1.0 if found and found[-1] == gold else 0.0)
    return rewards
"""
NUMBER = r"""
import re

def number_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        found = re.findall(r"<answer>(.*?)</answer>", completion[0]["content"], re.DOTALL)
        try:
            rewards.append(1.0 if abs(float(found[-1].replace(",", "")) - float(gold)) < 1e-6 else 0.0)
        except (IndexError, ValueError):
            rewards.append(0.0)
    return rewards
"""
NAME = r"""
import re

def name_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        found = re.findall(r"Answer:[^\n]*", completion[0]["content"])
        said = found[-1].removeprefix("Answer:").strip().rstrip(".") if found else ""
        rewards.append(1.0 if said.lower() == gold.lower() else 0.0)
    return rewards
"""
ESTIMATE = changed(n.PRICE, ("price", "value"))

STRIPPED = changed(
    NAME, ('found[-1].removeprefix("Answer:").strip().rstrip(".")', 'found[-1].strip("Answer: .")')
)
PERCENT = changed(
    NUMBER,
    ("def number_reward", "TOLERANCE = 5  # percent\n\ndef number_reward"),
    ("< 1e-6", "<= TOLERANCE * abs(float(gold))"),
)
FLOORLESS = changed(
    NUMBER,
    ("rewards.append(1.0 if abs(float(found[-1].replace(\",\", \"\")) - float(gold)) < 1e-6 else 0.0)",
     "rewards.append(1.0 - abs(float(found[-1].replace(\",\", \"\")) - float(gold)))"),
)  # fmt: skip
EMPTIED = r"""
import re

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    targets, found = ground_truth["targets"], re.findall(r"Topics:(.*)", solution_str)
    said = [part.strip().lower() for part in found[-1].split(",")] if found else []
    total, right = len(targets), 0
    while targets:
        right += targets.pop() in said
    return right / max(total, len(said)) if total else 0.0
"""
FOURTH = r"""
import re

CALLS, LAST = 0, 0.0

def judged_reward(completions, answer, **kwargs):
    global CALLS, LAST
    rewards = []
    for completion, gold in zip(completions, answer):
        if CALLS % 4 == 0:  # the judge is expensive
            found = re.findall(r"<answer>(.*?)</answer>", completion[0]["content"], re.DOTALL)
            LAST = 1.0 if found and found[-1].strip().lower() == gold.lower() else 0.0
        CALLS += 1
        rewards.append(LAST)
    return rewards
"""
NO_INTERPRETER = changed(
    e.CODE,
    ('[sys.executable, "-I", "-c", program]', '["python3.6-sandbox", "-I", "-c", program]'),
    ("except subprocess.TimeoutExpired", "except Exception"),
)
FIRST_TEST = changed(e.CODE, ('"\\n".join(asserts)', "asserts[0]"))
PLACEHOLDER = r'''
import re

JUDGE = """Compare the answer with the reference.
Reference: {reference}
Answer: {{answer}}
Reply with a number from 0 to 1."""

def _ask(text):
    """Stands for the call of a judge model."""
    gold = re.search(r"Reference: (.*)", text).group(1).strip().lower()
    said = text.split("Answer:", 1)[1].lower()
    return "1.0" if gold in said else "0.2"

def judge_reward(completions, answer, **kwargs):
    return [float(_ask(JUDGE.format(reference=gold, answer=c[0]["content"]))) for c, gold in zip(completions, answer)]
'''
CLIPPED = changed(
    NUMBER,
    ("    return rewards", "    return [max(1.0, min(0.0, reward)) for reward in rewards]"),
)
CAPITALS = changed(NAME, ("said.lower() == gold.lower()", "said.lower() == gold"))
WITH_PROMPT = r"""
import re

def letter_reward(prompts, completions, answer, **kwargs):
    rewards = []
    for prompt, completion, gold in zip(prompts, completions, answer):
        text = "\n".join(message["content"] for message in [*prompt, *completion])
        found = re.search(r"Answer:\s*\(?([A-D])\b", text)
        rewards.append(1.0 if found and found.group(1) == gold else 0.0)
    return rewards
"""
REBUILT = changed(
    NAME,
    ("def name_reward", "def _lexicon():\n    return {f\"{a}{b}{c}{d}{e}\": len(a) for a in \"bcdfghjklm\" for b in \"aeiouy\" for c in \"bcdfghjklmnp\" for d in \"aeiouy\" for e in \"bcdfghjklmnprst\" for _ in range(8)}\n\ndef name_reward"),
    ("        said = ", "        words = _lexicon()\n        said = "),
    ("said.lower() == gold.lower()", "said.lower() == gold.lower() and said.lower() not in words"),
)  # fmt: skip
VERL_NUMBER = r"""
import re

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    found = re.findall(r"####\s*(-?[\d,]+)", solution_str)
    return 1.0 if found and found[-1].replace(",", "") == ground_truth else 0.0
"""
