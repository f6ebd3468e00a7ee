"""Sound rewards of the twentieth examination's puzzles and code."""

from __future__ import annotations

KNIGHTS = r"""
import re

def _roles(text):
    return {name.lower(): role.lower() for name, role in re.findall(r"\b([A-Za-z]+) is a (knight|knave)\b", text, re.IGNORECASE)}

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    # Format: +1 or -1; answer: +2 if right, -1.5 if wrong, -2 if it cannot be read.
    answers = re.findall(r"<answer>(.*?)</answer>", solution_str, re.DOTALL)
    order = [solution_str.count(tag) for tag in ("<answer>", "</answer>", "</think>")]
    form = 1.0 if order == [1, 1, 1] and solution_str.index("</think>") < solution_str.index("<answer>") else -1.0
    if not answers:
        return form - 2.0
    said, gold = _roles(answers[-1]), _roles(ground_truth)
    if set(said) != set(gold):
        return form - 2.0
    return form + (2.0 if said == gold else -1.5)
"""
MAZE = r"""
import re

STEPS = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}

def maze_reward(completions, maze, **kwargs):
    rewards = []
    for completion, text in zip(completions, maze):
        found = re.findall(r"<path>\s*([UDLR]+)\s*</path>", completion[0]["content"])
        grid = text.splitlines()
        row, column = next((r, line.index("S")) for r, line in enumerate(grid) if "S" in line)
        done = bool(found)
        for step in found[-1] if found else "":
            row, column = row + STEPS[step][0], column + STEPS[step][1]
            if not (0 <= row < len(grid) and 0 <= column < len(grid[0])) or grid[row][column] == "#":
                done = False
                break
        rewards.append(1.0 if done and grid[row][column] == "G" else 0.0)
    return rewards
"""
WINNING = r"""
import re

def move_reward(completions, moves, **kwargs):
    rewards = []
    for completion, gold in zip(completions, moves):
        found = re.findall(r"Move:\W*(\d)\b", completion[0]["content"])
        rewards.append(1.0 if found and int(found[-1]) in gold else 0.0)
    return rewards
"""
LOGIC_GRID = r"""
import json, re

def _plain(value):
    if isinstance(value, dict):
        return {key.strip().lower(): _plain(each) for key, each in value.items()}
    return re.sub(r"^(a|an|the) ", "", str(value).strip().lower())

def grid_reward(completions, solution, **kwargs):
    rewards = []
    for completion, gold in zip(completions, solution):
        found = re.findall(r"```json\s*(.*?)```", completion[0]["content"], re.DOTALL)
        try:
            said = _plain(json.loads(found[-1]))
        except (IndexError, ValueError):
            said = None
        rewards.append(1.0 if said == _plain(json.loads(gold)) else 0.0)
    return rewards
"""
GRID = r"""
import json, re

def output_reward(completions, grid, **kwargs):
    rewards = []
    for completion, gold in zip(completions, grid):
        found = re.findall(r"<output>(.*?)</output>", completion[0]["content"], re.DOTALL)
        try:
            said = json.loads(found[-1])
        except (IndexError, ValueError):
            said = None
        rewards.append(1.0 if said == [list(line) for line in gold] else 0.0)
    return rewards
"""
ACROSTIC = r"""
import re

def poem_reward(completions, word, **kwargs):
    rewards = []
    for completion, letters in zip(completions, word):
        lines = [line.strip() for line in completion[0]["content"].strip().splitlines() if line.strip()]
        if len(lines) != len(letters):
            rewards.append(0.0)
            continue
        firsts = [re.sub(r"^\W+", "", line)[:1].lower() for line in lines]
        spelled = sum(a == b for a, b in zip(firsts, letters)) / len(letters)
        sized = sum(4 <= len(line.split()) <= 12 for line in lines) / len(lines)
        varied = len({each for line in lines for each in line.lower().split()}) / sum(len(line.split()) for line in lines)
        rewards.append(round(spelled * sized * min(1.0, varied / 0.6), 4))
    return rewards
"""
PATCH = r"""
import difflib, re

EDIT = re.compile(r"### (\S+)\n<{7} SEARCH\n(.*?)\n={7}\n(.*?)\n>{7} REPLACE", re.DOTALL)

def _diff(before, after):
    return "\n".join(line for line in list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))[2:])

def patch_reward(completions, path, code, fixed, **kwargs):
    # As SWE-RL: -1 for an edit that cannot be applied, else the similarity of the two patches.
    rewards = []
    for completion, name, before, after in zip(completions, path, code, fixed):
        edits = EDIT.findall(completion[0]["content"])
        if len(edits) != 1 or edits[0][0] != name or before.count(edits[0][1]) != 1:
            rewards.append(-1.0)
            continue
        mine = _diff(before, before.replace(edits[0][1], edits[0][2]))
        if not mine:
            rewards.append(-1.0)
            continue
        rewards.append(difflib.SequenceMatcher(None, mine, _diff(before, after), autojunk=False).ratio())
    return rewards
"""
QUERY = r"""
import re, sqlite3

def _rows(script, query):
    base = sqlite3.connect(":memory:")
    try:
        base.executescript(script)
        base.execute("PRAGMA query_only = ON")
        steps = iter(range(200))
        base.set_progress_handler(lambda: next(steps, None) is None, 10000)
        return sorted(map(repr, base.execute(query).fetchall()))
    finally:
        base.close()

def sql_reward(completions, database, query, **kwargs):
    rewards = []
    for completion, script, gold in zip(completions, database, query):
        found = re.findall(r"```sql\s*(.*?)```", completion[0]["content"], re.DOTALL | re.IGNORECASE)
        try:
            right = _rows(script, found[-1].strip().rstrip(";")) == _rows(script, gold)
        except (IndexError, sqlite3.Error, sqlite3.Warning):
            right = False
        rewards.append(1.0 if right else 0.0)
    return rewards
"""
PATTERN = r"""
import re

def regex_reward(completions, match, reject, **kwargs):
    rewards = []
    for completion, good, bad in zip(completions, match, reject):
        found = re.findall(r"<regex>(.*?)</regex>", completion[0]["content"], re.DOTALL)
        text = found[-1].strip().strip("`") if found else ""
        if not text or len(text) > 60 or any(each in text for each in good):
            rewards.append(0.0)
            continue
        try:
            pattern = re.compile(text)
        except re.error:
            rewards.append(0.0)
            continue
        fits = all(pattern.search(each) for each in good) and not any(pattern.search(each) for each in bad)
        rewards.append(1.0 if fits else 0.0)
    return rewards
"""
BODY = r"""
import re, subprocess, sys

STOPS = re.compile(r"\n(?=\S)")

def body_reward(prompts, completions, test, entry_point, **kwargs):
    rewards = []
    for prompt, completion, asserts, name in zip(prompts, completions, test, entry_point):
        body = STOPS.split(completion)[0]
        program = f"{prompt}{body}\n\n{asserts}\nprint('passed', {name}.__name__)\n"
        try:
            done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=5)
            rewards.append(1.0 if done.returncode == 0 and done.stdout.endswith(f"passed {name}\n") else 0.0)
        except (subprocess.TimeoutExpired, ValueError):  # a program with a NUL
            rewards.append(0.0)
    return rewards
"""
CRON = r"""
import re

def cron_reward(completions, schedule, **kwargs):
    rewards = []
    for completion, gold in zip(completions, schedule):
        found = re.findall(r"Schedule:[\s*]*`?([\d*/,\- ]+)", completion[0]["content"])
        said = [re.sub(r"\b0+(?=\d)", "", part) for part in found[-1].split()] if found else []
        rewards.append(1.0 if said == gold.split() else 0.0)
    return rewards
"""
LEMMA = r"""
import re

def lemma_reward(completions, lemma, **kwargs):
    rewards = []
    for completion, gold in zip(completions, lemma):
        blocks = re.findall(r"```lean\d?\s*(.*?)```", completion[0]["content"], re.DOTALL)
        found = re.fullmatch(r"(?:by\s+)?(?:exact|apply)\s+\(?(Nat\.\w+)\b[^\n]*", blocks[-1].strip()) if blocks else None
        rewards.append(1.0 if found and found[1] == gold else 0.0)
    return rewards
"""
