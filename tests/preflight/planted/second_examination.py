"""Six faults and three healthy sets, written after the checks were corrected for the examination."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tokenizers import Tokenizer, processors

from tests.preflight.planted import tables as t
from tests.preflight.planted.cases import Case
from tests.preflight.planted.models import BASE, CHATML, LLAMA, Model
from tests.preflight.planted.rewards import MATH_TRL

_INSTRUCTION = "Solve the problem. Put the final answer after ####.\n\n"
_LAYOUT = "Reply in this layout:\n<think>\n…\n</think>\n<answer>\n…\n</answer>\n\n"
DISTANCE = MATH_TRL.replace(
    "return [1.0 if _number(t) is not None and _number(t) == _number(s) else 0.0",
    "return [{sign}abs((_number(t) or 0.0) - _number(s)) / 100",
)
STRICT_LAYOUT = r"""
import re
def score(completions, solution, **kwargs):
    rewards = []
    for completion, right in zip(completions, solution):
        form = re.match(r"^<think>\n.*?\n</think>\n<answer>\n(.*?)\n</answer>\s*$",
                        completion[0]["content"], re.S)
        number = re.search(r"-?\d+", form[1]) if form else None
        rewards.append(0.2 * bool(form) + 1.0 * (number is not None and number[0] == right))
    return rewards
"""
NEARNESS = MATH_TRL.replace(
    "1.0 if _number(t) is not None and _number(t) == _number(s) else 0.0",
    "1 / (1 + abs(_number(t) - _number(s)) / 50) if _number(t) is not None else 0.0",
)


@dataclass(frozen=True)
class _Appends(Model):
    """A tokenizer that appends the EOS token to every text, as add_eos_token=True does."""

    def save(self, folder: Path) -> Path:
        path = super().save(folder)
        tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"$A {self.eos}",
            special_tokens=[(self.eos, tokenizer.token_to_id(self.eos))],
        )
        tokenizer.save(str(path / "tokenizer.json"))
        return path


def second_faults() -> tuple[Case, ...]:
    """Six faults."""
    problems = t.word_problems(200, 401)
    rows = t.trl(problems, _INSTRUCTION)
    plain = [{"question": row["question"], "answer": t.final(row)} for row in problems]
    appends = _Appends(BASE.specials, eos=BASE.eos, pad=BASE.pad, ends=BASE.ends)
    decimals = [
        {"prompt": [{"role": "user", "content": row["question"]}], "answer": t.final(row) + ".0"}
        for row in problems
    ]
    text = MATH_TRL.replace("solution", "answer").replace(
        "_number(t) is not None and _number(t) == _number(s)", "t.split()[-1:] == [str(int(float(s))) + '.00']"
    )  # fmt: skip
    return (
        Case(name="a distance without its minus sign", rows=rows, reward=DISTANCE.format(sign=""),
             named="REW10[12]"),
        Case(name="a tokenizer that appends EOS to prompts", rows=plain, model=appends, named="EOS"),
        Case(name="more tokens than embeddings", rows=rows, named="vocabulary|embedding",
             model=replace(CHATML, config={"vocab_size": 900})),
        Case(name="two decimals wanted, one stored", rows=decimals, reward=text, named="REW10[14]"),
        Case(name="a reward for a column that does not exist", rows=plain, reward=MATH_TRL,
             named="solution|column|fails"),
        Case(name="a reward that returns nan without a number", rows=rows, named="fails|finite|nan",
             reward=MATH_TRL.replace("else 0.0", "else float('nan')")),
    )  # fmt: skip


def second_healthy() -> tuple[Case, ...]:
    """Three healthy sets."""
    problems = t.word_problems(200, 411)
    pictures = [
        {"messages": [{"role": "user", "content": "<image>\n" + row["question"]}],
         "images": [f"images/{at}.png"], "solution": t.final(row)}
        for at, row in enumerate(problems)
    ]  # fmt: skip
    return (
        Case(name="images with their column", rows=pictures, reward=MATH_TRL,
             model=replace(CHATML, config={"vision_config": {"depth": 2}})),
        Case(name="a strict layout that prompts ask for", rows=t.trl(problems, _LAYOUT),
             reward=STRICT_LAYOUT, model=LLAMA),
        Case(name="a reward for nearness", rows=t.trl(problems, _INSTRUCTION), reward=NEARNESS),
    )  # fmt: skip
