"""Rows with prompts of the nineteenth examination's tasks."""

from __future__ import annotations

import json

from tests.preflight.planted import nineteenth_tables as t
from tests.preflight.planted.tables import Row

ASK_CLAIM = "Compare the claim with the report. Explain briefly, then end with 'Verdict: yes' if the report supports it, and 'Verdict: no' if not."
ASK_PRICE = "Estimate the price in euros. Explain your estimate, then write the number between <price> and </price>."
ASK_HEADLINE = "Think about the main point of the news, then write a headline between <headline> and </headline>."
ASK_TAG = "Think step by step, then give the answer between <answer> and </answer>."
ASK_BOX = "Think step by step, then put the answer into \\boxed{}."
ASK_TOPICS = "Sort the message. Explain what it is about, then end with a line 'Topics:' and all topics that apply, separated by commas, in any order. Topics: account, billing, delivery, praise, quality. If none applies, write 'Topics: none'."
ASK_CALL = "You control a house. Reply with one call as <tool_call>{...}</tool_call>, JSON with the keys name and arguments. Tools: "
ASK_LETTER = "Think step by step, then end with 'Answer: ' and the letter."


def claim_rows(count: int, seed: int) -> list[Row]:
    """Reports and claims."""
    return [
        {"prompt": t.chat(f"Report: {r['report']}\nClaim: {r['claim']}", ASK_CLAIM), "verdict": r["verdict"]}
        for r in t.claims(count, seed)
    ]  # fmt: skip


def price_rows(count: int, seed: int) -> list[Row]:
    """Offers with prices."""
    return t.rows_of(t.estimates(count, seed), ASK_PRICE, "price")


def headline_rows(count: int, seed: int) -> list[Row]:
    """News with headlines."""
    return t.rows_of(t.headlines(count, seed), ASK_HEADLINE, "headline")


def travel_rows(count: int, seed: int) -> list[Row]:
    """Questions in three scripts."""
    return t.rows_of(t.travels(count, seed), ASK_TAG, "city", "language")


def charge_rows(count: int, seed: int) -> list[Row]:
    """Small quantities."""
    return t.rows_of(t.charges(count, seed), ASK_TAG, "value")


def count_rows(count: int, seed: int, ask: str = ASK_TAG) -> list[Row]:
    """Numbers of words."""
    return [{"prompt": t.chat(r["text"], ask), "answer": str(r["count"])} for r in t.shelves(count, seed)]  # fmt: skip


def topic_rows(count: int, seed: int, *, empty: bool = False) -> list[Row]:
    """Messages with topics."""
    return t.rows_of(t.tickets(count, seed, empty=empty), ASK_TOPICS, "topics")


def story_rows(count: int, seed: int) -> list[Row]:
    """Word problems with worked solutions."""
    return [
        {"prompt": t.chat(r["text"], ASK_BOX), "answer": str(r["result"]), "solution": r["way"]}
        for r in t.stories(count, seed)
    ]  # fmt: skip


def weather_rows(count: int, seed: int, ask: str = ASK_BOX) -> list[Row]:
    """Temperatures."""
    return [{"prompt": t.chat(r["text"], ask), "answer": str(r["degrees"])} for r in t.weather(count, seed)]  # fmt: skip


def passage_rows(count: int, seed: int) -> list[Row]:
    """Passages with questions, of which some have no answer."""
    ask = f"{ASK_TAG} If the passage does not say it, the answer is unknown."
    return [
        {"prompt": t.chat(f"{r['passage']}\n\n{r['question']}", ask), "answer": r["answer"]}
        for r in t.passages(count, seed)
    ]  # fmt: skip


def bill_rows(count: int, seed: int) -> list[Row]:
    """Totals in euros and cents."""
    ask = f"{ASK_BOX} Round to two decimal places."
    return [{"prompt": t.chat(r["text"], ask), "answer": f"{r['total']:.2f}"} for r in t.bills(count, seed)]  # fmt: skip


def call_rows(count: int, seed: int) -> list[Row]:
    """Requests with one call, and the schemas of the tools."""
    ask = ASK_CALL + json.dumps(t.SCHEMAS)
    return [
        {"prompt": t.chat(r["text"], ask), "tools": json.dumps(t.SCHEMAS), "call": json.dumps(r["call"])}
        for r in t.calls(count, seed)
    ]  # fmt: skip


def letter_rows(count: int, seed: int) -> list[Row]:
    """Four towns."""
    return t.rows_of(t.letters(count, seed), ASK_LETTER, "letter")
