"""Planted faults, each in a set that is healthy otherwise."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from tests.preflight.planted import tables as t
from tests.preflight.planted.cases import Case
from tests.preflight.planted.healthy import INSTRUCTION, capitals
from tests.preflight.planted.models import BASE, CHATML, CHATML_TEMPLATE, GEMMA, LLAMA
from tests.preflight.planted.rewards import (
    BOXED_VALUE,
    EXACT,
    EXACT_CASE,
    EXACT_HASHES,
    EXACT_TAG,
    LETTER,
    MATH_TRL,
    VERL_GSM8K,
)

_ANSWER_TRL = MATH_TRL.replace("solution", "answer")


def all_faults() -> tuple[Case, ...]:
    """Every planted fault."""
    return (*_overlaps(), *_answers(), *_prompts(), *_exact_rewards(), *_rewards(), *_models())


def _overlaps() -> Iterator[Case]:
    problems, others = t.word_problems(260, 31), t.word_problems(60, 32)
    yield Case(
        name="held-out rows in the training data",
        rows=t.trl(problems),
        held_out=t.trl(others + problems[:12]),
        named="held-out",
    )
    untidy = [
        {"question": _untidy(row["question"], at), "answer": row["answer"]}
        for at, row in enumerate(problems[40:60])
    ]
    yield Case(
        name="held-out overlap after normalisation",
        rows=problems,
        held_out=others + untidy,
        named="held-out",
    )
    yield Case(
        name="held-out overlap behind an instruction",
        rows=t.trl(problems, INSTRUCTION),
        held_out=t.trl(others + problems[100:130]),
        named="held-out",
    )
    yield Case(name="held-out overlap in another layout", rows=t.verl(problems), suffix=".parquet",
               held_out=[{"data_source": "x", "prompt": [
                   {"role": "system", "content": "You are careful."},
                   {"role": "user", "content": "Question: " + row["question"] + "\nAnswer:"}],
                   "reward_model": {"ground_truth": t.final(row)}}
                   for row in others + problems[:25]],
               named="held-out")  # fmt: skip
    latex = t.latex_problems(240, 33)
    spaced = [
        {**row, "problem": row["problem"].replace("$", "$ ").replace("\\frac", "\\dfrac")}
        for row in latex[5:30]
    ]
    yield Case(name="held-out overlap in other LaTeX", rows=latex, model=GEMMA,
               held_out=t.latex_problems(60, 34) + spaced, named="held-out")  # fmt: skip
    yield Case(name="repeated prompts", rows=t.trl(problems + problems[:40]),
               named="repeat an earlier one")  # fmt: skip
    wrong = [{**row, "solution": str(int(row["solution"]) + 3)} for row in t.trl(problems[:20])]
    yield Case(name="repeated prompts with other answers", rows=t.trl(problems) + wrong,
               named="contradictory answers")  # fmt: skip


def _untidy(text: str, at: int) -> str:
    """The same text after another tool's clean-up."""
    changes: tuple[Callable[[str], str], ...] = (
        lambda s: s.replace(". ", ".\n\n"), str.upper,
        lambda s: s.replace(",", "").rstrip("?") + " ?",
        lambda s: "\u201c" + s.replace(" ", "\u00a0", 3) + "\u201d",
    )  # fmt: skip
    return changes[at % len(changes)](text)


def _answers() -> Iterator[Case]:
    problems = t.word_problems(260, 41)
    rows = t.verl(problems)
    for at, row in enumerate(rows):
        row["reward_model"] = {"style": "rule", "ground_truth": str(at)}
    yield Case(name="answers are the row id", rows=rows, suffix=".parquet", named="row (id|number)")
    shifted = [{**row, "answer": other["answer"]} for row, other in pairwise(problems)]
    yield Case(name="solutions shifted by one row", rows=shifted, named="shift|another row")
    code = [
        {**row, "test_list": other["test_list"], "answer": other["code"]}
        for other, row in pairwise(t.functions(150, 42))
    ]
    code = [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in code]
    yield Case(name="tests shifted by one row", rows=code, model=LLAMA, named="shift|another row")
    keys = t.choices(240, 43)
    texts = [{"question": row["question"], "choices": row["choices"]["text"],
              "answer": other["choices"]["text"]["ABCD".index(other["answerKey"])]}
             for row, other in pairwise(keys)]  # fmt: skip
    yield Case(name="option texts shifted by one row", rows=texts, named="shift|another row|option")
    numbers = [{"question": row["question"], "answer": t.final(other)}
               for row, other in pairwise(problems)]  # fmt: skip
    yield Case(name="final answers shifted by one row", rows=numbers, suffix=".csv",
               named="shift|another row")  # fmt: skip
    empty = t.trl(problems, INSTRUCTION)
    for row in empty[::9]:
        row["solution"] = random.Random(len(row["prompt"])).choice(["", "  ", "None"])
    yield Case(name="empty answers", rows=empty, reward=MATH_TRL, named="(no|empty) answer")
    yield Case(name="skewed answer key", rows=t.choices(200, 44, key="CCCACCCBCCCD"), reward=LETTER,
               named="always C")  # fmt: skip
    verdicts = [
        {
            "prompt": [{"role": "user", "content": "Is this right? " + row["question"]}],
            "answer": "no" if at % 5 else "yes",
        }
        for at, row in enumerate(problems)
    ]
    yield Case(name="one answer almost always right", rows=verdicts, named="always answering 'no'")


def _prompts() -> Iterator[Case]:
    problems = t.word_problems(260, 51)
    mixed = t.multilingual(240, ("en",) * 9 + ("zh",), 52)
    yield Case(name="a tenth of the prompts in Chinese", rows=[
        {"question": row["question"], "answer": str(row["answer_number"])} for row in mixed],
        named="languages")  # fmt: skip
    german = t.multilingual(240, ("en",) * 11 + ("de",), 53)
    yield Case(name="a few prompts in German", rows=[
        {"prompt": [{"role": "user", "content": row["question"]}], "answer": str(row["answer_number"])}
        for row in german], named="languages")  # fmt: skip
    yield Case(name="prompts cut at a length", rows=[
        {"prompt": [{"role": "user", "content": row["question"][:120]}], "answer": t.final(row)}
        for row in problems], named="(cut|truncated)")  # fmt: skip
    yield Case(name="prompts cut at the front", rows=[
        {"prompt": [{"role": "user", "content": row["question"][-110:]}], "answer": t.final(row)}
        for row in problems], named="(cut|truncated)")  # fmt: skip
    yield Case(name="text prompts that bypass the chat template", model=LLAMA, rows=[
        {"prompt": row["question"], "answer": t.final(row)} for row in problems],
        named="template")  # fmt: skip
    inside = [
        {
            "prompt": [
                {"role": "user", "content": f"{row['question']}\nThe answer is {t.final(row)}."}
            ],
            "answer": t.final(row),
        }
        for row in problems
    ]
    yield Case(name="the answer inside the prompt", rows=inside, reward=_ANSWER_TRL,
               named="contain.* answer", advised="(remove|leave|take).*answer")  # fmt: skip
    told = [{"messages": [{"role": "user", "content": row["question"]},
                          {"role": "assistant", "content": row["answer"]}], "answer": t.final(row)}
            for row in problems]  # fmt: skip
    yield Case(name="conversations with their answer", rows=told, reward=_ANSWER_TRL,
               named="assistant|contain.* answer", advised="(remove|leave|drop).*(answer|assistant)")  # fmt: skip
    rendered = [{"prompt": f"<|im_start|>user\n{row['question']}<|im_end|>\n<|im_start|>assistant\n",
                 "answer": t.final(row)} for row in problems]  # fmt: skip
    yield Case(name="template applied already", rows=rendered, named="applied twice")
    holes = t.trl(problems, INSTRUCTION)
    for row in holes[::31]:
        row["prompt"] = [{"role": "user", "content": ""}]
    yield Case(name="empty prompts", rows=holes, named="(no|empty) prompt")
    yield Case(name="prompts too long", rows=t.trl(problems), settings={"max_tokens": 4090},
               named="exceed")  # fmt: skip
    unfilled = [{"prompt": [{"role": "user", "content": "Answer the question: {question}"}],
                 "answer": t.final(row)} for row in problems]  # fmt: skip
    yield Case(name="an unfilled placeholder", rows=unfilled, named="placeholder|repeat an earlier")


def _exact_rewards() -> Iterator[Case]:
    words = [{**row, "prompt": row["prompt"][0]["content"]} for row in capitals(160)]
    words = [{"question": row["prompt"], "answer": row["answer"]} for row in words]
    named = "exact|equivalent|spelling|variant"
    yield Case(name="a reward that fails on white space", rows=words, reward=EXACT_TAG,
               named=f"({named}|white ?space)")  # fmt: skip
    yield Case(name="a reward that fails on case", rows=words, reward=EXACT_CASE,
               named=f"({named}|case)")  # fmt: skip
    boxed = [
        {
            "prompt": [
                {"role": "user", "content": row["question"] + " Put the answer in \\boxed{}."}
            ],
            "answer": t.final(row),
        }
        for row in t.word_problems(150, 61)
    ]
    yield Case(name="a reward that fails on \\boxed", rows=boxed, reward=EXACT.format(column="answer"),
               named=f"({named}|box)")  # fmt: skip
    yield Case(name="a reward that fails on units", rows=[
        {"question": row["question"], "answer": row["answer"]} for row in t.word_problems(150, 62)],
        reward=EXACT_HASHES, model=GEMMA, named=f"({named}|unit)")  # fmt: skip
    yield Case(name="a reward that compares LaTeX as text", rows=t.latex_problems(150, 63),
               reward=BOXED_VALUE.replace("_plain(given) == _plain(wanted)", "given == wanted"),
               named=f"({named}|latex|unit)")  # fmt: skip


def _rewards() -> Iterator[Case]:
    rows = t.trl(t.word_problems(150, 71), INSTRUCTION)
    yield Case(name="a reward that never fires", rows=rows, named="REW101 critical", critical=True,
               reward=MATH_TRL.replace("_number(t) == _number(s)", "t.strip() == 'x' + s"))  # fmt: skip
    yield Case(name="a reward for containing the answer", rows=rows, named="several answers|copy",
               reward="def score(completions, solution, **kwargs):\n"
               "    return [float(s in c[0]['content']) for c, s in zip(completions, solution)]\n")  # fmt: skip
    yield Case(name="a reward for length", rows=rows, named="long wrong answer", reward=MATH_TRL.replace(
        "[1.0 if", "[len(t) / 2000 + 1.0 if").replace("else 0.0", "else len(t) / 2000"))  # fmt: skip
    yield Case(name="a reward that raises", rows=rows, named="fails on", critical=True,
               reward=MATH_TRL.replace("if found else None", ""))  # fmt: skip
    yield Case(name="a reward that is random", rows=rows, named="scored again", reward=MATH_TRL.replace(
        "import re", "import re, random").replace("else 0.0", "else random.random() * 0.2").replace(
        "[1.0 if", "[1.0 - random.random() * 0.2 if"))  # fmt: skip
    yield Case(name="a reward for the format alone", rows=t.verl(t.word_problems(150, 72)),
               suffix=".parquet", named="wrong answer|format without", reward=VERL_GSM8K.replace(
                   "1.0 if found[-1]", "1.0 if found or found[-1]"))  # fmt: skip
    yield Case(name="a slow reward", rows=rows, named="second.* per step|slow|per step",
               settings={"group_size": 16, "batch_prompts": 128}, reward=MATH_TRL.replace(
                   "import re", "import re, time").replace(
                   "    texts = ", "    time.sleep(0.02 * len(completions))\n    texts = "))  # fmt: skip


def _models() -> Iterator[Case]:
    rows = t.trl(t.word_problems(200, 81), INSTRUCTION)
    problems = [
        {"question": row["question"], "answer": t.final(row)} for row in t.word_problems(200, 82)
    ]
    yield Case(name="the template's EOS is not declared", rows=rows, named="not declared as EOS",
               model=replace(CHATML, eos="<|endoftext|>", ends=("<|endoftext|>",)))  # fmt: skip
    yield Case(name="EOS is an ordinary character", rows=problems, model=replace(BASE, generation={
        "eos_token_id": 15}), named="ordinary", critical=True)  # fmt: skip
    yield Case(name="the tokenizer's EOS is a full stop", rows=rows, model=replace(
        LLAMA, eos="."), named="ordinary", critical=True)  # fmt: skip
    yield Case(name="padding with the EOS token", rows=rows, named="padding token is the EOS",
               model=replace(CHATML, pad="<|im_end|>"))  # fmt: skip
    yield Case(name="EOS outside the vocabulary", rows=rows, named="outside the model's vocabulary",
               model=replace(LLAMA, generation={"eos_token_id": 128009}))  # fmt: skip
    yield Case(name="two BOS tokens", rows=rows, model=replace(
        LLAMA, template=str(LLAMA.template).replace("{{ bos_token }}", "{{ bos_token }}{{ bos_token }}")),
        named="two BOS")  # fmt: skip
    yield Case(name="no generation prompt", rows=rows, model=replace(
        CHATML, template=CHATML_TEMPLATE.partition("{% if add_generation")[0]),
        named="no generation prompt")  # fmt: skip
    yield Case(name="router auxiliary loss enabled", rows=rows, model=replace(CHATML, config=_MOE),
               named="auxiliary|load-balancing")  # fmt: skip


_MOE: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 16,
    "num_experts_per_tok": 4, "output_router_logits": True, "router_aux_loss_coef": 0.001,
}  # fmt: skip
