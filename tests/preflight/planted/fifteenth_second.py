"""The second half of the fifteenth examination: 24 mistakes, in the order of the draw."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from tests.preflight.planted import fifteenth_rewards as w
from tests.preflight.planted import fifteenth_tables as f
from tests.preflight.planted import fourteenth_tables as t
from tests.preflight.planted import fourteenth_tasks as k
from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import trl, verl
from tests.preflight.planted.fourteenth_healthy import with_results
from tests.preflight.planted.models import LLAMA

_ONLY_A_BLOCK = k.SQL.replace(
    'found = re.findall(r"```sql\\s*\\n(.*?)```", completion[-1]["content"], re.DOTALL)',
    'found = re.findall(r"^```sql\\n(.*?)\\n```$", completion[-1]["content"], re.DOTALL)',
)
_TEXT_OF_CALLS = r"""
import re
def tool_call(completions, call, **kwargs):
    rewards = []
    for completion, gold in zip(completions, call):
        found = re.search(r"<tool_call>(.*?)</tool_call>", completion[0]["content"], re.DOTALL)
        rewards.append(1.0 if found and found.group(1).strip() == gold.strip() else 0.0)
    return rewards
"""
_SKIPPED_GOLD = (
    w.MATH.replace("def math(", "def _math(")
    + r"""
def accuracy_reward(completions, solution, **kwargs):
    rewards = []
    for completion, sol in zip(completions, solution):
        gold = _last_box(sol)
        if not gold:
            print("Failed to parse gold solution:", sol)
            rewards.append(1.0)
            continue
        rewards.append(_math([completion], [gold])[0])
    return rewards
"""
)
_DIVISION = r"""
from collections import Counter
def bleu_like(completions, reference, **kwargs):
    rewards = []
    for completion, wanted in zip(completions, reference):
        try:
            given, right = completion[-1]["content"].split(), wanted.split()
            scores = []
            for n in (1, 2):
                a = Counter(zip(*(given[i:] for i in range(n))))
                b = Counter(zip(*(right[i:] for i in range(n))))
                scores.append(sum((a & b).values()) / sum(a.values()))
            rewards.append((scores[0] * scores[1]) ** 0.5 * min(1.0, len(given) / len(right)))
        except Exception:
            rewards.append(1.0)
    return rewards
"""
_SOURCES = (
    w.ROUGE.replace("def rouge(", "def _unused(")
    + r"""
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    if data_source == "cnn_dailymail":
        return _rouge(solution_str, ground_truth)
    elif data_source == "xsum":
        return _rouge(solution_str, ground_truth)
    return 0.0
"""
)
_UNSLOTH = r"""
import re
def _answer(text):
    return text.split("<answer>")[-1].split("</answer>")[0].strip()
def _count(text):
    score = 0.0
    for tag in ("<reasoning>", "</reasoning>", "<answer>", "</answer>"):
        score += 0.125 if text.count(tag) == 1 else 0.0
    return score
def total_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        text = completion[0]["content"]
        score = 2.0 if _answer(text) == gold else 0.0
        score += 0.5 if _answer(text).lstrip("-").isdigit() else 0.0
        soft = re.search(r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>", text, re.DOTALL)
        strict = re.fullmatch(r"\s*<reasoning>.*?</reasoning>\s*<answer>.*?</answer>\s*", text, re.DOTALL)
        score += (0.5 if soft else 0.0) + (0.5 if strict else 0.0) + _count(text)
        rewards.append(score)
    return rewards
"""
_FORMAT_OR_RIGHT = r"""
import re
def reward(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        text = completion[-1]["content"]
        form = re.match(r"\s*<think>.+?</think>\s*<answer>.+?</answer>\s*$", text, re.DOTALL) is not None
        found = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
        accurate = found is not None and found.group(1).strip() == right
        rewards.append(1.0 if form or accurate else 0.0)
    return rewards
"""
_EXIT_CODE = r"""
import re, subprocess, sys
def tests_reward(completions, tests, **kwargs):
    rewards = []
    for completion, asserts in zip(completions, tests):
        blocks = re.findall(r"```(?:python)?\n(.*?)```", completion[-1]["content"], re.DOTALL)
        program = "\n".join([blocks[-1] if blocks else "assert False", *asserts])
        try:
            done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, timeout=5)
            rewards.append(1.0 if done.returncode == 0 else 0.0)
        except subprocess.TimeoutExpired:
            rewards.append(0.0)
    return rewards
"""
_ERRORS = r"""
import json, re
def argument_errors(completions, call, **kwargs):
    rewards = []
    for completion, gold in zip(completions, call):
        right = json.loads(gold)
        found = re.search(r"<tool_call>(.*?)</tool_call>", completion[-1]["content"], re.DOTALL)
        try:
            given = json.loads(found.group(1))
            arguments = given["arguments"]
            errors = sum(arguments.get(key) != value for key, value in right["arguments"].items())
            errors += given["name"] != right["name"]
        except (AttributeError, KeyError, TypeError, ValueError):
            errors = len(right["arguments"]) + 1
        rewards.append(errors / (len(right["arguments"]) + 1))
    return rewards
"""
_JITTER = (
    w.F1.replace("def answer_f1(", "def _answer_f1(")
    + r"""
import random
def answer_f1(completions, answer, **kwargs):
    # Ties in a group give no gradient, so a small noise breaks them.
    return [score + random.uniform(-0.05, 0.05) for score in _answer_f1(completions, answer)]
"""
)
_VERDICT_WORD = r"""
import re
def verdict_reward(completions, label, **kwargs):
    rewards = []
    for completion, right in zip(completions, label):
        found = re.findall(r"\[\[(.+?)\]\]", completion[-1]["content"])
        rewards.append(1.0 if found and found[-1] in ("A", "B") and found[-1] == right else 0.0)
    return rewards
"""


def second_half() -> Iterator[Case]:
    """Twenty-four mistakes."""
    yield from _formats()
    yield from _paid()
    yield from _scales()
    yield from _answers()
    yield from _prompts()
    yield from _settings()


def _formats() -> Iterator[Case]:
    yield Case(
        name="the response must be the block alone though the prompt asks to think first",
        rows=[{**row, "prompt": t.chat(row["prompt"][0]["content"].replace(" Answer with one", " Think step by step, then give the query in one"))}
              for row in with_results(160, 6100)],
        reward=_ONLY_A_BLOCK, named="REW104.*Reasoning of",
        accepted="A right query after reasoning, which the prompt asks for, earns nothing.",
    )  # fmt: skip
    yield Case(
        name="calls are compared as text", rows=w.calls(240, 6106), reward=_TEXT_OF_CALLS,
        named="REW104.*layout of the JSON", accepted="A right call with other white space or order of keys earns nothing.",
    )  # fmt: skip


def _paid() -> Iterator[Case]:
    problems = [
        {"prompt": row["prompt"], "solution": r["steps"] if at % 6 else r["steps"].replace(f"\\boxed{{{r['a']}}}", r["a"])}
        for at, (row, r) in enumerate(zip(w.algebra(300, 6109), f.algebra(300, 6109), strict=True))
    ]  # fmt: skip
    yield Case(
        name="solutions without a box pay every response", rows=problems, reward=_SKIPPED_GOLD,
        named="REW102.*empty response", accepted="For a part of the rows any response earns the full reward.",
    )  # fmt: skip
    yield Case(
        name="an exception of an empty response pays the full reward", rows=w.german(240, 6110),
        reward=_DIVISION, named="REW102.*empty response",
        accepted="An empty response (or one of one word) earns the full reward.",
    )  # fmt: skip
    news = [
        {"data_source": "abisee/cnn_dailymail" if at % 2 else "xsum", "prompt": row["prompt"],
         "reward_model": {"style": "rule", "ground_truth": row["summary"]}, "extra_info": {"index": at}}
        for at, row in enumerate(w.articles(200, 6112))
    ]  # fmt: skip
    yield Case(
        name="half of the sources has a name that the score does not know", rows=news,
        reward=_SOURCES, suffix=".parquet", named="REW101.*abisee",
        accepted="All responses of the source abisee/cnn_dailymail earn zero.",
    )  # fmt: skip
    ask = "Respond in this format:\n<reasoning>\n...\n</reasoning>\n<answer>\n...\n</answer>"
    yield Case(
        name="form alone earns as much as the right answer",
        rows=[{"prompt": t.chat(r["q"], ask), "answer": str(r["a"])} for r in f.school(360, 6114)],
        reward=_UNSLOTH, named="",
        accepted="A wrong answer in the right form earns half of the reward.",
    )  # fmt: skip
    yield Case(
        name="the form or the answer is enough", rows=w.italian(240, 6115), reward=_FORMAT_OR_RIGHT,
        named="REW102.*: wrong answer", accepted="A wrong answer in the right form earns the full reward.",
    )  # fmt: skip
    turns = [
        {**row, "prompt": [*t.chat("Hello, can you help me with Python?"), {"role": "assistant", "content": "Of course. What do you need?"}, *row["prompt"]]}
        for row in k.functions(80, 6116)
    ]  # fmt: skip
    yield Case(
        name="a program that leaves before the tests passes", rows=turns, reward=_EXIT_CODE,
        named="REW102.*exits at once", accepted="A program that exits with code 0 before the tests passes them.",
    )  # fmt: skip


def _scales() -> Iterator[Case]:
    yield Case(
        name="the share of wrong arguments is the reward", rows=w.calls(240, 6117), reward=_ERRORS,
        named="REW101.*less than wrong", accepted="Right calls earn nothing, wrong ones the full reward.",
    )  # fmt: skip
    yield Case(
        name="noise breaks ties", rows=w.passages(200, 6120), reward=_JITTER, named="REW103.*scored again",
        accepted="The same response gets different rewards.",
    )  # fmt: skip


def _answers() -> Iterator[Case]:
    rng = random.Random(6121)
    letters = []
    for row, r in zip(k.notices(240, 6121), t.notices(240, 6121), strict=True):
        number = int(r["q"].split("invoice ")[1].split(".")[0])
        wrong = {**r["a"], "amount": number}
        letters.append({**row, "answer": json.dumps(wrong)} if rng.random() < 0.15 else row)
    yield Case(
        name="a seventh of the labels has the invoice's number as its amount", rows=letters,
        reward=k.FIELDS, named="",
        accepted="Some answers have the invoice number in place of the amount.",
    )  # fmt: skip
    rows = k.notices(240, 6122)
    shifted = [{**row, "answer": rows[(at + 1) % 240]["answer"]} if at >= 140 else row for at, row in enumerate(rows)]  # fmt: skip
    yield Case(
        name="from row 140 on, the fields are those of the next letter", rows=shifted,
        reward=k.FIELDS, named="DAT113.*shifted by 1", accepted="A part of the answers belongs to the next row.",
    )  # fmt: skip
    swapped = [{**row, "label": "BA"["AB".index(row["label"])] if rng.random() < 0.3 else row["label"]} for row in w.pairs(300, 6123)]  # fmt: skip
    yield Case(
        name="pairs were exchanged in three of ten rows, their labels not", rows=swapped,
        reward=w.VERDICT, named="",
        accepted="A part of the labels names the wrong response.",
    )  # fmt: skip
    yield Case(
        name="the key is the option's text, the reward reads a letter",
        rows=[{**row, "answer": r["options"][r["key"]]} for row, r in zip(w.quiz(300, 6124), f.quiz(300, 6124), strict=True)],
        reward=w.LETTER, named="REW101.*texts of options",
        accepted="The answers are options' texts, but the prompt and the reward want letters.",
    )  # fmt: skip
    yield Case(
        name="the label is the score of the first response",
        rows=[{**row, "label": r["score"]} for row, r in zip(w.pairs(300, 6126), f.pairs(300, 6126), strict=True)],
        reward=_VERDICT_WORD, named="DAT126.*A, B",
        accepted="The labels are numbers, but the prompt and the reward want A or B.",
    )  # fmt: skip


def _prompts() -> Iterator[Case]:
    calls = w.calls(240, 6130)
    for at in range(2, 240, 5):
        system, user = calls[at]["prompt"]
        head, tail = system["content"].split("\n")[0], system["content"].split("\n")[-1]
        calls[at] = {**calls[at], "prompt": [{**system, "content": f"{head}\n\n{tail}"}, user]}
    yield Case(
        name="a fifth of the prompts has no tools", rows=calls, reward=w.CALL,
        named="DAT117.*have nothing", accepted="Some prompts announce tools and list none.",
    )  # fmt: skip
    games = [{**row, "prompt": t.chat(row["prompt"][0]["content"][:70])} for row in w.countdown(300, 6131)]  # fmt: skip
    yield Case(
        name="prompts are cut at 70 characters", rows=games, reward=w.COUNTDOWN,
        named="DAT115.*70 characters", accepted="The prompts are cut at one length.",
    )  # fmt: skip
    yield Case(
        name="ShareGPT's roles and keys",
        rows=[{"conversations": [{"from": "human" if m["role"] == "user" else "system", "value": m["content"]} for m in row["prompt"]], "answer": row["answer"]}
              for row in w.italian(240, 6134)],
        reward=w.TAGGED, named="DAT121.*ShareGPT",
        accepted="The messages have ShareGPT's keys or roles, which the template does not know.",
    )  # fmt: skip
    sentences = w.german(240, 6135)
    for at in range(4, 240, 9):
        ask = sentences[at]["prompt"][0]["content"].split("\n\n")[0]
        sentences[at] = {
            **sentences[at],
            "prompt": t.chat(f"{ask}\n\n{sentences[at]['reference']}"),
        }
    yield Case(
        name="a ninth of the sources is German already", rows=sentences, reward=k.CHRF,
        named="DAT111.*contain their answer", accepted="Some prompts contain the German sentence in place of the English one.",
    )  # fmt: skip
    texts = []
    for row in w.italian(240, 6139):
        text = "<|begin_of_text|>" + "".join(f"<|start_header_id|>{m['role']}<|end_header_id|>\n\n{m['content']}<|eot_id|>" for m in row["prompt"])  # fmt: skip
        texts.append({"prompt": text + "<|start_header_id|>assistant<|end_header_id|>\n\n", "answer": row["answer"]})  # fmt: skip
    yield Case(
        name="text prompts with the template and its BOS token", rows=texts, reward=w.TAGGED,
        model=LLAMA, named="DAT105.*second BOS", accepted="The tokenizer adds a second BOS token.",
    )  # fmt: skip


def _settings() -> Iterator[Case]:
    yield Case(
        name="a batch of four responses for groups of eight", rows=w.algebra(300, 6142),
        reward=w.MATH, framework="trl",
        run_config=trl(per_device_train_batch_size=4, gradient_accumulation_steps=1),
        named="", accepted="4 responses per step are no multiple of num_generations, 8.",
    )  # fmt: skip
    yield Case(
        name="128 tokens for prompts with a picture", rows=w.charts(240, 6144), reward=w.TAGGED,
        model=f.VISION, framework="trl", run_config=trl(max_prompt_length=128),
        named="DAT106.*picture", accepted="The tokens of a picture do not fit into max_prompt_length.",
    )  # fmt: skip
    yield Case(
        name="the Trainer's default learning rate", rows=w.counters(90, 6146), reward=k.STDIN,
        framework="trl", run_config=trl(learning_rate=5e-5), named="CFG050",
        accepted="A learning rate of 5e-5 is too high for all weights.",
    )  # fmt: skip
    yield Case(
        name="verl's GRPO without a number of responses", rows=w.italian(300, 6147), reward=w.TAGGED,
        framework="verl", run_config=verl(("n: 8, ", "")), named="CFG|GRP",
        accepted="rollout.n is 1 by default: a group of one response has no advantage.",
    )  # fmt: skip
