"""The ways in which trainers call a reward function, detected from the function's signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpodoctor.errors import DataError

Inputs = Sequence[Mapping[str, Any]]
"""One entry per completion, with the keys `prompt`, `messages`, `answer` and `columns`."""
Call = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments."""
Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class CallForm:
    """How to call a reward function for a batch of completions."""

    name: str
    description: str
    """Completes the sentence "reward F: called …"."""
    calls: Callable[[Inputs, Sequence[str]], list[Call]]
    """The calls for a batch: one for the whole batch, or one per completion."""
    one_by_one: bool = False


def _trl_calls(inputs: Inputs, texts: Sequence[str]) -> list[Call]:
    """Columns by name, each a list; messages in place of text where the data has conversations."""
    conversational = bool(inputs) and bool(inputs[0]["messages"])
    arguments = {
        **_columns(inputs, excluded=("prompt", "messages")),
        "prompts": [each["messages" if conversational else "prompt"] for each in inputs],
        "completions": [
            [{"role": "assistant", "content": text}] if conversational else text for text in texts
        ],
    }
    return [((), arguments)]


def _columns(inputs: Inputs, excluded: Collection[str]) -> dict[str, list[Any]]:
    names = {str(name) for each in inputs for name in each["columns"]}
    return {
        name: [each["columns"].get(name) for each in inputs]
        for name in sorted(names.difference(excluded))
    }


def _verl_calls(inputs: Inputs, texts: Sequence[str]) -> list[Call]:
    batch = _verl_batch_calls(inputs, texts)[0][1]
    return [
        (
            (),
            {
                "data_source": batch["data_sources"][index],
                "solution_str": text,
                "ground_truth": batch["ground_truths"][index],
                "extra_info": batch["extra_infos"][index],
            },
        )
        for index, text in enumerate(texts)
    ]


def _verl_batch_calls(inputs: Inputs, texts: Sequence[str]) -> list[Call]:
    arguments = {
        "data_sources": [each["columns"].get("data_source", "") for each in inputs],
        "solution_strs": list(texts),
        "ground_truths": [_ground_truth(each) for each in inputs],
        "extra_infos": [each["columns"].get("extra_info") or {} for each in inputs],
    }
    return [((), arguments)]


def _ground_truth(entry: Mapping[str, Any]) -> Any:
    """The ground truth as verl stores it; it can be any value, not only text."""
    nested = entry["columns"].get("reward_model")
    if isinstance(nested, Mapping) and "ground_truth" in nested:
        return nested["ground_truth"]
    return entry["answer"]


def _positional_calls(inputs: Inputs, texts: Sequence[str]) -> list[Call]:
    return [(tuple(_own_arguments(inputs, texts).values()), {})]


def _own_arguments(inputs: Inputs, texts: Sequence[str]) -> dict[str, list[Any]]:
    return {
        "prompts": [each["prompt"] for each in inputs],
        "completions": list(texts),
        "answers": [each["answer"] for each in inputs],
    }


def _named_calls(accepted: Collection[str], *, any_keyword: bool) -> Callable[..., list[Call]]:
    def calls(inputs: Inputs, texts: Sequence[str]) -> list[Call]:
        own = _own_arguments(inputs, texts)
        if any_keyword:
            return [((), {**_columns(inputs, excluded=("prompt",)), **own})]
        return [((), {name: values for name, values in own.items() if name in accepted})]

    return calls


_TRL = CallForm("trl", "as TRL calls it (prompts, completions, **columns)", _trl_calls)
_VERL = CallForm(
    "verl",
    "as verl calls it (data_source, solution_str, ground_truth, extra_info), one completion each",
    _verl_calls,
    one_by_one=True,
)
_VERL_BATCH = CallForm(
    "verl batch",
    "as verl's batch manager calls it (data_sources, solution_strs, ground_truths, extra_infos)",
    _verl_batch_calls,
)
_OWN = "as grpodoctor calls it (prompts, completions, answers)"
_POSITIONAL = CallForm("grpodoctor", _OWN, _positional_calls)
_UNKNOWN = "name its parameters (prompts, completions, answers), or as TRL or verl name them"


def detect_form(function: Function, columns: Collection[str] = ()) -> CallForm:
    """The form in which a reward function expects to be called.

    Args:
        function: the user's function.
        columns: names of the data's columns, which TRL passes by name.

    Raises:
        DataError: if the object is not a function, or its parameters do not tell its form.
    """
    _refuse_non_functions(function)
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some functions written in C have no signature
        return _POSITIONAL
    kinds = [each.kind for each in parameters.values()]
    any_keyword = inspect.Parameter.VAR_KEYWORD in kinds
    if "solution_strs" in parameters:
        return _VERL_BATCH
    if "solution_str" in parameters:
        return _VERL
    if "completions" in parameters:
        if "answers" in parameters and "answers" not in columns:
            return _named(parameters, any_keyword=any_keyword)
        return _trl_or_positional(function, parameters, columns)
    if any_keyword and inspect.Parameter.VAR_POSITIONAL in kinds:
        raise DataError(
            "takes only *args and **kwargs, so the form of the call is unknown",
            remedy=f"use functools.wraps in its decorator, or {_UNKNOWN}",
        )
    return _TRL if any_keyword and len(_positional(parameters)) < 3 else _POSITIONAL


def _refuse_non_functions(function: Function) -> None:
    if inspect.isclass(function):
        raise DataError(
            "is a class", remedy="create an instance in the module and name that, or a function"
        )
    if inspect.isasyncgenfunction(function):
        raise DataError("is an async generator", remedy="return a list of numbers")


def _named(parameters: Mapping[str, inspect.Parameter], *, any_keyword: bool) -> CallForm:
    by_name = all(
        parameters[name].kind is not inspect.Parameter.POSITIONAL_ONLY
        for name in ("completions", "answers")
    )
    if not by_name:
        return _POSITIONAL
    return CallForm("grpodoctor", _OWN, _named_calls(list(parameters), any_keyword=any_keyword))


def _trl_or_positional(
    function: Function, parameters: Mapping[str, inspect.Parameter], columns: Collection[str]
) -> CallForm:
    """TRL's form, unless the third parameter of `(prompts, completions, …)` is not a column."""
    names = _positional(parameters)
    if names != list(parameters) or names[:2] != ["prompts", "completions"] or len(names) != 3:
        return _TRL
    problem = form_problem(function, _TRL, columns)
    if not columns or not problem:
        return _TRL
    description = f"{_OWN}; TRL could not call it: {problem}"
    return CallForm("grpodoctor", description, _positional_calls)


def _positional(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, each in parameters.items() if each.kind in kinds]


def form_problem(function: Function, form: CallForm, columns: Collection[str]) -> str:
    """Why a function cannot be called in a form with data of these columns; empty if it can."""
    probe = {"prompt": "", "messages": None, "answer": "", "columns": dict.fromkeys(columns)}
    return call_problem(function, form.calls([probe], [""])[0])


def call_problem(function: Function, call: Call) -> str:
    """Why a function does not accept arguments, without calling it; empty if it does."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(*call[0], **call[1])
    except TypeError as error:
        return str(error)
    return ""
