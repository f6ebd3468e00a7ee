"""Sound rewards of the eighteenth examination, to be changed by its faults."""

from __future__ import annotations

PUZZLE = r"""
import ast, re

def _value(text):
    tree = ast.parse(text.strip(), mode="eval")
    def go(node):
        if isinstance(node, ast.Expression): return go(node.body)
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)): return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub): return -go(node.operand)
        if isinstance(node, ast.BinOp):
            a, b = go(node.left), go(node.right)
            if isinstance(node.op, ast.Add): return a + b
            if isinstance(node.op, ast.Sub): return a - b
            if isinstance(node.op, ast.Mult): return a * b
            if isinstance(node.op, ast.Div): return a / b
        raise ValueError("not an equation")
    return go(tree)

def equation_reward(completions, target, nums, **kwargs):
    scores = []
    for completion, goal, numbers in zip(completions, target, nums):
        text = completion[0]["content"]
        found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
        try:
            equation = found[-1].split("=")[0]
            used = sorted(int(n) for n in re.findall(r"\d+", equation))
            scores.append(1.0 if used == sorted(numbers) and abs(_value(equation) - goal) < 1e-6 else 0.0)
        except Exception:
            scores.append(0.0)
    return scores
"""
JSON = r"""
import json, re

def fields_reward(completions, fields, **kwargs):
    rewards = []
    for completion, gold in zip(completions, fields):
        text = completion[0]["content"]
        found = re.search(r"\{.*\}", text, re.DOTALL)
        try:
            said = json.loads(found.group(0))
        except (AttributeError, ValueError):
            rewards.append(0.0)
            continue
        gold = json.loads(gold)
        if not isinstance(said, dict):
            rewards.append(0.0)
            continue
        rewards.append(sum(said.get(key) == value for key, value in gold.items()) / max(len(gold), len(said)))
    return rewards
"""
TAGGED = r"""
import re

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    found = re.findall(r"<answer>(.*?)</answer>", solution_str, re.DOTALL)
    if len(found) != 1:
        return 0.0
    return float(found[0].strip().lower() == ground_truth.strip().lower())
"""
LETTER = r"""
import re

def letter_reward(completions, letter, **kwargs):
    rewards = []
    for completion, gold in zip(completions, letter):
        found = re.findall(r"Answer:\s*\(?([A-D])\b", completion[0]["content"])
        rewards.append(1.0 if found and found[-1] == gold else 0.0)
    return rewards
"""
FRENCH = r"""
import re
from collections import Counter

def _grams(text, n):
    text = " ".join(text.lower().split())
    return Counter(text[i:i + n] for i in range(len(text) - n + 1))

def _chrf(said, gold):
    scores = []
    for n in (1, 2, 3, 4):
        a, b = _grams(said, n), _grams(gold, n)
        same = sum((a & b).values())
        if not a or not b or not same:
            scores.append(0.0)
            continue
        p, r = same / sum(a.values()), same / sum(b.values())
        scores.append(5 * p * r / (4 * p + r))
    return sum(scores) / len(scores)

def translation_reward(completions, fr, **kwargs):
    rewards = []
    for completion, gold in zip(completions, fr):
        found = re.findall(r"<translation>(.*?)</translation>", completion[0]["content"], re.DOTALL)
        rewards.append(_chrf(found[-1].strip(), gold) if len(found) == 1 else 0.0)
    return rewards
"""
VERDICT = r"""
import re

def verdict_reward(completions, better, **kwargs):
    rewards = []
    for completion, gold in zip(completions, better):
        found = re.findall(r"\[\[([AB])\]\]", completion[0]["content"])
        rewards.append(1.0 if len(found) == 1 and found[0] == gold else 0.0)
    return rewards
"""
RUBRIC = r"""
def rubric_reward(completions, rubric, **kwargs):
    rewards = []
    for completion, points in zip(completions, rubric):
        text = completion[0]["content"]
        share = sum(point.lower() in text.lower() for point in points) / len(points)
        words = len(text.split())
        rewards.append(share if 20 <= words <= 250 else 0.0)
    return rewards
"""
CODE = r"""
import re, subprocess, sys

def tests_reward(completions, tests, **kwargs):
    rewards = []
    for completion, asserts in zip(completions, tests):
        found = re.findall(r"```python\n(.*?)```", completion[0]["content"], re.DOTALL)
        if not found:
            rewards.append(0.0)
            continue
        program = found[-1] + "\n" + "\n".join(asserts) + "\nprint('all tests passed')\n"
        try:
            done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=5)
            rewards.append(1.0 if done.returncode == 0 and done.stdout.strip().endswith("all tests passed") else 0.0)
        except subprocess.TimeoutExpired:
            rewards.append(0.0)
    return rewards
"""
SQL = r"""
import re, sqlite3

def _rows(schema, query):
    base = sqlite3.connect(":memory:")
    base.executescript(schema)
    return base.execute(query).fetchall()

def query_reward(completions, schema, query, **kwargs):
    rewards = []
    for completion, tables, gold in zip(completions, schema, query):
        found = re.findall(r"```sql\n(.*?)```", completion[0]["content"], re.DOTALL)
        try:
            rewards.append(1.0 if found and _rows(tables, found[-1]) == _rows(tables, gold) else 0.0)
        except Exception:
            rewards.append(0.0)
    return rewards
"""
ACTION = r"""
import re

def action_reward(completions, action, order, **kwargs):
    rewards = []
    for completion, what, number in zip(completions, action, order):
        found = re.findall(r"ACTION:\s*(\w+)\((\d+)\)", completion[0]["content"])
        rewards.append(1.0 if found and found[-1] == (what, number) else 0.0)
    return rewards
"""
CALL = r"""
import json, re

def call_reward(completions, call, **kwargs):
    rewards = []
    for completion, gold in zip(completions, call):
        found = re.findall(r"<tool_call>(.*?)</tool_call>", completion[0]["content"], re.DOTALL)
        try:
            rewards.append(1.0 if len(found) == 1 and json.loads(found[0]) == json.loads(gold) else 0.0)
        except ValueError:
            rewards.append(0.0)
    return rewards
"""
WORD = r"""
import re

def word_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        found = re.findall(r"\\boxed\{([^{}]*)\}", completion[0]["content"])
        rewards.append(1.0 if found and found[-1].strip().lower() == gold else 0.0)
    return rewards
"""


def changed(source: str, *changes: tuple[str, str]) -> str:
    """A reward with other text in some places."""
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    return source
