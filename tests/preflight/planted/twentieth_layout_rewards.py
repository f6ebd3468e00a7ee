"""Sound rewards of the twentieth examination's tools, dialogs and layouts."""

from __future__ import annotations

CALLS = r"""
import json, re

def _key(call):
    return json.dumps({"name": call["name"], "arguments": call["arguments"]}, sort_keys=True)

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    try:
        said = [json.loads(each) for each in re.findall(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", solution_str, re.DOTALL)]
        return float(sorted(map(_key, said)) == sorted(map(_key, json.loads(ground_truth))))
    except (ValueError, KeyError, TypeError):
        return 0.0
"""
NO_TOOL = r"""
import json

def call_reward(completions, call, **kwargs):
    rewards = []
    for completion, gold in zip(completions, call):
        lines = completion[0]["content"].strip().splitlines()
        last = lines[-1].strip().strip("`") if lines else ""
        if gold == "NO_TOOL":
            rewards.append(1.0 if last == "NO_TOOL" else 0.0)
            continue
        try:
            rewards.append(1.0 if json.loads(last) == json.loads(gold) else 0.0)
        except ValueError:
            rewards.append(0.0)
    return rewards
"""
ROLE = r"""
import json, os, re, urllib.request

JUDGE = '''Rate from 1 to 10 how well the reply stays in the role "{persona}" and answers the visitor.
Reply:
{text}
Write only: Score: <number>'''

def ask_judge(prompt):
    body = json.dumps({"model": "judge", "messages": [{"role": "user", "content": prompt}], "temperature": 0.0}).encode()
    request = urllib.request.Request(os.environ.get("JUDGE_URL", "http://localhost:8000/v1") + "/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]

def role_reward(completions, persona, **kwargs):
    rewards = []
    for completion, role in zip(completions, persona):
        text = completion[0]["content"]
        if not 40 <= len(text.split()) <= 150:
            rewards.append(0.0)
            continue
        found = re.search(r"Score:\s*(10|[1-9])\b(?!\.\d)", ask_judge(JUDGE.format(persona=role, text=text)))
        rewards.append((int(found[1]) - 1) / 9 if found else 0.0)
    return rewards
"""
CHECKLIST = r"""
import json, os, re, urllib.request

def query_judge(prompt):
    body = json.dumps({"model": "judge", "messages": [{"role": "user", "content": prompt}]}).encode()
    request = urllib.request.Request(os.environ.get("JUDGE_URL", "http://localhost:8000/v1") + "/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]

def checklist_reward(prompts, completions, rubric, **kwargs):
    rewards = []
    for prompt, completion, points in zip(prompts, completions, rubric):
        text = completion[0]["content"].strip()
        if not text:
            rewards.append(0.0)
            continue
        listed = "\n".join(f"{at}. {point}" for at, point in enumerate(points, 1))
        reply = query_judge(f"Task: {prompt[-1]['content']}\n\nResponse: {text}\n\nPoints:\n{listed}\n\nHow many of the {len(points)} points does the response meet? End with 'Score: N'.")
        found = re.findall(r"Score:\s*(\d+)", reply)
        rewards.append(min(int(found[-1]), len(points)) / len(points) if found else 0.0)
    return rewards
"""
NONE_FOR_OTHERS = r"""
import re

def _math(text, gold):
    found = re.findall(r"\\boxed\{\s*(-?[\d,]+)(?:\.0+)?\s*\}", text)
    return 1.0 if found and found[-1].replace(",", "") == gold else 0.0

def math_reward(completions, task, answer, **kwargs):
    # None: another reward function scores the row.
    return [_math(completion[0]["content"], gold) if kind == "math" else None for completion, kind, gold in zip(completions, task, answer)]
"""
ASYNC = r"""
import asyncio, re

async def _grade(text, kind, gold):
    await asyncio.sleep(0)
    if kind == "math":
        found = re.findall(r"\\boxed\{\s*(-?[\d,]+)(?:\.0+)?\s*\}", text)
        return 1.0 if found and found[-1].replace(",", "") == gold else 0.0
    found = re.findall(r"Town:\W*(\w+)", text)
    return 1.0 if found and found[-1].lower() == gold.lower() else 0.0

async def grades(completions, task, answer, **kwargs):
    return await asyncio.gather(*(_grade(completion[0]["content"], kind, gold) for completion, kind, gold in zip(completions, task, answer)))
"""
CURRICULUM = r"""
import re

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    found = re.findall(r"####\s*\$?(-?[\d,]+)(?:\.0+)?\b", solution_str)
    return 1.0 if found and found[-1].replace(",", "") == ground_truth else 0.0
"""
SWITCH = r"""
import re

def switch_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        text = completion[0]["content"].rpartition("</think>")[2]
        found = re.findall(r"\\boxed\{\s*(-?[\d,]+)(?:\.0+)?\s*\}", text)
        rewards.append(1.0 if found and found[-1].replace(",", "") == gold else 0.0)
    return rewards
"""
TIMETABLE = r"""
import re

def timetable(completions, train, **kwargs):
    rewards = []
    for completion, gold in zip(completions, train):
        text = completion if isinstance(completion, str) else completion[0]["content"]
        found = re.findall(r"\[\[\s*(\d+)\s*\]\]", text)
        rewards.append(1.0 if found and int(found[-1]) == gold else 0.0)
    return rewards
"""
TURNS = r"""
import re

def total_reward(completions, total, **kwargs):
    rewards = []
    for completion, gold in zip(completions, total):
        found = re.findall(r"Total:[\s*<$\u20ac]*(\d[\d,]*)(?:\.0+)?", completion[0]["content"])
        rewards.append(1.0 if found and int(found[-1].replace(",", "")) == gold else 0.0)
    return rewards
"""
CLAUSE = r"""
import re

def paragraph_reward(completions, paragraph, **kwargs):
    rewards = []
    for completion, gold in zip(completions, paragraph):
        found = re.findall(r"Paragraph:[\s*\u00a7]*(\d+)", completion[0]["content"])
        rewards.append(1.0 if found and int(found[-1]) == gold else 0.0)
    return rewards
"""
BASE_TAGS = r"""
import re

def zero_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        found = re.findall(r"</think>\s*<answer>\s*(.*?)\s*</answer>", completion, re.DOTALL)
        said = re.sub(r"[,$]", "", found[-1]) if found else ""
        number = re.fullmatch(r"(-?\d+)(?:\.0+)?\.?(?:\s+\w+){0,4}", said)
        rewards.append(1.0 if number and number[1] == gold else 0.0)
    return rewards
"""
