"""Responses in the files of users' own scripts, under the names that such scripts use.

A row is one response, or one prompt with a list of its responses. The names are matched exactly:
a file whose rows have no known name is no dump.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grpodoctor.frameworks.rollout_formats import columns
from grpodoctor.frameworks.rollout_formats.base import FilePart, Responses
from grpodoctor.frameworks.row_keys import is_evaluation, words_of
from grpodoctor.support.arrays import np
from grpodoctor.support.numbers import parse_number

TEXTS = (
    "completion", "response", "generation", "output", "completion_text", "response_text",
    "generated_text", "generated", "output_text", "model_response", "model_output",
    "raw_generation", "raw_output", "raw_response", "full_output", "full_response", "solution_str",
)  # fmt: skip
"""Names of a response's text, the preferred one first."""
PROMPTS = ("prompt", "question", "query", "problem", "input", "instruction", "user_prompt",
           "prompt_text")  # fmt: skip
REWARDS = ("reward", "total_reward", "reward_total", "final_reward", "score", "total_score",
           "final_score", "reward_score")  # fmt: skip
STEPS = ("step", "training_step", "global_step", "train_step", "rollout_step", "update_step",
         "optimizer_step", "iteration", "train_iter", "iter", "update", "step_index")  # fmt: skip
"""Names of a training step in rows of responses."""
_LISTS = ("completions", "responses", "rollouts", "generations", "samples", "outputs", "candidates")
"""Names of a prompt's list of responses."""
_REWARD_LISTS = ("rewards", "scores", *REWARDS)
_ANSWER = "answer"
"""The response where no other column is one, the reference answer otherwise."""
_SHORTEST_ANSWER_WORDS = 8
_REFERENCES = ("ground_truth", "gold", "gold_answer", "reference", "reference_answer", "gts", "gt",
               "expected_answer", "target", "solution", _ANSWER)  # fmt: skip
_PUZZLE_NUMBERS = ("nums", "numbers")
"""With such a column, a `target` is a number to reach, and the answer is an expression."""
_CORRECT = ("correct", "is_correct", "acc", "solved", "is_solved")
_TRUNCATED = ("truncated", "is_truncated", "hit_limit", "was_truncated")
_LENGTHS = ("completion_tokens", "response_tokens", "response_length", "completion_length",
            "generated_tokens", "num_tokens", "n_tokens")  # fmt: skip
_ADVANTAGES = ("advantage", "advantages")
_GROUPS = ("group", "group_id", "prompt_id", "prompt_idx", "example_id", "problem_id",
           "question_id", "qid", "uid")  # fmt: skip
_GROUP_OF_VERIFIERS = "example_id"
_LONGEST_ID = 200
_PARTS = ("rewards", "reward_components", "components", "metrics", "reward_parts")
"""Names of an object that holds the parts of a reward."""
_EPISODES = frozenset(("episode", "episode_id", "turn", "max_steps", "done"))
"""With such a column, `step` counts the actions of an episode, and a row is one of them."""
_UPDATE_WORDS = frozenset(("loss", "kl", "entropy", "lr", "grad", "gradient", "clip", "learning"))
"""Words of metrics of an update: rows with one are the log of a training."""
_NEARLY_ALL = 0.9
_MOST_RESPONSES = 100_000
_NAMED_STEP = re.compile(
    r"(?:^|[^a-z0-9])(?:global_step|step|iteration|iter|update)s?[_-]?(\d{1,12})(?=[^0-9]|$)"
)


def step_of(path: Path) -> int | None:
    """The step in the name of a file, or of its folder: `step_12.jsonl`, `12.jsonl`, `iter-3/`."""
    if path.stem.isdigit() and len(path.stem) <= 12:
        return int(path.stem)
    for name in (path.name, path.parent.name):
        if steps := _NAMED_STEP.findall(name.lower()):
            return int(steps[-1])
    return None


def is_heldout(path: Path) -> bool:
    """Whether the name of a file or of its folder says that it is about an evaluation."""
    folder = words_of(path.parent.name) - {"test", "testing"}  # a run may be a test
    return is_evaluation(path.stem) or is_evaluation(" ".join(folder))


def are_responses(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether nearly all rows are responses; a row may describe the file or lack a text."""
    return bool(rows) and sum(map(holds_responses, rows)) >= _NEARLY_ALL * len(rows)


def step_key(rows: Sequence[Mapping[str, Any]]) -> str:
    """The column of the training step; empty if rows have none."""
    return next(
        (key for key in STEPS if all(parse_number(r.get(key)) is not None for r in rows)), ""
    )


def repeats_a_step(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether neighbouring rows have the same step: then a row is a response and not a step."""
    key = "" if any(not _EPISODES.isdisjoint(row) for row in rows) else step_key(rows)
    steps = [row[key] for row in rows] if key else []
    return any(one == other for one, other in itertools.pairwise(steps))


def holds_responses(row: Mapping[str, Any]) -> bool:
    """Whether a row is a response with its reward, or a prompt with such responses."""
    if not any(_text_key(response) and _is_judged(response) for response in expanded(row)):
        return False
    return all(_UPDATE_WORDS.isdisjoint(words_of(key)) for key in row)


def is_list_row(row: Mapping[str, Any]) -> bool:
    """Whether a row is a prompt with the list of its responses."""
    return _list_key(row) != ""


def expanded(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The responses of a row: itself, or each entry of its list with the other columns."""
    key = _list_key(row)
    if not key:
        yield row
        return
    values = row[key]
    count = len(values)
    others = {
        name: value
        for name, value in row.items()
        if name != key and (name in PROMPTS or not isinstance(value, list))
    }
    lists = {
        name: value
        for name, value in row.items()
        if isinstance(value, list) and len(value) == count and name not in (key, *PROMPTS)
    }
    for index, value in enumerate(values):
        own = dict(value) if isinstance(value, dict) else {TEXTS[0]: value}
        if isinstance(value, dict) and not _text_key(own) and isinstance(own.get("text"), str):
            own[TEXTS[0]] = own.pop("text")
        each = {_singular(name): entries[index] for name, entries in lists.items()}
        yield {**others, **each, **own}


def responses_of(
    rows: Sequence[dict[str, Any]], names: Sequence[str], part: FilePart
) -> Responses | None:
    """Columns of the responses in rows; None if there are none.

    Args:
        rows: rows of a file.
        names: an id for each row.
        part: the part of the file; its step is used if the rows have none.
    """
    if any(map(is_list_row, rows)):
        rows, names = columns.flattened(rows, names, lambda row: map(dict, expanded(row)))
    if not rows:
        return None
    texts = [_text(row) for row in rows]
    prompts = [_prompt(row) for row in rows]
    groups = [_group(row, prompt) for row, prompt in zip(rows, prompts, strict=True)]
    references = [_reference(row) for row in rows]
    rewards, correct, truncated, advantages, lengths = (
        columns.if_known(columns.floats([_number(row, keys) for row in rows]))
        for keys in (REWARDS, _CORRECT, _TRUNCATED, _ADVANTAGES, _LENGTHS)
    )
    steps = [row.get(step_key([row])) for row in rows]
    return Responses(
        steps_B=np.array([columns.step_of(step, part.step or 0) for step in steps], np.int64),
        names=names,
        groups=groups if any(groups) else None,
        prompts=prompts if any(prompts) else None,
        texts=texts,
        references=references if any(references) else None,
        rewards_B=rewards,
        components=columns.extra_numbers([_parts(row) for row in rows], frozenset()),
        correct_B=None if correct is None else columns.flags(correct),
        truncated_B=None if truncated is None else columns.flags(truncated),
        advantages_B=advantages,
        lengths_B=lengths,
    )


def _text(row: Mapping[str, Any]) -> str:
    return columns.text_of(row.get(_text_key(row)))


def _prompt(row: Mapping[str, Any]) -> str:
    others = (key for key in PROMPTS if key != _text_key(row) and row.get(key))
    return columns.text_of(row.get(next(others, "")))


def _group(row: Mapping[str, Any], prompt: str) -> str:
    """The prompt, or its id: other ids of rows with a prompt may be those of the rows."""
    keys = (_GROUP_OF_VERIFIERS,) if prompt else _GROUPS
    known = (str(row[key])[:_LONGEST_ID] for key in keys if row.get(key) is not None)
    return next(known, prompt)


def _reference(row: Mapping[str, Any]) -> str:
    is_puzzle = any(key in row for key in _PUZZLE_NUMBERS)
    for key in _REFERENCES:
        is_usable = key != _text_key(row) and not (is_puzzle and key == "target")
        if is_usable and row.get(key) not in (None, ""):
            return columns.answer_of(row[key])
    return ""


def _number(row: Mapping[str, Any], keys: Sequence[str]) -> object:
    """The first number under some keys."""
    return next((row[key] for key in keys if isinstance(row.get(key), int | float)), None)


def _list_key(row: Mapping[str, Any]) -> str:
    for key in (*_LISTS, *TEXTS):
        values = row.get(key)
        if not isinstance(values, list) or not 0 < len(values) <= _MOST_RESPONSES:
            continue
        is_rewarded = any(
            isinstance(rewards := row.get(name), list) and len(rewards) == len(values)
            for name in _REWARD_LISTS
        )
        if all(isinstance(value, str) for value in values) and is_rewarded:
            return key
        if all(isinstance(v, dict) and (is_rewarded or _is_judged(v)) for v in values):
            return key
    return ""


def _is_judged(row: Mapping[str, Any]) -> bool:
    return bool(_reward_key(row)) or any(isinstance(row.get(key), int | float) for key in _CORRECT)


def _singular(name: str) -> str:
    return "reward" if name == "rewards" else "score" if name == "scores" else name


def _text_key(row: Mapping[str, Any]) -> str:
    """The column of the response: a text, or a list of chat messages."""
    for key in TEXTS:
        value = row.get(key)
        if isinstance(value, str) or (isinstance(value, list) and columns.text_of(value)):
            return key
    answer = row.get(_ANSWER)
    is_long = isinstance(answer, str) and len(answer.split()) >= _SHORTEST_ANSWER_WORDS
    return _ANSWER if is_long else ""


def _reward_key(row: Mapping[str, Any]) -> str:
    return next((key for key in REWARDS if isinstance(row.get(key), int | float)), "")


def _parts(row: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of the reward: numbers named like one, and those in an object of parts."""
    reward_key = _reward_key(row)
    parts = {
        key: value
        for key, value in row.items()
        if "reward" in words_of(key) and key != reward_key and isinstance(value, float | int)
    }
    for name in _PARTS:
        if isinstance(values := row.get(name), dict):
            parts |= {
                key: value
                for key, value in values.items()
                if isinstance(value, float | int) and key not in ("total", reward_key)
            }
    return parts
