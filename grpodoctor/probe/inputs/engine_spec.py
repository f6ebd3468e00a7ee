"""What the user writes for an engine: `vllm:MODEL?dtype=bfloat16&tensor_parallel_size=2`."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from grpodoctor.errors import ConfigError

ENGINES = {
    "vllm": "vLLM in process",
    "openai_server": "a server that speaks OpenAI's completions: `vllm serve`, SGLang",
    "transformers": "transformers, one process",
    "fsdp": "transformers under torchrun: FSDP2, DTensor tensor parallel",
    "llama_cpp": "llama.cpp, GGUF files",
    "recorded": "log-probabilities that a training run has saved",
    "program": "an engine program of your own: program:PATH/engine.py?model=…",
}
"""The engines by name; each is the program `probes/engine_<name>.py`, save the last."""

_OURS = ("python", "timeout", "launcher", "processes")
"""Options that are for the launch and not for the engine."""
_TIMEOUT_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """An engine with its model and settings.

    Equal specs are the same engine: what one has sampled or scored need not be done again.
    """

    engine: str
    model: str
    """A directory, a name on the hub, a URL for a server, a run for `recorded`."""
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """What the engine's program is told."""
    python: str = ""
    """The Python that has the engine; empty for the one that runs the probe."""
    timeout: float = _TIMEOUT_SECONDS
    """Seconds without any sign of life, a line of output or a shard, after which it is ended."""
    launcher: str = ""
    """What stands before the program's path; empty for the Python, or torchrun where needed."""
    processes: int = 1
    """On this machine, under torchrun."""

    @classmethod
    def parse(cls, text: str) -> EngineSpec:
        """Read `engine:model?option=value&…`.

        Raises:
            ConfigError: if it has no known engine, no model, an option without a value, or one
                twice.
        """
        name, colon, rest = text.partition(":")
        if not colon or name not in ENGINES:
            raise ConfigError(
                f"{text[:60]!r} does not begin with an engine",
                remedy=f"write ENGINE:MODEL with one of {', '.join(ENGINES)}",
            )
        model, _, query = rest.partition("?")
        if not model:
            raise ConfigError(f"{text[:60]!r} names no model", remedy=f"write {name}:MODEL")
        return cls.of(name, model, _read_options(text, query))

    @classmethod
    def of(
        cls, engine: str, model: str, options: Mapping[str, str | int | float | bool]
    ) -> EngineSpec:
        """A spec from options that hold those of the launch as well; `~` is the user's home.

        Raises:
            ConfigError: if one of these has a value that cannot be.
        """
        ours = {name: options[name] for name in _OURS if name in options}
        theirs = {name: _at_home(options[name]) for name in sorted(options) if name not in _OURS}
        try:
            timeout = float(ours.get("timeout", _TIMEOUT_SECONDS))
            processes = int(ours.get("processes", 1))
        except (ValueError, OverflowError) as error:
            raise ConfigError(
                f"timeout and processes are numbers: {error}", where=f"{engine}:{model}"
            ) from error
        if not timeout > 0 or processes < 1:
            raise ConfigError("timeout and processes are above zero", where=f"{engine}:{model}")
        return cls(
            engine,
            _at_home(model),
            theirs,
            str(ours.get("python", "")),
            timeout,
            str(ours.get("launcher", "")),
            processes,
        )

    def with_options(self, **changes: str | int | float | bool | None) -> EngineSpec:
        """The same engine with some options set, or taken out where None."""
        merged = {**self.options, **changes}
        kept = {name: value for name, value in sorted(merged.items()) if value is not None}
        return replace(self, options=kept)

    @property
    def is_record(self) -> bool:
        """Whether it has been recorded what it says, and nothing is computed."""
        return self.engine == "recorded"

    @property
    def label(self) -> str:
        """Short, for a table: the engine, the model's last name and the options."""
        name = Path(self.model).name or self.model
        shown = [f"{key}={value}" for key, value in self.options.items()]
        if self.processes > 1:
            shown.append(f"processes={self.processes}")
        return f"{self.engine}:{name}" + (f"?{'&'.join(shown)}" if shown else "")

    @property
    def key(self) -> str:
        """A hash of all that bears on what the engine answers; 16 hexadecimal digits."""
        facts: dict[str, Any] = {
            "engine": self.engine,
            "model": self.model,
            "options": dict(self.options),
            "python": self.python,
            "launcher": self.launcher,
            "processes": self.processes,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _read_options(text: str, query: str) -> dict[str, str | int | float | bool]:
    try:
        # A plus is a plus: it stands in paths, and nobody writes a blank as one here.
        kept = query.replace("+", "%2B")
        pairs = parse_qsl(kept, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as error:
        raise ConfigError(
            f"the options of {text[:60]!r} cannot be read: {error}",
            remedy="write them as ?name=value&name=value",
        ) from error
    options = {name: _typed(value) for name, value in pairs}
    if len(options) < len(pairs):
        often, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ConfigError(
            f"{often[:60]}= stands twice in {text[:60]!r}",
            remedy="for several engines give --sampler or --learner several times, or a TOML file",
        )
    return options


def _at_home(value: Any) -> Any:
    """A text that begins with `~` as the path that is meant: quoted, no shell has seen to it."""
    is_home = isinstance(value, str) and value.startswith("~")
    return os.path.expanduser(value) if is_home else value  # noqa: PTH111 - a Path drops "./"


def _typed(value: str) -> str | int | float | bool:
    """Numbers and truth values as such; everything else is text."""
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
