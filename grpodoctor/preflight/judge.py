"""Reward functions of the user's own, in whatever way their trainer calls them.

Such a function may do anything, so it is called in a process of its own, which is ended when it
takes too long.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import math
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path
from types import ModuleType
from typing import Any

from grpodoctor.errors import DataError
from grpodoctor.preflight.context import Row, Verdict

_ANYTHING = (Exception, SystemExit)
"""What a user's code may raise."""
_REMEDY = "make it return a finite number for any text"
_MOST_HANGS = 2
"""After which it is not asked again: each has cost the user the whole wait."""
_WHERE = "--reward"

Returned = list[tuple[float, bool | None]]
_Call = Callable[[Callable[..., Any], Sequence[Mapping[str, Any]], Sequence[str]], Any]


class UserJudge:
    """A reward function by its name.

    Args:
        spec: `FILE.py:function` or `module:function`. How it is called depends on the names of its
            parameters: `completions` as TRL calls it, with the data's columns by name;
            `solution_str` as verl calls it, one at a time, `solution_strs` a batch at once; else
            with three lists, of prompts, completions and answers, as grpodoctor's own trainer does.
            What it returns may be awaitable.
        seconds: that it may take for one batch.

    Raises:
        DataError: if it cannot be found or imported.
    """

    def __init__(self, spec: str, seconds: float = 60.0) -> None:
        self.spec, self._seconds = spec, seconds
        self._pool: ProcessPoolExecutor | None = None
        self._hangs = 0
        self.style = self._ask(_style, spec)

    def __call__(self, rows: Sequence[Row], texts: Sequence[str]) -> list[Verdict]:
        """What each completion is worth.

        Raises:
            DataError: if it raises, takes too long, ends its process, or returns what is no number.
        """
        plain = [_plain(row) for row in rows]
        returned: Returned = self._ask(_judge, self.spec, plain, list(texts))
        return [Verdict(reward, correct) for reward, correct in returned]

    def close(self) -> None:
        """End its process."""
        pool, self._pool = self._pool, None
        if pool is not None:
            for process in list(pool._processes.values()):  # noqa: SLF001 - it may be hanging
                process.kill()
            pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, what: Callable[..., Any], *arguments: Any) -> Any:
        if self._hangs >= _MOST_HANGS:
            raise self._too_long(f" {self._hangs} times and is not asked again")
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                1, mp_context=get_context("spawn"), initializer=_settle_in
            )
        try:
            outcome = self._pool.submit(what, *arguments).result(self._seconds)
        except TimeoutError:
            self.close()
            self._hangs += 1
            raise self._too_long() from None
        except BrokenProcessPool:
            self.close()
            raise _refusal(self.spec, "ended its process", _REMEDY) from None
        if isinstance(outcome, DataError):
            raise outcome
        return outcome

    def _too_long(self, more: str = "") -> DataError:
        return _refusal(
            self.spec,
            f"took longer than {self._seconds:g} seconds{more}",
            "bound what it does, or give it more with --reward-seconds",
        )


def _settle_in() -> None:
    """In the function's process: let nothing that it prints into the report, and end with ours."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _plain(row: Row) -> dict[str, Any]:
    return {
        "prompt": row.prompt,
        "messages": row.conversation() if row.messages else None,
        "answer": row.answer,
        "columns": dict(row.columns),
    }


def _refusal(spec: str, what: str, remedy: str = _REMEDY) -> DataError:
    return DataError(f"the reward function {spec[:80]} {what}", where=_WHERE, remedy=remedy)


def _style(spec: str) -> str | DataError:
    """How the function wants to be called, in its process; or why it cannot be."""
    try:
        return _style_of(_load(spec))
    except DataError as error:
        return error


def _judge(
    spec: str, rows: Sequence[Mapping[str, Any]], texts: Sequence[str]
) -> Returned | DataError:
    try:
        function = _load(spec)
        style = _style_of(function)
        returned = _settled(_CALLS[style](function, rows, texts))
        return _verdicts(spec, returned, len(texts))
    except DataError as error:
        return error
    except _ANYTHING as error:
        told = " ".join(str(error).split())[:200]
        remedy = _REMEDY
        if told.startswith(f"{getattr(function, '__qualname__', '?')}()"):  # it cannot be called
            remedy = f"it is called with {_GIVEN[style]}"
        return _refusal(spec, f"raised {type(error).__name__}: {told}", remedy)


def _settled(returned: Any) -> Any:
    """What an awaitable comes to, or each of several; anything else as it is."""
    if inspect.isawaitable(returned):
        return asyncio.run(_awaited([returned]))[0]
    if isinstance(returned, list) and returned and all(map(inspect.isawaitable, returned)):
        return asyncio.run(_awaited(returned))
    return returned


async def _awaited(several: Sequence[Any]) -> list[Any]:
    return list(await asyncio.gather(*several))


def _load(spec: str) -> Callable[..., Any]:
    name, colon, attribute = spec.rpartition(":")
    if not (name and colon and attribute):
        raise DataError(
            f"{spec[:80]!r} names no reward function",
            where=_WHERE,
            remedy="write FILE.py:function or module:function",
        )
    try:
        module = _from_file(Path(name)) if name.endswith(".py") else _by_name(name)
    except _ANYTHING as error:
        told = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise DataError(f"{name[:80]} cannot be imported: {told}", where=_WHERE) from error
    function = getattr(module, attribute, None)
    if not callable(function):
        raise DataError(f"{name[:80]} has no function {attribute[:40]!r}", where=_WHERE)
    loaded: Callable[..., Any] = function
    return loaded


def _from_file(path: Path) -> ModuleType:
    known = sys.modules.get(f"grpodoctor_reward_{path.stem}")
    if known is not None:
        return known
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # what it imports from beside it
    found = importlib.util.spec_from_file_location(f"grpodoctor_reward_{path.stem}", path)
    if found is None or found.loader is None:
        raise ImportError("not a Python file")
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module  # first: dataclasses look their module up
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules[found.name]
        raise
    return module


def _by_name(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(name)


def _style_of(function: Callable[..., Any]) -> str:
    try:
        names = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return "own"
    if "solution_strs" in names:
        return "verl batch"
    if "solution_str" in names:
        return "verl"
    takes_any = any(each.kind is each.VAR_KEYWORD for each in names.values())
    named = "completions" in names and "answers" not in names
    return "trl" if named or takes_any else "own"


def _as_trl(
    function: Callable[..., Any], rows: Sequence[Mapping[str, Any]], texts: Sequence[str]
) -> Any:
    """Columns by name, each a list; conversations where the data has them."""
    spoken = bool(rows) and rows[0]["messages"] is not None
    names = {name for row in rows for name in row["columns"]} - {"prompt", "messages"}
    columns = {name: [row["columns"].get(name) for row in rows] for name in names}
    return function(
        prompts=[row["messages"] if spoken else row["prompt"] for row in rows],
        completions=[
            [{"role": "assistant", "content": text}] if spoken else text for text in texts
        ],
        **columns,
    )


def _as_verl(
    function: Callable[..., Any], rows: Sequence[Mapping[str, Any]], texts: Sequence[str]
) -> Any:
    return [
        function(
            data_source=row["columns"].get("data_source", ""),
            solution_str=text,
            ground_truth=_truth(row),
            extra_info=row["columns"].get("extra_info") or {},
        )
        for row, text in zip(rows, texts, strict=True)
    ]


def _as_verl_batch(
    function: Callable[..., Any], rows: Sequence[Mapping[str, Any]], texts: Sequence[str]
) -> Any:
    return function(
        data_sources=[row["columns"].get("data_source", "") for row in rows],
        solution_strs=list(texts),
        ground_truths=[_truth(row) for row in rows],
        extra_infos=[row["columns"].get("extra_info") or {} for row in rows],
    )


def _truth(row: Mapping[str, Any]) -> Any:
    """The ground truth as verl's data has it, which may be more than a text."""
    nested = row["columns"].get("reward_model")
    if isinstance(nested, Mapping) and "ground_truth" in nested:
        return nested["ground_truth"]
    return row["answer"]


def _as_own(
    function: Callable[..., Any], rows: Sequence[Mapping[str, Any]], texts: Sequence[str]
) -> Any:
    return function([row["prompt"] for row in rows], list(texts), [row["answer"] for row in rows])


_CALLS: dict[str, _Call] = {
    "trl": _as_trl,
    "verl": _as_verl,
    "verl batch": _as_verl_batch,
    "own": _as_own,
}
_GIVEN = {
    "trl": "prompts, completions and the columns of the data, by name, as TRL does",
    "verl": "data_source, solution_str, ground_truth and extra_info, as verl does",
    "verl batch": "data_sources, solution_strs, ground_truths and extra_infos, as verl does",
    "own": "three lists: prompts, completions, answers; name a parameter completions (TRL) or "
    "solution_str (verl) to be called as these do",
}


def _verdicts(spec: str, returned: Any, count: int) -> Returned:
    plain = returned.tolist() if hasattr(returned, "tolist") else returned
    if isinstance(plain, Mapping):
        return _of_components(spec, plain, count)
    entries = list(plain) if isinstance(plain, list | tuple) else None
    if entries is None or len(entries) != count:
        shape = type(plain).__name__ if entries is None else f"{len(entries)} values"
        raise _refusal(spec, f"returned {shape} for {count} completions")
    return [_verdict(spec, entry, index) for index, entry in enumerate(entries)]


def _of_components(spec: str, components: Mapping[Any, Any], count: int) -> Returned:
    """Lists by name: their sum is the reward, a list `correct` of booleans says what is right."""
    columns = [_verdicts(spec, values, count) for values in components.values()]
    right = components.get("correct")
    flags = list(right) if isinstance(right, list | tuple) else [None] * count
    return [
        (
            math.fsum(column[index][0] for column in columns),
            flags[index] if isinstance(flags[index], bool) else None,
        )
        for index in range(count)
    ]


def _verdict(spec: str, entry: Any, index: int) -> tuple[float, bool | None]:
    value = entry.item() if hasattr(entry, "item") else entry
    correct = None
    if isinstance(value, Mapping):  # as verl's functions return it
        acc = value.get("acc", value.get("correct"))
        correct = bool(acc) if isinstance(acc, bool | int | float) else None
        if "score" not in value:
            raise _refusal(spec, f"returned a dict without score for completion {index}")
        value = value["score"]
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise _refusal(spec, f"returned {str(value)[:40]!r} for completion {index}")
    return float(value), correct
