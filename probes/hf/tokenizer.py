"""Prompts to ids by transformers, for engines that have no tokenizer of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contract import RefusalError


def load(name: str, trust: bool) -> Any:
    """A tokenizer.

    Args:
        name: a directory, or a name on the hub.
        trust: whether code that comes with it may run.

    Raises:
        RefusalError: if there is none.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=trust)
    except (OSError, ValueError) as error:
        raise RefusalError(
            f"{name[:80]!r} gives no tokenizer: {' '.join(str(error).split())[:200]}",
            "name a directory that holds one",
        ) from error


def encoded(tokenizer: Any, prompt: Mapping[str, Any]) -> list[int]:
    """The ids of a text, with what the tokenizer puts before it; of messages, in their template.

    Raises:
        RefusalError: for messages where the tokenizer has no template, or one that does not take
            them; and where it makes no ids.
    """
    if "messages" in prompt:
        ids = list(tokenizer.encode(_written(tokenizer, prompt), add_special_tokens=False))
    else:
        ids = list(tokenizer.encode(prompt["text"]))
    if not ids:  # as the one that transformers makes up where a model has none
        raise RefusalError(
            "the tokenizer makes no token of a prompt",
            "look whether the model's directory has its tokenizer.json, or give prompts as ids",
        )
    return ids


def _written(tokenizer: Any, prompt: Mapping[str, Any]) -> str:
    """Messages in the tokenizer's template."""
    if not getattr(tokenizer, "chat_template", True):  # some have the method and no such attribute
        raise RefusalError("the tokenizer has no chat template", "give prompts as text or ids")
    import jinja2

    try:
        return str(
            tokenizer.apply_chat_template(
                prompt["messages"], add_generation_prompt=True, tokenize=False
            )
        )
    except (ValueError, TypeError, KeyError, jinja2.TemplateError) as error:
        raise RefusalError(
            f"the chat template does not take a prompt: {' '.join(str(error).split())[:200]}",
            "look at the roles of its messages, or give prompts as text",
        ) from error
