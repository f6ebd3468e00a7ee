"""Stubs of a judge: the same reply to every request of a user's reward function.

A function reaches its judge through a client library, or through a helper of its own module. Both
are global names of the module, and are replaced for one call.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_CLIENTS = frozenset({
    "openai", "anthropic", "litellm", "groq", "together", "mistralai", "ollama", "cohere",
    "requests", "httpx", "aiohttp",
})  # fmt: skip
"""Packages through which judges are called."""
_JUDGE = re.compile(
    r"judge|critic|llm|gpt|claude|(?:^|_)(?:ask|query|call|chat|complete)_?(?:model|api|server|$)",
    re.IGNORECASE,
)
"""Names of helpers that return a judge's reply."""
_TEXTS = frozenset({"content", "text", "output_text", "response", "completion"})
"""Attributes and keys of a reply that are its text."""


class StubReply:
    """Stands for a client and for its replies; every text in it is the same."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in {"status_code", "status"}:
            return 200
        return self._text if name in _TEXTS else self

    def __getitem__(self, key: object) -> Any:
        return self._text if key in _TEXTS else self

    def get(self, key: object, default: object = None) -> Any:  # noqa: ARG002 - as a dict's
        """As a dictionary."""
        return self[key]

    def __call__(self, *_: object, **__: object) -> StubReply:
        """As a method or a class of the client."""
        return self

    def __await__(self) -> Generator[None, None, StubReply]:
        yield from ()
        return self

    def __enter__(self) -> StubReply:
        return self

    def __exit__(self, *_: object) -> None: ...

    async def __aenter__(self) -> StubReply:
        return self

    async def __aexit__(self, *_: object) -> None: ...


@contextmanager
def stubbed_judge(function: Callable[..., Any], reply: str) -> Iterator[bool]:
    """Replace the clients of a function's module, or else its helpers that ask a judge.

    Yields:
        Whether there is anything to replace.
    """
    names = getattr(inspect.unwrap(function), "__globals__", {})
    stubs: dict[str, Any] = {
        name: StubReply(reply) for name, value in names.items() if _is_client(value)
    }
    stubs = stubs or {
        name: _helper(value, reply)
        for name, value in names.items()
        if inspect.isfunction(value)
        and value is not function
        and value.__module__ == names.get("__name__")
        and _JUDGE.search(name)
    }
    kept = {name: names[name] for name in stubs}
    names.update(stubs)
    try:
        yield bool(stubs)
    finally:
        names.update(kept)


def _is_client(value: object) -> bool:
    module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    module = module or type(value).__module__
    return isinstance(module, str) and module.partition(".")[0] in _CLIENTS


def _helper(function: Callable[..., Any], reply: str) -> Callable[..., Any]:
    async def answer_later(*_: object, **__: object) -> str:
        return reply

    def answer(*_: object, **__: object) -> str:
        return reply

    return answer_later if inspect.iscoroutinefunction(function) else answer
