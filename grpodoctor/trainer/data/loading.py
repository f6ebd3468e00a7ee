"""The task of a run: a built-in one, or the user's own prompts and answers from a file."""

from __future__ import annotations

import codecs
import difflib
import hashlib
import json
import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grpodoctor.errors import ConfigError, DataError
from grpodoctor.trainer.config.sections import TaskConfig
from grpodoctor.trainer.data.tasks.base import Problem, Rewards, Task
from grpodoctor.trainer.data.tasks.registry import TASKS
from grpodoctor.trainer.rewards.final_answer import agree, final_answer
from grpodoctor.trainer.rewards.functions import RewardedTask, UserReward
from grpodoctor.trainer.rewards.math_check import MathJudge
from grpodoctor.trainer.rewards.mix import mixed

_log = logging.getLogger("grpodoctor")

_HELDOUT_SHARE = 10
_JSON_LINES = (".jsonl", ".ndjson", ".json")


def build_task(config: TaskConfig) -> Task:
    """The task that `config` names, with the user's data and reward where given.

    Raises:
        ConfigError: if there is no task of that name.
        DataError: if the data or the reward function cannot be used.
    """
    task = _source(config)
    if config.rewards:
        return RewardedTask(task, mixed(task, config))
    return RewardedTask(task, UserReward(config.reward)) if config.reward else task


def _source(config: TaskConfig) -> Task:
    if config.data is not None:
        heldout = Path(config.heldout_data) if config.heldout_data else None
        judge = MathJudge(config.verify_seconds) if config.verifier == "math" else None
        return FileTask(Path(config.data), heldout, judge)
    if config.name not in TASKS:
        near = difflib.get_close_matches(config.name, TASKS, n=1) or sorted(TASKS)
        raise ConfigError(
            f"there is no built-in task {config.name[:40]!r}",
            where="task.name",
            remedy=f"use {' or '.join(near)}, or give task.data",
        )
    return TASKS[config.name](config)


class FileTask(Task):
    """The user's prompts and answers; every epoch has its own order.

    Args:
        data: JSONL or Parquet with the columns `prompt` and `answer`, and `id` if there is one.
        heldout: the same for evaluation; without it the last tenth of `data` is held out.
        judge: compares answers as mathematics; without it they agree as text or as numbers.

    Raises:
        DataError: if a file is missing, damaged, empty or lacks a column.
    """

    def __init__(
        self, data: Path, heldout: Path | None = None, judge: MathJudge | None = None
    ) -> None:
        self.name, self._judge = data.stem, judge
        rows = _distinct(read_problems(data), data)
        if heldout is not None:
            self._train, self._heldout = rows, _distinct(read_problems(heldout), heldout)
        else:
            self._train, self._heldout = _split(rows, data)
        self._seed: int | None = None
        self._drawn = 0
        self._epoch, self._order = -1, list[int]()

    def problems(self, rng: random.Random, count: int) -> list[Problem]:
        """The next problems; the first call takes the seed of all later orders from `rng`."""
        if self._seed is None:
            self._seed = rng.getrandbits(63)
        return [self._next(self._seed) for _ in range(count)]

    def _next(self, seed: int) -> Problem:
        epoch, place = divmod(self._drawn, len(self._train))
        if epoch != self._epoch:
            self._epoch, self._order = epoch, list(range(len(self._train)))
            random.Random(f"{seed}/{epoch}").shuffle(self._order)  # noqa: S311  # an order, no secret
        self._drawn += 1
        return self._train[self._order[place]]

    def heldout(self, count: int) -> list[Problem]:
        """The first `count` held-out rows; fewer if there are fewer."""
        return self._heldout[:count]

    def warm_start_text(self, problem: Problem, rng: random.Random) -> str:  # noqa: ARG002  # one way
        """The answer itself: the file says nothing about how one gets there."""
        return problem.answer

    def score(self, problems: Sequence[Problem], texts: Sequence[str]) -> Rewards:
        """1 where the final answers agree."""
        golds = [each.answer for each in problems]
        if self._judge is not None:
            verdicts = self._judge.judge(golds, texts)
        else:
            pairs = zip(golds, texts, strict=True)
            verdicts = [agree(final_answer(text), final_answer(gold)) for gold, text in pairs]
        correct = [float(verdict) for verdict in verdicts]
        return Rewards(correct, {"correct": correct}, verdicts)

    def fingerprint(self) -> str:
        """A hash of the training rows."""
        rows = [[each.prompt, each.answer] for each in self._train]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()

    def state(self) -> dict[str, Any]:
        """The seed of the orders and how many problems were drawn."""
        return {"seed": self._seed, "drawn": self._drawn}

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        self._seed, self._drawn, self._epoch = state["seed"], state["drawn"], -1


def _distinct(rows: list[Problem], path: Path) -> list[Problem]:
    """The first row of each prompt; how many others there were is logged."""
    first: dict[str, Problem] = {}
    for row in rows:
        first.setdefault(row.prompt, row)
    if len(first) < len(rows):
        differing = sum(first[row.prompt].answer != row.answer for row in rows)
        _log.warning(
            "%s: %d rows repeat an earlier prompt and are left out, %d of them with another answer",
            *(path, len(rows) - len(first), differing),
        )
    return list(first.values())


def _split(rows: list[Problem], path: Path) -> tuple[list[Problem], list[Problem]]:
    if len(rows) < 2:
        raise DataError(
            "one row cannot be split into training and evaluation",
            where=str(path),
            remedy="add rows or give task.heldout_data",
        )
    kept = len(rows) - max(1, len(rows) // _HELDOUT_SHARE)
    return rows[:kept], rows[kept:]


def read_problems(path: Path) -> list[Problem]:
    """Read prompts and answers.

    Args:
        path: a file ending in .jsonl, .ndjson, .json (one object a line) or .parquet.

    Raises:
        DataError: if the file is missing, damaged, empty or lacks a column.
    """
    if not path.is_file():
        raise DataError(
            "there is no such data file",
            where=str(path),
            remedy="check task.data and task.heldout_data",
        )
    if path.suffix == ".parquet":
        rows = _read_parquet(path)
    elif path.suffix in _JSON_LINES:
        rows = _read_lines(path)
    else:
        raise DataError(
            f"data files end in .jsonl or .parquet, not in {path.suffix!r}", where=str(path)
        )
    problems = [_as_problem(row, place, path) for place, row in rows]
    if not problems:
        raise DataError("the data file has no rows", where=str(path))
    return problems


def _read_lines(path: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    import orjson

    try:
        lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).splitlines()
    except OSError as error:
        raise DataError(f"unreadable: {error.strerror}", where=str(path)) from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise DataError(f"not JSON: {error}", where=f"{path}, line {number}") from None
        if not isinstance(row, dict):
            raise DataError("not a JSON object", where=f"{path}, line {number}")
        yield f"line {number}", row


def _read_parquet(path: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"not a Parquet file: {str(error)[:120]}", where=str(path)) from None
    names = [name for name in ("id", "prompt", "answer") if name in table.column_names]
    for number, row in enumerate(table.select(names).to_pylist(), start=1):
        yield f"row {number}", row


def _as_problem(row: Mapping[str, object], place: str, path: Path) -> Problem:
    where = f"{path}, {place}"
    for column in ("prompt", "answer"):
        if column not in row:
            raise DataError(
                f"the column {column!r} is missing",
                where=where,
                remedy="every row needs prompt and answer",
            )
    prompt, answer = row["prompt"], row["answer"]
    if not isinstance(prompt, str) or not prompt.strip():
        raise DataError("the prompt is not a text", where=where)
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise DataError("the answer is neither a text nor a number", where=where)
    identity = row.get("id")
    return Problem(place if identity is None else str(identity), prompt, str(answer))
