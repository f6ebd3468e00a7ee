"""The process that runs a user's reward function.

Started as `python -m grpodoctor.trainer.rewards.reward_worker FD`. The function runs in the main
thread, so that parsers can use timers and signals. It may do anything, including hang or exit;
the parent kills this process then.
"""

from __future__ import annotations

import asyncio
import copy
import importlib
import importlib.util
import inspect
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

from grpodoctor.errors import DataError
from grpodoctor.support.worker_process import parent_connection, send_reply
from grpodoctor.trainer.rewards.call_forms import (
    Call,
    Function,
    Inputs,
    call_problem,
    detect_form,
    form_problem,
)
from grpodoctor.trainer.rewards.columns_read import columns_read
from grpodoctor.trainer.rewards.returned_values import RewardValues, check_returned
from grpodoctor.trainer.rewards.stub_replies import stubbed_judge

_RETRY_SECONDS = 10.0
"""Longest search for the completion at which a batch failed."""


def main() -> None:
    """Answer requests until the parent closes the connection."""
    connection = parent_connection()
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, requests), daemon=True).start()
    reward: LoadedReward | None = None
    while True:
        request = requests.get()
        try:
            reward = reward or LoadedReward(request["spec"], request["columns"])
            reply = reward.answer(request)
        except DataError as error:
            reply = {"error": error.what, "remedy": error.remedy}
        except BaseException as error:  # noqa: BLE001 - user code may raise anything anywhere
            reply = {"error": f"raised {_explain(error, '')}", "remedy": "correct the function"}
        sys.stdout.flush()
        send_reply(connection, reply)


def _receive(connection: Connection, requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Pass requests on; exit as soon as the parent is gone, even if the function hangs."""
    try:
        while True:
            requests.put(connection.recv())
    except (EOFError, OSError):
        os._exit(1)


class LoadedReward:
    """A user's function in its own process.

    Raises:
        DataError: if the function cannot be imported or called.
    """

    def __init__(self, spec: str, columns: Sequence[str]) -> None:
        self._function, self._file = load_function(spec)
        self._form = detect_form(self._function, columns)
        self._runner = asyncio.Runner()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request for the form, the rewards of completions, or the edited arguments."""
        if request.get("edits"):
            return {"edited": self.edited_arguments(request["inputs"], request["texts"])}
        if request.get("scored"):
            return {"scored": self.scored(request["inputs"], request["texts"])}
        if "reply" in request:
            with stubbed_judge(self._function, request["reply"]) as has_judge:
                if not has_judge:
                    return {"values": None}
                scored = self.score(request["inputs"], request["texts"])
                return {"values": scored._asdict()}
        if "texts" in request:
            return self.score(request["inputs"], request["texts"])._asdict()
        if request["check_form"]:
            self._refuse(form_problem(self._function, self._form, request["columns"]))
        read = columns_read(self._function)
        return {
            "name": self._form.name,
            "description": self._form.description,
            "parameters": read.parameters,
            "keywords": read.keywords,
        }

    def score(self, inputs: Inputs, texts: Sequence[str]) -> RewardValues:
        """The rewards of completions.

        Raises:
            DataError: if the function raises, or returns anything but one finite number each.
        """
        calls = self._form.calls(inputs, texts)
        for call in calls:
            self._refuse(call_problem(self._function, call))
        results: list[Any] = []
        try:
            for call in calls:
                results.append(self._call(call))  # noqa: PERF401 - the length tells which one failed
            returned = self._awaited(results if self._form.one_by_one else results[0])
            return check_returned(returned, len(texts))  # generators and arrays run the user's code
        except DataError:
            raise
        except BaseException as error:
            failed = (
                f"completion {len(results)}"
                if self._form.one_by_one
                else _failing_completion(self, inputs, texts)
            )
            raise DataError(
                f"raised {_explain(error, self._file)} at {failed}",
                remedy="make it return a finite number for any text",
            ) from error

    def scored(self, inputs: Inputs, texts: Sequence[str]) -> list[bool]:
        """Whether each completion gets a reward; only functions of TRL's form may return None."""
        (call,) = self._form.calls(inputs, texts)
        try:
            returned = self._call(call)
        except BaseException as error:
            raise DataError(f"raised {_explain(error, self._file)}") from error
        if not isinstance(returned, list) or len(returned) != len(texts):
            return [True] * len(texts)
        return [reward is not None for reward in returned]

    def edited_arguments(self, inputs: Inputs, texts: Sequence[str]) -> list[str]:
        """The names of the arguments that the function changes in place."""
        edited: dict[str, None] = {}
        for positional, keywords in self._form.calls(inputs, texts):
            arguments = dict(enumerate(positional, 1)) | keywords
            before = copy.deepcopy(arguments)
            self._call((positional, keywords))
            # In lists, since a list equals itself even if it contains nan.
            edited |= dict.fromkeys(
                str(name) for name, value in arguments.items() if [value] != [before[name]]
            )
        return list(edited)

    def _call(self, call: Call) -> Any:
        return self._awaited(self._function(*call[0], **call[1]))

    def call_one(self, entry: Any, text: str) -> None:
        """Call the function for a single completion and discard the reward."""
        returned = self._call(self._form.calls([entry], [text])[0])
        check_returned([returned] if self._form.one_by_one else returned, 1)

    def _awaited(self, returned: Any) -> Any:
        """The result of an awaitable, or of a list of awaitables; other values unchanged."""
        if inspect.isawaitable(returned):
            return self._runner.run(_gather([returned]))[0]
        if isinstance(returned, list) and returned and all(map(inspect.isawaitable, returned)):
            return self._runner.run(_gather(returned))
        return returned

    def _refuse(self, problem: str) -> None:
        if problem:
            raise DataError(
                f"cannot be called {self._form.description}: {problem}",
                remedy="change its parameters, or the columns of the data",
            )


async def _gather(awaitables: Sequence[Any]) -> list[Any]:
    return list(await asyncio.gather(*awaitables))


def _failing_completion(reward: LoadedReward, inputs: Inputs, texts: Sequence[str]) -> str:
    """Call the function for one completion at a time, to name the first that fails."""
    deadline = time.monotonic() + _RETRY_SECONDS
    for index, (entry, text) in enumerate(zip(inputs, texts, strict=True)):
        if time.monotonic() > deadline:
            return f"a completion after {index - 1}"
        try:
            reward.call_one(entry, text)
        except DataError:  # it returns something else for one completion than for the batch
            continue
        except BaseException:  # noqa: BLE001 - user code may raise anything
            return f"completion {index}"
    return "the whole batch, but at no single completion"


def _explain(error: BaseException, file: str) -> str:
    """Exception and message in one line, with the line of the user's file that caused it."""
    try:
        text = " ".join(str(error).split())[:200]
    except BaseException:  # noqa: BLE001 - its text is user code too
        text = "its text cannot be read"
    message = f"{type(error).__name__}: {text}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == Path(file)]
    return f"{message} ({Path(file).name}, line {lines[-1]})" if lines else message


def load_function(spec: str) -> tuple[Function, str]:
    """The function that a user names, and its module's file.

    Raises:
        DataError: if the module cannot be imported, or has no such function.
    """
    name, colon, attribute = spec.rpartition(":")
    if not (name and colon and attribute):
        raise DataError(
            "is not the name of a function", remedy="write FILE.py:function or module:function"
        )
    try:
        module = _module_from_file(Path(name)) if name.endswith(".py") else _module_by_name(name)
        function = getattr(module, attribute, None)
    except DataError:
        raise
    except BaseException as error:
        file = name if name.endswith(".py") else f"{name.replace('.', '/')}.py"
        raise DataError(
            f"cannot be imported: {_explain(error, str(Path(file).resolve()))}"
        ) from error
    if not callable(function):
        raise DataError(
            f"does not exist: {name[:80]} has no function {attribute[:40]!r}",
            remedy=_functions_of(module, attribute),
        )
    return function, getattr(module, "__file__", None) or name


def _functions_of(module: ModuleType, name: str) -> str:
    """What to do about a missing function: the functions that the module defines."""
    from grpodoctor.support.suggestions import did_you_mean

    defined = [
        each
        for each, value in vars(module).items()
        if callable(value)
        and not each.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
    ]
    return did_you_mean(name, defined) if defined else "define it, or name another function"


def _module_from_file(path: Path) -> ModuleType:
    path = path.resolve()
    sys.path.insert(0, str(path.parent))  # for imports of neighboring files
    spec = importlib.util.spec_from_file_location(f"grpodoctor_reward_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # before execution: dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _module_by_name(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(name)


if __name__ == "__main__":
    main()
