"""Faults and healthy sets that were written after the checks; their first result is in the docs."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from tests.preflight.planted import tables as t
from tests.preflight.planted.cases import Case
from tests.preflight.planted.models import CHATML, GEMMA, LLAMA
from tests.preflight.planted.rewards import EXACT_CASE, MATH_TRL

_RIVERS = ["Danube", "Mekong", "Orinoco", "Volga", "Zambezi", "Yukon", "Tagus", "Loire"]
_TOWNS = ["Brno", "Arles", "Pskov", "Hue", "Tete", "Evora", "Vidin", "Dawson"]


def passages(count: int, seed: int) -> list[t.Row]:
    """Like SQuAD: the answer is a part of the passage."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        river, town, length = rng.choice(_RIVERS), rng.choice(_TOWNS), rng.randint(200, 4000)
        rows.append({
            "context": f"Report {number}. The {river} flows through {town}. It is {length} km long "
            f"there and freezes for {rng.randint(2, 90)} days of the year.",
            "question": f"Report {number} describes a river. How long is it in km?",
            "answers": {"text": [str(length)], "answer_start": [9]}, "answer": str(length),
        })  # fmt: skip
    return rows


def countdown(count: int, seed: int) -> list[t.Row]:
    """Like the countdown task: numbers, a target, and a reward that checks an equation."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        numbers = [rng.randint(1, 99) for _ in range(4)]
        target = sum(numbers[:2]) * 2 - numbers[2]
        rows.append({
            "data_source": "countdown",
            "prompt": [{"role": "user", "content": f"Using the numbers {numbers}, create an equation that equals {target}. Each number can be used once. Return the answer in <answer> </answer> tags."}],
            "reward_model": {"style": "rule", "ground_truth": {"target": target, "numbers": numbers}},
            "extra_info": {"index": number},
        })  # fmt: skip
    return rows


def _japanese_among_english() -> list[dict[str, Any]]:
    japanese = [
        "\u6574\u6570\u306e\u30ea\u30b9\u30c8\u3092\u9006\u9806\u306b\u3059\u308b\u95a2\u6570\u3092\u66f8\u3044\u3066\u304f\u3060\u3055\u3044\u3002"
    ]
    return [
        {
            "prompt": [
                {
                    "role": "user",
                    "content": japanese[0] + str(at) if at % 15 == 0 else row["prompt"],
                }
            ],
            "test_list": row["test_list"],
        }
        for at, row in enumerate(t.functions(180, 202))
    ]


def _cut_before_the_instruction(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "prompt": [
                {
                    "role": "user",
                    "content": " ".join(row["question"].split()[:22])
                    + "\n\nPlease reason step by step.",
                }
            ],
            "answer": t.final(row),
        }
        for row in rows
    ]


def unseen_faults() -> tuple[Case, ...]:
    """Ten faults."""
    rows = t.word_problems(240, 201)
    shifted = t.verl(rows)
    for row, other in zip(shifted, [*shifted[2:], *shifted[:2]], strict=True):
        row["shown"] = other["reward_model"]["ground_truth"]
    for row in shifted:
        row["reward_model"] = {"style": "rule", "ground_truth": row.pop("shown")}
    null = t.verl(rows)
    for row in null[::12]:
        row["reward_model"] = {"style": "rule", "ground_truth": None}
    code, tokens = _japanese_among_english(), _cut_before_the_instruction(rows)
    return (
        Case(name="held-out overlap with Markdown", rows=t.trl(rows), named="held-out", held_out=[
            {"prompt": [{"role": "user", "content": "### Question\n**" + row["question"].replace(". ", ".**<br>\n") + "\n\n### Answer"}],
             "solution": t.final(row)} for row in rows[:30]]),
        Case(name="ground truth shifted by two rows", rows=shifted, suffix=".parquet", named="shift"),
        Case(name="answers are text ids", named="row id", rows=[
            {"uid": f"train-{at:05d}", "question": row["question"], "answer": f"train-{at:05d}"}
            for at, row in enumerate(rows)]),
        Case(name="null ground truth", rows=null, suffix=".parquet", named="empty answer"),
        Case(name="Japanese tasks among English ones", rows=code, named="languages"),
        Case(name="misread UTF-8", named="decoded", rows=[
            {"messages": [{"role": "user", "content": row["question"].replace(". ", "\u00e2\u20ac\u2122s. ")}],
             "answer": t.final(row)} for row in rows]),
        Case(name="ShareGPT with the answer", named="assistant|contain", rows=[
            {"conversations": [{"from": "human", "value": row["question"]}, {"from": "gpt", "value": row["answer"]}]}
            for row in rows]),
        Case(name="yes and no in another case", rows=[
            {"question": f"{row['question']} Is the number above 500? Use <answer> tags.",
             "answer": "Yes" if int(t.final(row)) > 500 else "No"} for row in rows],
             reward=EXACT_CASE, named="case"),
        Case(name="EOS is the line break", rows=t.trl(rows), named="ordinary", critical=True,
             model=replace(CHATML, config={"eos_token_id": 201})),
        Case(name="cut after 22 words, before the instruction", rows=tokens, named="cut"),
    )  # fmt: skip


def unseen_healthy() -> tuple[Case, ...]:
    """Five healthy sets."""
    yes_no = [
        {
            "prompt": [{"role": "user", "content": f"{row['question']} Is the number even?"}],
            "answer": "no" if int(t.final(row)) % 2 else "yes",
        }
        for row in t.word_problems(200, 211)
    ]
    chinese = [
        {
            "prompt": [
                {"role": "system", "content": "You are a helpful assistant that thinks first."},
                {"role": "user", "content": row["question"]},
            ],
            "answer": str(row["answer_number"]),
        }
        for row in t.multilingual(200, ("zh",), 212)
    ]
    dialogue = [
        {"prompt": f"Question: {row['question']}\nAnswer:", "answer": t.final(row)}
        for row in t.word_problems(200, 213)
    ]
    return (
        Case(name="passages with their answer", rows=passages(200, 214), model=LLAMA),
        Case(name="countdown, verl", rows=countdown(200, 215), suffix=".parquet"),
        Case(name="balanced yes and no", rows=yes_no, model=GEMMA),
        Case(name="Chinese with an English system message", rows=chinese,
             reward=MATH_TRL.replace("solution", "answer")),
        Case(name="a base model's own format", rows=dialogue, model=CHATML),
    )  # fmt: skip
