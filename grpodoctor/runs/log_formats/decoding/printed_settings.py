"""The settings of a run: as one dict over many lines, one argument a line, or by its engine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from grpodoctor.frameworks.row_keys import MOST_KEYS
from grpodoctor.frameworks.sampler_precision import PRINTED_QUANTIZATION
from grpodoctor.runs.log_formats.decoding.printed_dicts import is_settings, parse_nested_dict
from grpodoctor.support.numbers import parse_number

_ENTRY = re.compile(r"""(\s{0,400})(?:'[^'"]{1,160}'|"[^'"]{1,160}")\s*:\s*\{""")
_MOST_COLUMNS = 400
_ARGUMENT = re.compile(r"\s{0,8}([A-Za-z_]\w{0,80}) (\.{1,48}) (.*)")
_ARGUMENT_COLUMNS = 48
"""Characters of an argument's name and the dots behind it, as Megatron-LM prints its arguments."""
_ENGINE = re.compile(r"\bLLM engine \([^()]{1,80}\) with config:|\bServerArgs\(")
_QUANTIZATION = re.compile(r"""[ ,(]quantization=['"]?([\w-]{1,40})""")
_PLAIN_VALUES = {"True": True, "False": False, "None": None}


def parse_engine(text: str) -> tuple[str, str] | None:
    """Parse how the weights are quantized from the line with which vLLM or SGLang starts.

    vLLM prints `Initializing a V1 LLM engine (v0.11) with config: model=…, quantization=fp8, …`,
    SGLang `server_args=ServerArgs(model_path=…, quantization='fp8', …`.
    """
    if "quantization=" not in text or _ENGINE.search(text) is None:
        return None
    match = _QUANTIZATION.search(text)
    return (PRINTED_QUANTIZATION, match[1]) if match else None


def parse_argument(text: str) -> tuple[str, Any] | None:
    """Parse `  micro_batch_size ................................ 4`, a setting of Megatron-LM."""
    match = _ARGUMENT.fullmatch(text) if " ..." in text else None
    if match is None or len(match[1]) + len(match[2]) != _ARGUMENT_COLUMNS:
        return None
    value = match[3].strip()
    if value in _PLAIN_VALUES:
        return match[1], _PLAIN_VALUES[value]
    if value.lstrip("-").isdecimal() and len(value) < 20:
        return match[1], int(value)
    number = parse_number(value)
    return match[1], value if number is None else number


class PrintedSettings:
    """Collects printed settings; what was printed first takes precedence.

    Another process may print into the middle of a dict. The rest then begins with an entry whose
    outer keys were printed earlier. Python prints the entries of one dict in one column, so the
    column of the entry gives its outer keys. An outermost entry has at most one space before it.
    """

    def __init__(self) -> None:
        self.values: Mapping[str, Any] = {}
        self._outer_keys: dict[int, tuple[str, ...]] = {}
        """Of the dict that was interrupted: the outer keys of the entries in each column."""

    def add_all(self, settings: Mapping[str, Any]) -> None:
        """Add settings that another reader of the log has found."""
        self.values = {**settings, **self.values}

    def add_argument(self, name: str, value: Any) -> None:
        """Add one setting; each process prints it."""
        if name not in self.values and len(self.values) < MOST_KEYS:
            self.values = {**self.values, name: value}

    def add(self, text: str) -> None:
        """Add a printed dict, or the rest of one."""
        entry = _ENTRY.match(text)
        outer: tuple[str, ...] | None = ()
        if entry is None:
            text = text[text.find("{") :]
        elif len(entry[1]) > 1:
            outer = self._outer_keys.get(len(entry[1]))
        if outer is None:
            return
        columns: dict[int, tuple[str, ...]] = {}
        settings = parse_nested_dict(text, outer, columns)
        if not is_settings(settings) or len(self.values) + len(settings) > MOST_KEYS:
            return
        self.values = {**settings, **self.values}
        if text.count("{") > text.count("}"):
            self._outer_keys = dict(list({**self._outer_keys, **columns}.items())[:_MOST_COLUMNS])
