"""Rows with prompts of the eighteenth examination's tasks."""

from __future__ import annotations

import json
import random

from tests.preflight.planted import eighteenth_tables as t
from tests.preflight.planted.tables import Row

ASK_JSON = (
    "Extract the invoice's data. Think first if you must, then reply with one JSON object with the "
    'keys "vendor", "number", "date" (YYYY-MM-DD) and "total", an object with "amount" (a plain '
    'number such as 1234.56) and "currency".'
)
ASK_TAG = "Answer the question from the search results. Reason first, then give a short answer between <answer> and </answer>."
ASK_LETTER = (
    "Think step by step, then finish with a line 'Answer: X', where X is one of A, B, C or D."
)
ASK_VERDICT = "You compare two responses to a question. Explain the differences and end with [[A]] or [[B]] for the better one."
ASK_FRENCH = "Translate the sentence into French. First discuss difficult words in a line or two, then write the translation between <translation> and </translation>."
ASK_RUBRIC = (
    "You write clear business texts of 20 to 250 words and mention every fact that the task names."
)
ASK_BOX = "You see the objects that were detected in a picture. Answer in one word or number inside \\boxed{}."
ASK_ACTION = "You are a support agent. Decide what to do with the order, and end your reply with a line such as ACTION: refund(123456). Possible actions: refund, replace, readdress, cancel."
ASK_CODE = "Solve the task in Python. Put the whole program into one ```python block."
ASK_SQL = "Write one SQLite query that answers the question, in a ```sql block."
ASK_CALL = (
    "You have the tools get_weather(city, day), book_table(restaurant, people) and "
    'convert_units(value, unit). Reply with <tool_call>{"name": ..., "arguments": {...}}</tool_call>.'
)
ASK_PUZZLE = "You first think in <think> </think>, then give the equation in <answer> </answer>, for example <answer>(1 + 2) * 3</answer>."


def json_rows(count: int, seed: int) -> list[Row]:
    """Invoices with fields as JSON."""
    return [{"prompt": t.chat(r["text"], ASK_JSON), "fields": json.dumps(r["fields"])} for r in t.invoices(count, seed)]  # fmt: skip


def puzzle_rows(count: int, seed: int) -> list[Row]:
    """Numbers and a target."""
    return [{"prompt": t.chat(t.puzzle_text(r), ASK_PUZZLE), "nums": r["nums"], "target": r["target"]} for r in t.puzzles(count, seed)]  # fmt: skip


def search_rows(count: int, seed: int) -> list[Row]:
    """Search results with a question, in verl's layout."""
    return [
        {"data_source": "musique", "prompt": t.chat(r["question"], ASK_TAG), "ability": "search",
         "reward_model": {"style": "rule", "ground_truth": r["answer"]}, "extra_info": {"index": at, "split": "train"}}
        for at, r in enumerate(t.searches(count, seed))
    ]  # fmt: skip


def choice_rows(count: int, seed: int) -> list[Row]:
    """Four options and a letter."""
    return t.as_rows(t.choices(count, seed), ASK_LETTER, "question", letter="letter")


def french_rows(count: int, seed: int) -> list[Row]:
    """English sentences with references."""
    return t.as_rows(list(t.sentences(count, seed)), ASK_FRENCH, "en", fr="fr")


def verdict_rows(count: int, seed: int) -> list[Row]:
    """Two responses, of which one says the right fact."""
    rng, rows = random.Random(seed), []
    for r in t.choices(count, seed):
        context, _, rest = r["question"].partition("\n")
        question = rest.split("\n")[0]
        options = [o[3:] for o in rest.split("\n")[1:]]
        wrong = rng.choice([o for o in options if o != r["text"]])
        better = rng.choice("AB")
        a, b = (r["text"], wrong) if better == "A" else (wrong, r["text"])
        lead = rng.choice(("It was", "The survey names", "I believe it was"))
        user = (
            f"{context}\nQuestion: {question}\n\nResponse A: {lead} {a}.\n\nResponse B: {lead} {b}."
        )
        rows.append({"prompt": t.chat(user, ASK_VERDICT), "better": better})
    return rows


def rubric_rows(count: int, seed: int) -> list[Row]:
    """Short business texts with points that they must mention."""
    return t.as_rows(t.essays(count, seed), ASK_RUBRIC, "text", rubric="rubric")


def scene_rows(count: int, seed: int) -> list[Row]:
    """Detected objects of a picture and a question."""
    return t.as_rows(list(t.scenes(count, seed)), ASK_BOX, "question", answer="answer")


def code_rows(count: int, seed: int) -> list[Row]:
    """Small functions with tests and a reference solution."""
    return t.as_rows(t.functions(count, seed), ASK_CODE, "task", tests="tests", solution="solution")


def query_rows(count: int, seed: int) -> list[Row]:
    """Questions over a small table."""
    return [{"prompt": t.chat(f"{r['schema']}\n\n{r['question']}", ASK_SQL), "schema": r["schema"], "query": r["query"]} for r in t.queries(count, seed)]  # fmt: skip


def action_rows(count: int, seed: int, turns: int = 2) -> list[Row]:
    """Support conversations of several turns."""
    return [
        {"prompt": [{"role": "system", "content": ASK_ACTION}, *r["messages"]], "action": r["action"], "order": r["order"]}
        for r in t.dialogues(count, seed, turns)
    ]  # fmt: skip


def call_rows(count: int, seed: int) -> list[Row]:
    """Requests with one tool call."""
    return t.as_rows(t.calls(count, seed), ASK_CALL, "text", call="call")


def medical_rows(count: int, seed: int, source: str = "medqa") -> list[Row]:
    """Vignettes with four options, in verl's layout."""
    return [
        {"data_source": source, "prompt": t.chat(r["question"], ASK_LETTER), "ability": "medicine",
         "reward_model": {"style": "rule", "ground_truth": r["letter"]}, "extra_info": {"index": at, "split": "train"}}
        for at, r in enumerate(t.medical(count, seed))
    ]  # fmt: skip
