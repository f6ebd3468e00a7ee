"""Twenty-four mistakes of the nineteenth examination, in the order of their kinds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tokenizers import Tokenizer, normalizers

from tests.preflight.planted import nineteenth_faults as f
from tests.preflight.planted import nineteenth_rewards as w
from tests.preflight.planted import nineteenth_sets as s
from tests.preflight.planted import nineteenth_tables as t
from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import trl, verl
from tests.preflight.planted.models import CHATML, GEMMA, LLAMA, Model


@dataclass(frozen=True)
class Compatible(Model):
    """A model whose tokenizer brings characters into their compatible form (NFKC)."""

    def save(self, folder: Path) -> Path:
        """Write the folder."""
        super().save(folder)
        path = folder / "tokenizer.json"
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.normalizer = normalizers.NFKC()  # type: ignore[assignment]
        tokenizer.save(str(path))
        return folder


def plants() -> Iterator[Case]:
    """All mistakes."""
    yield from _of_state()
    yield from _of_comparison()
    yield from _of_prompts()
    yield from _of_settings()


def _of_state() -> Iterator[Case]:
    yield Case(
        name="grades are kept by the text of the response alone", rows=s.claim_rows(300, 9301), reward=f.CACHED,
        named=r"REW103.*remembers earlier calls",
        accepted="The reward of a response depends on earlier calls: a text that was graded for one prompt keeps its grade for all others.",
    )  # fmt: skip
    yield Case(
        name="rewards are scaled by the smallest and largest of the batch", rows=s.price_rows(300, 9302), reward=f.BATCH_SCALED,
        framework="trl", run_config=trl(),
        named=r"REW103.*the batch holds",
        accepted="The reward of a response depends on the other responses of the batch (scaled by its minimum and maximum).",
    )  # fmt: skip
    yield Case(
        name="rewards are returned in the order of the lengths", rows=s.headline_rows(300, 9303), reward=f.SORTED, model=LLAMA,
        named=r"REW103.*opposite order",
        accepted="Rewards are returned in another order than the responses, so that they belong to other responses.",
    )  # fmt: skip
    yield Case(
        name="a default argument collects the rewards of all calls", rows=s.weather_rows(300, 9304), reward=f.GROWING,
        named=r"REW103.*returned \d+ rewards for 1 ",
        accepted="The second call returns more rewards than responses (the list of the first call is kept).",
    )  # fmt: skip


def _of_comparison() -> Iterator[Case]:
    yield Case(
        name="letters other than a to z are removed before the comparison", rows=s.travel_rows(300, 9305), reward=f.LATIN, model=GEMMA,
        named=r"REW102.*: wrong answer: earns the full",
        accepted="Any answer in Greek or Russian earns the full reward, since both sides become empty.",
    )  # fmt: skip
    yield Case(
        name="the tolerance is larger than the answers", rows=s.charge_rows(300, 9306), reward=f.ABSOLUTE,
        framework="trl", run_config=trl(),
        named=r"REW102.*: wrong answer: earns the full",
        accepted="Wrong numbers (zero, other rows' answers) earn the full reward, since the absolute tolerance exceeds the answers.",
    )  # fmt: skip
    yield Case(
        name="the answer may be a part of the number in the tags", rows=s.count_rows(300, 9307), reward=f.CONTAINED,
        named=r"REW102.*nearly right number",
        accepted="Wrong numbers that contain the digits of the answer (12 for 2) earn the full reward.",
    )  # fmt: skip
    yield Case(
        name="topics must have the order of the reference", rows=s.topic_rows(300, 9308), reward=f.ORDERED,
        named=r"REW104.*another order",
        accepted="The right topics in another order earn nothing.",
    )  # fmt: skip
    yield Case(
        name="the limit of the length counts characters in place of tokens", rows=s.story_rows(300, 9309), reward=f.OVERLONG,
        framework="trl", run_config=trl(),
        named=r"REW104.*words of reasoning lose",
        accepted="Right responses far below max_completion_length lose reward or are penalized: the penalty counts characters (1024), the limit tokens.",
    )  # fmt: skip
    yield Case(
        name="the minus sign of answers is not read", rows=s.weather_rows(300, 9310), reward=f.UNSIGNED,
        named=r"REW101.*correct answers earn no more",
        accepted="Right negative answers earn nothing.",
    )  # fmt: skip
    yield Case(
        name="a quarter of the references is a fraction, which float refuses",
        rows=[{"prompt": t.chat(r["text"], s.ASK_TAG), "answer": r["answer"]} for r in t.draws(300, 9311)], reward=f.FLOATS, model=LLAMA,
        named=r"REW101.*a fraction as answer",
        accepted="Right answers of the rows that ask for a fraction earn nothing.",
    )  # fmt: skip
    yield Case(
        name="a word of refusals is the answer of a fifth of the questions", rows=s.passage_rows(300, 9312), reward=f.REFUSALS,
        named=r"REW101.*correct answers earn no more",
        accepted="The right answer 'unknown' earns -1, less than a wrong answer.",
    )  # fmt: skip


def _of_prompts() -> Iterator[Case]:
    twice = [
        {**row, "prompt": t.chat(row["prompt"][1]["content"] + "\nPut your final answer within \\boxed{}.", s.ASK_TAG)}
        for row in s.weather_rows(300, 9313)
    ]  # fmt: skip
    yield Case(
        name="the system message asks for tags, the user's for a box", rows=twice, reward=w.BOX,
        named=r"REW104.*Prompts ask for <answer>",
        accepted="The prompts ask for two formats; a response in the system message's format earns nothing.",
    )  # fmt: skip
    shot = "Example\nQuestion: A baker sells 12 loaves a day for 3 euros each. How much does he earn in 5 days?\nSolution: 12 * 5 = 60 loaves, 60 * 3 = 180.\n#### 180\n\nQuestion: "
    yield Case(
        name="the example in the prompts ends in another format than the reward reads",
        rows=[{**row, "prompt": t.chat(shot + row["prompt"][1]["content"] + "\nSolution:")} for row in s.story_rows(300, 9314)],
        reward=w.BOX, framework="trl", run_config=trl(),
        named=r"REW104.*Prompts ask for ####",
        accepted="Responses in the form of the prompts' example (#### and the number) earn nothing.",
    )  # fmt: skip
    named = []
    for at, row in enumerate(s.bill_rows(300, 9315)):
        hints = (
            "Add the tax to the sum of all sets.",
            "First find the price without tax.",
            "A tax of 12 percent means times 1.12.",
        )
        hint = "None" if at % 5 == 2 else hints[at % 3]
        named.append({**row, "prompt": t.chat(f"{row['prompt'][1]['content']}\nHint: {hint}", row["prompt"][0]["content"])})  # fmt: skip
    yield Case(
        name="a fifth of the prompts has None as its hint", rows=named, reward=w.BOX,
        named=r"DAT117.*None",
        accepted="The prompts contain the text None in place of a missing value.",
    )  # fmt: skip
    whole = [{**row, "answer": str(int(float(row["answer"])))} for row in s.bill_rows(300, 9316)]
    yield Case(
        name="references have lost their decimals though the prompts ask for two", rows=whole, reward=w.BOX,
        named=r"DAT126.*decimals",
        accepted="The prompts ask for two decimal places, the answers have none: right answers earn nothing.",
    )  # fmt: skip
    yield Case(
        name="held-out prompts ask for another format", rows=s.count_rows(300, 9317), reward=w.TAG,
        held_out=s.count_rows(80, 9417, s.ASK_BOX),
        named=r"DAT128.*<answer>",
        accepted="The held-out prompts ask for \\boxed{}, the training prompts and the reward for <answer> tags.",
    )  # fmt: skip
    wrong = []
    for at, row in enumerate(s.call_rows(300, 9318)):
        call = row["call"].replace('"degrees"', '"temperature"').replace('"title"', '"song"')
        wrong.append({**row, "call": call} if at % 5 == 1 else row)
    yield Case(
        name="a fifth of the calls has an argument that the tool does not have", rows=wrong, reward=w.CALL,
        named=r"DAT124.*no argument",
        accepted="Reference calls have arguments that are not in the tools' schemas.",
    )  # fmt: skip
    quoted = [{**row, "city": json.dumps(row["city"], ensure_ascii=False)} if at % 3 == 0 else row for at, row in enumerate(s.travel_rows(300, 9319))]  # fmt: skip
    yield Case(
        name="a third of the references was written as JSON, with quotes", rows=quoted,
        reward=w.TAG.replace("answer_reward(completions, answer", "answer_reward(completions, city").replace("zip(completions, answer)", "zip(completions, city)"),
        named=r"DAT126.*quotation marks",
        accepted="A third of the references has quotation marks, so that right answers earn nothing.",
    )  # fmt: skip


def _of_settings() -> Iterator[Case]:
    short = (
        "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are a terse assistant. Reply with the final answer only, without any explanation.<|im_end|>\n{% endif %}"
        + str(CHATML.template)
    )
    bare = [{**row, "prompt": t.chat(f"{row['prompt'][1]['content']}\n{s.ASK_BOX}")} for row in s.story_rows(300, 9320)]  # fmt: skip
    yield Case(
        name="the template's own system message forbids what the prompts ask for", rows=bare, reward=w.BOX,
        model=replace(CHATML, template=short),
        named=r"DAT131.*the template adds",
        accepted="The template adds a system message that asks for the answer only, against the prompts' request to think step by step.",
    )  # fmt: skip
    yield Case(
        name="the tokenizer turns superscripts into digits",
        rows=[{"prompt": t.chat(r["text"], s.ASK_BOX), "answer": str(r["value"])} for r in t.powers(300, 9321)], reward=w.BOX,
        model=Compatible(**{name: getattr(CHATML, name) for name in CHATML.__dataclass_fields__}),
        named=r"DAT132.*becomes",
        accepted="The tokenizer changes the prompts' text (5² becomes 52).",
    )  # fmt: skip
    sources = [
        *t.verl_rows(t.weather(160, 9322), "Think, then end with 'Answer: ' and the number.", "degrees", "weather"),
        *t.verl_rows(t.letters(160, 9422), "Think, then end with 'Answer: ' and the letter.", "letter", "trips"),
        *t.verl_rows(t.shelves(160, 9522), "Think, then end with 'Answer: ' and the number.", "count", "shelves"),
    ]  # fmt: skip
    yield Case(
        name="the file is sorted by source and is not shuffled", rows=sources, reward=w.VERL_LINE, suffix=".parquet",
        framework="verl", run_config=verl(("truncation: error", "truncation: error\n  shuffle: false")),
        named=r"DAT129.*data_source",
        accepted="The rows are sorted by source and data.shuffle is false, so that each step sees one source.",
    )  # fmt: skip
    yield Case(
        name="the columns of the reward are removed", rows=s.letter_rows(300, 9323),
        reward=w.BOX.replace("answer", "letter").replace(r"\\boxed\{([^{}]*)\}", r"Answer:\s*\(?([A-D])\b"),
        framework="trl", run_config=trl(remove_unused_columns="true"),
        named=r"REW103.*removes the columns",
        accepted="remove_unused_columns is true, so that the reward does not get the column letter.",
    )  # fmt: skip
    yield Case(
        name="the evaluation never runs", rows=s.topic_rows(300, 9324), held_out=s.topic_rows(80, 9424), reward=w.TOPICS,
        framework="trl", run_config=trl(eval_strategy="steps", eval_steps=500, max_steps=200),
        named=r"OPT103.*first evaluation",
        accepted="eval_steps is 500 in a run of 200 steps, so that no evaluation takes place.",
    )  # fmt: skip
