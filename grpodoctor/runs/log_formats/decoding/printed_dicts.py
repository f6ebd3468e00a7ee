"""Dicts in console text, on one line or over several, with dicts inside or without."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from grpodoctor.runs.log_formats.decoding.console_lines import starts_verl_row
from grpodoctor.runs.log_formats.decoding.printed_numbers import (
    WRAPPED,
    ParsedLine,
    parse_wrapped,
    to_number,
)
from grpodoctor.support.numbers import parse_number

_DICT_PAIR = re.compile(
    rf"""(['"])((?:(?!\1).){{1,160}})\1\s*:\s*['"]?{WRAPPED}['"]?\s*(?=[,}}\n])"""
)
_DICT_KEY = re.compile(r"""(['"])(?:(?!\1).){1,160}\1\s*:""")
_DICT_STEP = re.compile(
    r"\b(?:global[ _])?(step|rollout|iteration|perf|eval)[ :=#]+(\d{1,12})\b", re.IGNORECASE
)
_DICT_BEGINS = re.compile(r"""\{\s*(?:$|['"][^'"]{1,160}['"]\s*:)""")
_DICT_LINE = re.compile(r"""\s*(?:['"{}\[\](),]|.*[,}\]]\s*$)""")

_NARROWEST_TERMINAL = 60
"""Columns of a terminal that breaks a row; lines of a dict that is printed in columns are shorter.
"""

_TRIMMED = 2
"""Spaces that a terminal removes at the end of a line."""


def parse_dict(text: str) -> ParsedLine | None:
    """Parse a dict of numbers, as transformers, OpenRLHF, slime and SkyRL print it."""
    start = text.find("{")
    end = text.rfind("}") if start >= 0 else -1
    if end < start or start < 0:
        return None
    body = text[start : end + 1]
    if ":" not in body:
        return None
    if body.count("{") > 1:
        values = parse_nested_dict(body)
        if is_settings(values):
            return None
        pairs = {
            key.replace(".", "/") if "/" not in key else key: float(value)
            for key, value in values.items()
            if _is_number(value)
        }
    else:
        pairs = {key: to_number(value) for _, key, value in _DICT_PAIR.findall(body)}
        if len(pairs) * 4 < 3 * len(_DICT_KEY.findall(body)):
            return None  # settings or output of a reward function: mostly not numbers
    if len(pairs) < 2 or pairs.keys() <= _SAMPLING_KEYS:
        return None
    pairs = _per_response(pairs)
    step = _DICT_STEP.search(text[max(0, start - 200) : start])
    if step is None:
        return ParsedLine(pairs)
    return ParsedLine(pairs, int(step[2]), step[1].lower())


def _per_response(pairs: dict[str, float]) -> dict[str, float]:
    """The pairs, with total rewards of a batch as means if the number of responses is among them.

    `total_num: 256, total_reward: 144` is a mean of 0.5625. The key stays, since the same script
    may print the `reward` of a single response as an example.
    """
    count = pairs.get("total_num", 0)
    totals = [key for key in pairs if key.startswith("total_") and "reward" in key]
    if not count or not all(0 <= pairs[key] <= count for key in totals):
        return pairs
    return pairs | {key: pairs[key] / count for key in totals}


_SAMPLING_KEYS = frozenset(
    ("n", "logprobs", "prompt_logprobs", "max_tokens", "min_tokens", "max_new_tokens",
     "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty",
     "frequency_penalty", "seed", "num_beams", "eos_token_id", "pad_token_id", "bos_token_id")
)  # fmt: skip
"""Sampling parameters, which trainers print as a dict of numbers."""


_TOKEN = re.compile(
    r"""(?P<quote>['"])(?P<text>(?:(?!(?P=quote)).){0,400})(?P=quote)(?P<colon>\s*:)?"""
    rf"""|(?P<brace>[{{}}\[\]])|(?P<number>{WRAPPED})"""
    r"""|(?P<word>\b(?:True|False|true|false)\b)"""
)
_MAX_DEPTH = 32


def parse_nested_dict(
    text: str,
    outer: tuple[str, ...] = (),
    columns: dict[int, tuple[str, ...]] | None = None,
) -> dict[str, float | int | str | bool]:
    """Parse a printed dict that contains dicts, with dotted keys; lists are skipped.

    A line that is missing in the middle loses only its own pairs.

    Args:
        text: the dict.
        outer: keys of the dicts around it.
        columns: receives the outer keys of the entries that begin in each column.
    """
    values: dict[str, float | int | str | bool] = {}
    path: list[str] = [*outer]
    key, lists = "", 0
    for token in _TOKEN.finditer(text):
        if token["brace"]:
            lists = max(0, lists + {"[": 1, "]": -1}.get(token["brace"], 0))
            if lists == 0 and token["brace"] == "{" and len(path) < _MAX_DEPTH:
                path.append(key)
            elif lists == 0 and token["brace"] == "}" and path:
                path.pop()
            key = ""
        elif lists:
            continue
        elif token["colon"]:
            key = token["text"]
            if columns is not None:
                columns[token.start() - text.rfind("\n", 0, token.start()) - 1] = tuple(path)
        elif key:
            values[".".join([*filter(None, path), key])] = _scalar(token)
            key = ""
    return values


def _scalar(token: re.Match[str]) -> float | int | str | bool:
    if token["word"]:
        return token["word"].lower() == "true"
    if token["quote"]:
        text = token["text"]
        plain = parse_number(text)
        return text if plain is None else plain
    text = token["number"].rstrip(",")
    if text.lstrip("-").isdecimal() and len(text) < 20:
        return int(text)
    value = parse_wrapped(text)
    return text if value is None else value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_settings(pairs: Mapping[str, object]) -> bool:
    """Whether a printed dict contains the settings of a run instead of the metrics of a step."""
    words = sum(not _is_number(value) for value in pairs.values())
    return words >= 3 and 4 * words >= len(pairs)


def starts_dict(text: str) -> bool:
    """Whether a dict starts in this line and does not end in it."""
    if "{" not in text or len(text) > 4000 or text.count("{") <= text.count("}"):
        return False
    return _DICT_BEGINS.search(text) is not None


def continues_dict(text: str) -> bool:
    """Whether a line can belong to a dict that is printed over several lines."""
    return _DICT_LINE.match(text) is not None and not starts_verl_row(text)


def is_wrapped(before: Sequence[str], text: str) -> bool:
    """Whether a line continues a dict that was copied from a terminal, which breaks lines anywhere.

    Args:
        before: the lines of the dict so far.
        text: the next line.
    """
    if not before or "{" in text:
        return False
    width = max(map(len, before))
    full = all(width - len(line) <= _TRIMMED for line in before)
    return full and width >= _NARROWEST_TERMINAL and len(text) <= width + _TRIMMED
