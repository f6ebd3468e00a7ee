"""Rows from JSON objects: nested metrics, the type of a row, its step."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from grpodoctor.frameworks.row_keys import MOST_KEYS, RowKeys, is_evaluation
from grpodoctor.runs.log_formats.base import EVALUATION, PART_OF_STEP, LogRow
from grpodoctor.runs.log_formats.decoding.reward_lists import REWARD_LISTS, group_numbers
from grpodoctor.support.json_text import loads
from grpodoctor.support.numbers import parse_number

_CONTAINERS = frozenset({"data", "metrics", "logs", "log", "stats", "scalars", "values"})
"""Keys under which loggers nest the metrics of a row, such as `data` of verl's file logger."""

_NOT_METRICS = re.compile(r"(?:.*_)?(?:args|config|hparams|settings|meta|metadata|env)")
"""Keys of nested objects without metrics."""

_METRICS = re.compile(r"(?:.*_)?(?:metrics|stats|logs|scalars)")
"""Keys whose text may be a dict of metrics."""

_LONGEST_DICT = 20_000
"""Characters of such a text."""

_LOGGED = "data"
"""The object in which verl's file logger nests the metrics of a step."""

_ALWAYS = 10
"""Rows of a key that are all numbers, from which on null has no meaning under the key. A key that
is measured now and then, such as every tenth step, is null in one of them."""

_MOST_LAYOUTS = 256
"""Sets of names that are remembered."""

_EXACT = 2**53
"""Smaller integers are doubles."""

_MAX_DEPTH = 3
"""Levels of nested objects that are read."""

_EVENT_KEYS = ("type", "event", "event_type", "row_type", "log_type", "phase", "split", "mode",
               "stage", "kind")  # fmt: skip
"""Keys that state which part of a step a row describes."""

_NOT_STEPS = frozenset(
    {"config", "args", "hparams", "hyperparameters", "settings", "meta", "metadata", "init",
     "start", "summary", "final", "end", "done", "finish", "finished"}
)  # fmt: skip
"""Names of rows about the whole run, whose numbers are no measurements of a step."""
_SETTINGS = _NOT_STEPS - {"summary", "final", "end", "done", "finish", "finished"}

_PARTS = frozenset(
    {"train", "training", "rollout", "rollouts", "generation", "generate", "sample", "sampling",
     "update", "optimizer", "optimizer_step", "learner", "actor", "critic", "policy", "reward",
     "perf", "timing", "completion", "response"}
)  # fmt: skip
"""Names of a step's parts. Other names, such as those of a curriculum's stages, may restart the
count of steps."""

_EVALUATION_FLAGS = ("is_eval", "is_validation", "eval", "evaluation", "validation")
"""Keys that are true in the rows of an evaluation."""

_FAMILY_STEPS = {
    "rollout/step": "rollout/step",
    "train/step": "train/step",
    "eval/step": EVALUATION,
}
"""Keys of steps that count differently in the rows of one log, and their counters."""

_NOT_RIVALS = frozenset({"_step", "eval/step", "system/step", "system/global_step"})
"""Keys of steps that count something else, so they never replace another key."""

_CALLS = "_step"
"""W&B's own count. It counts calls of the logger, so it is a step only where no other key is."""

_VALUE = "value"
_NAMES = ("metric", "metric_name", "name", "key", "tag")
"""Keys of the name of `value`, where each row has one value: `{"metric": "reward", "value": 1}`."""

EPISODE = "episode"
"""The step if no other key is. It is a number of the row as well."""
EPISODE_LENGTH = "steps"
"""A key of the step that is as often the length of an episode."""


class _Layout(NamedTuple):
    """What the names of a row's values say, whatever the values are."""

    steps: tuple[str, ...]
    """The names that may hold the step, the preferred ones first."""
    times: tuple[str, ...]
    not_metrics: tuple[str, ...]
    """All names of steps and times."""
    flags: tuple[str, ...]
    """The names that mark the row of an evaluation."""
    has_event: bool
    """Whether a name holds the row's type."""
    has_rewards: bool
    """Whether a name holds lists of rewards."""
    rivals: tuple[str, ...]
    """The names that may hold the step if the values must decide; empty if the first one does. In
    a row with a type, also its only name: the rows of other types may lack it."""
    name: str
    """The name that holds the key of a row's only value; empty if rows have several values."""
    evaluated: tuple[str, ...]
    """The names of held-out results, if there are several."""
    own_steps: tuple[str, ...]
    """The names that hold the step, if the row has the logger's count of calls as well."""


class RowDecoder:
    """Makes rows from the parsed objects of one log.

    Args:
        keys: keys of the step and the time.
    """

    def __init__(self, keys: RowKeys) -> None:
        self._keys = keys
        self._whole: Counter[tuple[str, ...]] = Counter()
        """Rows without a broken number, by the names of their values."""
        self._sparse: set[str] = set()
        """Keys that were null before they had numbers in many rows."""
        self._layouts: dict[tuple[str, ...], _Layout] = {}
        """By the names of a row in order; most logs have a few sets of names."""
        self._step_key = ""
        """The key of the latest step."""
        self._latest: int | None = None
        """The step of the latest row that has a step besides the logger's count of calls."""
        self._names_at_latest: set[tuple[str, ...]] = set()
        """The names of the rows with that step."""
        self._parts: set[tuple[str, ...]] = set()
        """The names of rows that a step has several of: one per update."""

    def row(self, data: Mapping[str, Any]) -> LogRow:
        """Make a row.

        Raises:
            ValueError: if it has too many keys, or its step is too large.
        """
        if len(data) > MOST_KEYS:
            raise ValueError(f"{len(data)} keys")
        types = set(map(type, data.values()))
        if str in types and (printed := _printed_dicts(data)):
            data = {**data, **printed}
            types.add(dict)
        flat = _flattened(data) if dict in types else data
        names = tuple(flat)
        layout = self._layouts.get(names) or self._layout(names)
        numbers, texts = _numbers_and_texts(flat)
        if isinstance(data.get(_LOGGED), dict):
            self._add_broken_numbers(flat, names, numbers)
        event = _event_name(texts) if layout.has_event else ""
        if event in _NOT_STEPS:
            return LogRow(None, {}, 0.0, texts)
        if layout.has_rewards:
            numbers = {**group_numbers(flat), **numbers}
        if layout.name and _VALUE in numbers and layout.name in texts:
            numbers[texts[layout.name]] = numbers.pop(_VALUE)
        step_key, step = self._step_of(flat, layout.steps)
        _drop_unmeasured(flat, layout.evaluated, numbers)
        time = next((numbers[key] for key in layout.times if key in numbers), 0.0)
        counter = _event_of(event, layout.flags, numbers) or _FAMILY_STEPS.get(step_key, "")
        if step_key in layout.own_steps:
            counter = counter or self._part(step, names)
        for key in layout.not_metrics:
            numbers.pop(key, None)
        if counter == EVALUATION:
            numbers = {
                _as_evaluation(key): value
                for key, value in numbers.items()
                if key not in _EVALUATION_FLAGS
            }
        counts = {key: flat[key] for key in layout.rivals} if layout.rivals else {}
        return LogRow(step, numbers, time, texts, counter, counts)

    def _step_of(self, values: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[str, int | None]:
        """The key and the number of a row's step.

        If rows of updates have a step, an evaluation that has only the count of the logger's calls
        belongs to the latest step.

        Raises:
            ValueError: if the step is too large, and earlier ones were not.
        """
        key, step = _step_of(values, keys)
        if step is not None:
            self._step_key = key
        elif (number := parse_number(values.get(self._step_key))) and number >= _EXACT:
            # Numbering this row by its place would put it among the first steps.
            raise ValueError(f"the step {number:g} is too large to be exact")
        return key, self._latest if key == _CALLS and self._latest is not None else step

    def _part(self, step: int | None, names: tuple[str, ...]) -> str:
        """The counter of a row that describes one of several updates of its step."""
        names = tuple(sorted(names))
        if step != self._latest:
            self._latest, self._names_at_latest = step, set()
        elif names in self._names_at_latest:
            self._parts.add(names)
        self._names_at_latest.add(names)
        return PART_OF_STEP if names in self._parts else ""

    def _add_broken_numbers(
        self, flat: Mapping[str, Any], names: tuple[str, ...], numbers: dict[str, float]
    ) -> None:
        """Add NaN for each null under a key that always had a number.

        JSON has no NaN, so the logger of verl writes null. It writes the metrics of a step as they
        are. In the rows of a script, a null may also mean that a step was skipped.
        """
        missing = {key for key, value in flat.items() if value is None} - self._sparse
        if missing and self._whole[names] >= _ALWAYS:
            numbers.update(dict.fromkeys(missing, math.nan))
            return
        self._sparse |= missing
        self._whole[names] += 1

    def _layout(self, names: tuple[str, ...]) -> _Layout:
        known = frozenset(names)
        steps = tuple(key for key in self._keys.step if key in known)
        has_event = not known.isdisjoint(_EVENT_KEYS)
        evaluated = tuple(key for key in names if is_evaluation(key))
        rivals = _rivals(steps, known)
        has_own = _CALLS in steps and not rivals
        layout = _Layout(
            steps=steps,
            times=tuple(key for key in self._keys.time if key in known),
            not_metrics=tuple(key for key in names if key in self._keys.all),
            flags=tuple(key for key in _EVALUATION_FLAGS if key in known),
            has_event=has_event,
            has_rewards=not known.isdisjoint(REWARD_LISTS),
            rivals=rivals or (steps[:1] if has_event else ()),
            name=next((key for key in _NAMES if key in known), "") if _VALUE in known else "",
            evaluated=evaluated if len(evaluated) > 1 else (),
            own_steps=steps[: steps.index(_CALLS)] if has_own else (),
        )
        if len(self._layouts) >= _MOST_LAYOUTS:
            self._layouts.clear()
            self._whole.clear()
        self._layouts[names] = layout
        return layout


def _drop_unmeasured(
    values: Mapping[str, Any], names: tuple[str, ...], numbers: dict[str, float]
) -> None:
    """Leave out held-out results of 0 in a row where another of them is null.

    A script that evaluates every tenth step writes null or 0 in the others.
    """
    if names and any(values[key] is None for key in names) and not any(map(numbers.get, names)):
        for key in names:
            numbers.pop(key, None)


def _rivals(steps: tuple[str, ...], known: frozenset[str]) -> tuple[str, ...]:
    """The names that may hold the step, if the first of them need not do."""
    rivals = [key for key in steps if key not in _NOT_RIVALS]
    if not rivals or rivals[0] != steps[0]:
        return ()
    if EPISODE in known:
        rivals.append(EPISODE)
    return tuple(rivals) if len(rivals) > 1 or rivals[0] == EPISODE_LENGTH else ()


def lists_settings(data: Mapping[str, Any]) -> bool:
    """Whether the name of a row's type states that it lists the settings of the run."""
    return _event_name(data) in _SETTINGS


def _numbers_and_texts(values: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, str]]:
    """The values that are or spell a number, and those that are texts."""
    numbers: dict[str, float] = {}
    texts: dict[str, str] = {}
    for key, value in values.items():
        if type(value) is float:  # the common case; a function call would double its cost
            numbers[key] = value
            continue
        if type(value) is int and -_EXACT < value < _EXACT:
            numbers[key] = float(value)
            continue
        number = parse_number(value)
        if number is not None:
            numbers[key] = number
        if isinstance(value, str):
            texts[key] = value
    return numbers, texts


def _flattened(data: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """Give the values of nested objects keys with slashes; outer keys take precedence."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if not isinstance(value, dict):
            flat[prefix + key] = value
        elif depth < _MAX_DEPTH and not _NOT_METRICS.fullmatch(key):
            inner = prefix if key in _CONTAINERS else f"{prefix}{key}/"
            for name, each in _flattened(value, inner, depth + 1).items():
                flat.setdefault(name, each)
    if len(flat) > MOST_KEYS:
        raise ValueError(f"{len(flat)} keys")
    return flat


def _printed_dicts(data: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics that a row holds as the text of a dict: `"metrics": "{'reward': 0.5}"`."""
    printed: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, str) and value.startswith("{") and _METRICS.fullmatch(key):
            pairs = _parsed_dict(value)
            if pairs:
                printed[key] = pairs
    return printed


def _parsed_dict(text: str) -> dict[str, Any]:
    """The dict that a text spells in JSON or in Python; empty if it spells none."""
    if len(text) > _LONGEST_DICT:
        return {}
    try:
        value = ast.literal_eval(text) if "'" in text else loads(text.encode())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    is_named = isinstance(value, dict) and all(isinstance(key, str) for key in value)
    return value if is_named else {}


def _step_of(values: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[str, int | None]:
    """The key and the number of a row's step."""
    for key in keys:
        step = parse_step(values[key])
        if step is not None:
            return key, step
    return "", None


def _event_name(values: Mapping[str, Any]) -> str:
    """The name of a row's type, in lower case; empty without one."""
    if values.keys().isdisjoint(_EVENT_KEYS):
        return ""
    name = next(values[key] for key in _EVENT_KEYS if key in values)
    return name[:40].lower() if isinstance(name, str) else ""


def _event_of(name: str, flags: tuple[str, ...], numbers: Mapping[str, float]) -> str:
    """The part of a step that a row of a type describes; empty if it does not say so.

    Args:
        name: the type; empty if the row has none.
        flags: keys that are 1 in the rows of an evaluation.
        numbers: the row's numbers.
    """
    if any(numbers.get(flag) == 1 for flag in flags):
        return EVALUATION
    if name and is_evaluation(name):
        return EVALUATION
    return name if name in _PARTS else ""


def _as_evaluation(key: str) -> str:
    return key if is_evaluation(key) else f"eval/{key}"


def parse_step(value: object) -> int | None:
    """Parse a step, also from `10/100`, as ms-swift writes it."""
    if type(value) is int and 0 <= value < _EXACT:  # the common case
        return value
    if isinstance(value, str) and len(value) <= 40:
        value = value.partition("/")[0]
    number = parse_number(value)
    if number is None or not 0 <= number < _EXACT or number != int(number):
        return None
    return int(number)
