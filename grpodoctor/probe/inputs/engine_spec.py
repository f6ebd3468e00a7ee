"""Engine specs as users write them: `vllm:MODEL?dtype=bfloat16&tensor_parallel_size=2`."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from grpodoctor.errors import ConfigError
from grpodoctor.probe.inputs.engine_kinds import ENGINES, EngineKind
from grpodoctor.support.suggestions import check_name

Option = str | int | float | bool
_LAUNCH_OPTIONS = ("python", "timeout", "launcher", "processes")
"""Options of the launch, which the engine's program does not receive."""
_TIMEOUT_SECONDS = 1800.0
_REMOTE_CODE = "trust_remote_code"
"""The option with which transformers and vLLM import code that a model brings along."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """An engine with its model and settings.

    Equal specs are the same engine, whose answers are reused.
    """

    engine: str
    model: str
    """A directory, a name on the hub, a URL for a server, a run for `recorded`."""
    options: Mapping[str, Option] = field(default_factory=dict)
    """Options of the engine's program."""
    python: str = ""
    """The Python that has the engine; empty for the Python that runs the probe."""
    timeout: float = _TIMEOUT_SECONDS
    """Seconds without a sign of life (a line of output or a shard) after which it is ended."""
    launcher: str = ""
    """A command in front of the program's path; empty for the Python, or torchrun if needed."""
    processes: int = 1
    """Processes on this machine, under torchrun."""

    @classmethod
    def parse(cls, text: str) -> EngineSpec:
        """Parse `engine:model?option=value&…`.

        Raises:
            ConfigError: if the engine is unknown, the model is missing, or an option has no value
                or occurs twice.
        """
        name, colon, rest = text.partition(":")
        if not colon or name not in ENGINES:
            raise ConfigError(
                f"{text[:60]!r} does not start with a known engine",
                remedy=f"write ENGINE:MODEL with one of {', '.join(ENGINES)}",
            )
        model, _, query = rest.partition("?")
        if not model:
            raise ConfigError(f"{text[:60]!r} has no model", remedy=f"write {name}:MODEL")
        return cls.of(name, model, _read_options(text, query))

    @classmethod
    def of(cls, engine: str, model: str, options: Mapping[str, Option]) -> EngineSpec:
        """A spec from options that include those of the launch; `~` is expanded.

        Raises:
            ConfigError: if a launch option has an invalid value, or the engine has no such option.
        """
        known = ENGINES[engine].options
        if known is not None:
            for name in options:
                where = f"{engine}:{model[:80]}"
                check_name(name, known | {*_LAUNCH_OPTIONS}, f"{engine} option", where=where)
        try:
            timeout = float(options.get("timeout", _TIMEOUT_SECONDS))
            processes = int(options.get("processes", 1))
        except (ValueError, OverflowError) as error:
            raise ConfigError(
                f"timeout and processes must be numbers: {error}", where=f"{engine}:{model}"
            ) from error
        if not timeout > 0 or processes < 1:
            raise ConfigError("timeout and processes must be above zero", where=f"{engine}:{model}")
        return cls(
            engine=engine,
            model=_expand_home(model),
            options={
                name: _expand_home(options[name])
                for name in sorted(options)
                if name not in _LAUNCH_OPTIONS
            },
            python=str(options.get("python", "")),
            timeout=timeout,
            launcher=str(options.get("launcher", "")),
            processes=processes,
        )

    def with_options(self, **changes: Option | None) -> EngineSpec:
        """The same engine with some options set, or removed where None."""
        merged = {**self.options, **changes}
        kept = {name: value for name, value in sorted(merged.items()) if value is not None}
        return replace(self, options=kept)

    @property
    def kind(self) -> EngineKind:
        """What the probe knows about this engine."""
        return ENGINES[self.engine]

    @property
    def is_record(self) -> bool:
        """Whether it returns recorded values and computes nothing."""
        return self.kind.is_record

    @property
    def label(self) -> str:
        """A short name for tables: the engine, the last part of the model, and the options."""
        name = Path(self.model).name or self.model
        shown = [f"{key}={value}" for key, value in self.options.items()]
        if self.processes > 1:
            shown.append(f"processes={self.processes}")
        return f"{self.engine}:{name}" + (f"?{'&'.join(shown)}" if shown else "")

    @property
    def key(self) -> str:
        """A hash of all inputs that affect the engine's answers; 16 hexadecimal digits."""
        facts: dict[str, Any] = {
            "engine": self.engine,
            "model": self.model,
            "options": dict(self.options),
            "python": self.python,
            "launcher": self.launcher,
            "processes": self.processes,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def check_remote_code(specs: Iterable[EngineSpec | None], *, is_allowed: bool) -> None:
    """Refuse engines that would run code from a model's directory, unless the user allows it.

    A spec is often copied, and a grid file comes from elsewhere: an option in them is no consent.

    Raises:
        ConfigError: if a spec sets `trust_remote_code` and that is not allowed.
    """
    for spec in specs:
        if spec is not None and spec.options.get(_REMOTE_CODE) and not is_allowed:
            raise ConfigError(
                f"the engine {spec.engine} would run Python code from the model's directory",
                where=f"{_REMOTE_CODE} of {spec.model[:80]}",
                remedy="read that code, then add --trust-remote-code to the command",
            )


def _read_options(text: str, query: str) -> dict[str, Option]:
    try:
        # Keep plus signs, which occur in paths; a query string would read them as spaces.
        escaped = query.replace("+", "%2B")
        pairs = parse_qsl(escaped, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as error:
        raise ConfigError(
            f"the options of {text[:60]!r} cannot be read: {error}",
            remedy="write them as ?name=value&name=value",
        ) from error
    options = {name: _typed(value) for name, value in pairs}
    if len(options) < len(pairs):
        repeated, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ConfigError(
            f"{repeated[:60]}= occurs twice in {text[:60]!r}",
            remedy="for several engines, repeat --sampler or --learner, or use a TOML file",
        )
    return options


def _expand_home(value: Any) -> Any:
    """A text that starts with `~`, expanded: the shell does not expand it in quotes."""
    is_home = isinstance(value, str) and value.startswith("~")
    return os.path.expanduser(value) if is_home else value  # noqa: PTH111 - a Path drops "./"


def _typed(value: str) -> Option:
    """Numbers and booleans as such; everything else as text."""
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
