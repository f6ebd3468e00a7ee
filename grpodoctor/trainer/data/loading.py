"""The task of a run: a built-in one, or the user's prompts and answers from a file."""

from __future__ import annotations

import codecs
import hashlib
import json
import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grpodoctor.errors import ConfigError, DataError
from grpodoctor.measure.final_answer import final_answer, same_answer
from grpodoctor.support.numbers import count_of
from grpodoctor.support.suggestions import did_you_mean
from grpodoctor.trainer.config.sections import TaskConfig
from grpodoctor.trainer.data.tasks.registry import TASKS
from grpodoctor.trainer.rewards.configured_reward import with_configured_reward
from grpodoctor.trainer.rewards.math_check import MathVerifier
from grpodoctor.trainer.task import Problem, Rewards, Task

_log = logging.getLogger("grpodoctor")

_HELDOUT_SHARE = 10
_JSON_LINES = (".jsonl", ".ndjson", ".json")


def build_task(config: TaskConfig) -> Task:
    """The task that the config names, with the user's data and reward where given.

    Raises:
        ConfigError: if there is no task of that name.
        DataError: if the data or the reward function cannot be used.
    """
    return with_configured_reward(_source(config), config)


def _source(config: TaskConfig) -> Task:
    if config.data is not None:
        heldout = Path(config.heldout_data) if config.heldout_data else None
        verifier = MathVerifier(config.verify_seconds) if config.verifier == "math" else None
        keep_columns = bool(config.reward or config.rewards)
        return FileTask(Path(config.data), heldout, verifier, keep_columns=keep_columns)
    if config.name not in TASKS:
        raise ConfigError(
            f"unknown built-in task {config.name[:40]!r}",
            where="task.name",
            remedy=f"set task.data for your own data; {did_you_mean(config.name, TASKS)}",
        )
    return TASKS[config.name](config)


class FileTask(Task):
    """The user's prompts and answers; every epoch has its own order.

    Args:
        data: JSONL or Parquet with the columns `prompt` and `answer`, and optionally `id`.
        heldout: the same for evaluation; without it the last tenth of `data` is held out.
        verifier: compares answers as mathematics; without it they are compared as text or numbers.
        keep_columns: keep all columns, for reward functions that ask for them.

    Raises:
        DataError: if a file is missing, damaged, empty or lacks a column.
    """

    def __init__(
        self,
        data: Path,
        heldout: Path | None = None,
        verifier: MathVerifier | None = None,
        *,
        keep_columns: bool = False,
    ) -> None:
        self.name, self._verifier = data.stem, verifier
        problems = _distinct(read_problems(data, keep_columns=keep_columns), data)
        if heldout is not None:
            self._train = problems
            self._heldout = _distinct(read_problems(heldout, keep_columns=keep_columns), heldout)
        else:
            self._train, self._heldout = _split(problems, data)
        self.columns = frozenset(
            name for problem in self._train + self._heldout for name in problem.columns
        )
        self._seed: int | None = None
        self._drawn = 0
        self._epoch, self._order = -1, list[int]()

    def problems(self, rng: random.Random, count: int) -> list[Problem]:
        """The next problems; the first call draws the seed of all epochs' orders from `rng`."""
        if self._seed is None:
            self._seed = rng.getrandbits(63)
        return [self._next(self._seed) for _ in range(count)]

    def _next(self, seed: int) -> Problem:
        epoch, place = divmod(self._drawn, len(self._train))
        if epoch != self._epoch:
            self._epoch, self._order = epoch, list(range(len(self._train)))
            random.Random(f"{seed}/{epoch}").shuffle(self._order)  # noqa: S311  # an order, not a secret
        self._drawn += 1
        return self._train[self._order[place]]

    def heldout(self, count: int) -> list[Problem]:
        """The first `count` held-out rows; fewer if there are fewer."""
        return self._heldout[:count]

    def warm_start_text(self, problem: Problem, rng: random.Random) -> str:  # noqa: ARG002  # the file has one
        """The answer: the file has no worked solutions."""
        return problem.answer

    def score(self, problems: Sequence[Problem], texts: Sequence[str]) -> Rewards:
        """1 where the final answers agree."""
        references = [problem.answer for problem in problems]
        if self._verifier is not None:
            correct = self._verifier.verify(references, texts)
        else:
            pairs = zip(references, texts, strict=True)
            correct = [
                same_answer(final_answer(text), final_answer(answer)) for answer, text in pairs
            ]
        rewards = [float(each) for each in correct]
        return Rewards(rewards, {"correct": rewards}, correct)

    def fingerprint(self) -> str:
        """A hash of the training rows."""
        rows = [[problem.prompt, problem.answer] for problem in self._train]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()

    def state(self) -> dict[str, Any]:
        """The seed of the epochs' orders, and the number of problems drawn so far."""
        return {"seed": self._seed, "drawn": self._drawn}

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        self._seed, self._drawn, self._epoch = state["seed"], state["drawn"], -1

    def close(self) -> None:
        """End the verifier's process."""
        if self._verifier is not None:
            self._verifier.close()


def _distinct(rows: list[Problem], path: Path) -> list[Problem]:
    """The first row of each prompt; logs the number of dropped rows."""
    first: dict[str, Problem] = {}
    for row in rows:
        first.setdefault(row.prompt, row)
    if dropped := len(rows) - len(first):
        differing = sum(first[row.prompt].answer != row.answer for row in rows)
        _log.warning(
            "%s: %s an earlier prompt and %s dropped, %d of them with another answer",
            path,
            f"{count_of(dropped, 'row')} {'repeats' if dropped == 1 else 'repeat'}",
            "is" if dropped == 1 else "are",
            differing,
        )
    return list(first.values())


def _split(rows: list[Problem], path: Path) -> tuple[list[Problem], list[Problem]]:
    if len(rows) < 2:
        raise DataError(
            "a single row cannot be split into training and evaluation data",
            where=str(path),
            remedy="add rows or give task.heldout_data",
        )
    kept = len(rows) - max(1, len(rows) // _HELDOUT_SHARE)
    return rows[:kept], rows[kept:]


def read_problems(path: Path, *, keep_columns: bool = False) -> list[Problem]:
    """Read prompts and answers.

    Args:
        path: a file ending in .jsonl, .ndjson, .json (one object per line) or .parquet.
        keep_columns: keep the values of all columns.

    Raises:
        DataError: if the file is missing, damaged, empty or lacks a column.
    """
    if not path.is_file():
        raise DataError(
            "the data file does not exist",
            where=str(path),
            remedy="check task.data and task.heldout_data",
        )
    if path.suffix == ".parquet":
        rows = _read_parquet(path, keep_columns=keep_columns)
    elif path.suffix in _JSON_LINES:
        rows = _read_lines(path)
    else:
        raise DataError(
            f"data files cannot have the suffix {path.suffix!r}",
            where=str(path),
            remedy="use .jsonl or .parquet",
        )
    problems = [_as_problem(row, place, path, keep_columns=keep_columns) for place, row in rows]
    if not problems:
        raise DataError("the data file has no rows", where=str(path))
    return problems


def _read_lines(path: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    from grpodoctor.support.json_text import loads

    try:
        lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).splitlines()
    except OSError as error:
        raise DataError(f"unreadable: {error.strerror}", where=str(path)) from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = loads(line)
        except ValueError as error:
            raise DataError(str(error), where=f"{path}, line {number}") from None
        if not isinstance(row, dict):
            raise DataError("not a JSON object", where=f"{path}, line {number}")
        yield f"line {number}", row


def _read_parquet(path: Path, *, keep_columns: bool) -> Iterator[tuple[str, Mapping[str, object]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        if not keep_columns:
            names = [name for name in ("id", "prompt", "answer") if name in table.column_names]
            table = table.select(names)
        rows = table.to_pylist()
    except (OSError, ValueError, LookupError, pa.ArrowException) as error:  # also not UTF-8
        raise DataError(f"not a Parquet file: {str(error)[:120]}", where=str(path)) from None
    for number, row in enumerate(rows, start=1):
        yield f"row {number}", row


def _as_problem(
    row: Mapping[str, object], place: str, path: Path, *, keep_columns: bool
) -> Problem:
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
        raise DataError("the prompt is not text", where=where)
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise DataError("the answer is neither text nor a number", where=where)
    identity = row.get("id")
    columns = {str(name): value for name, value in row.items()} if keep_columns else {}
    return Problem(place if identity is None else str(identity), prompt, str(answer), columns)
