"""Tokenizes prompts with transformers, for engines without their own tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contract import RefusalError


def load(name: str, trust: bool) -> Any:
    """Load a tokenizer.

    Args:
        name: a directory, or a name on the hub.
        trust: whether its own code may run.

    Raises:
        RefusalError: if it cannot be loaded.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=trust)
    except (OSError, ValueError) as error:
        raise RefusalError(
            f"the tokenizer {name[:80]!r} cannot be loaded: {' '.join(str(error).split())[:200]}",
            "name a directory that has one",
        ) from error


def encoded(tokenizer: Any, prompt: Mapping[str, Any]) -> list[int]:
    """Token ids of a text, with the tokenizer's special tokens, or of messages in the template.

    Raises:
        RefusalError: if the tokenizer has no chat template for messages, the template rejects them,
            or there are no ids.
    """
    if "messages" in prompt:
        ids = list(tokenizer.encode(_rendered(tokenizer, prompt), add_special_tokens=False))
    else:
        ids = list(tokenizer.encode(prompt["text"]))
    if not ids:  # for example the empty tokenizer that transformers creates if there is none
        raise RefusalError(
            "the tokenizer returns no tokens for a prompt",
            "check that the model's directory has tokenizer.json, or give prompts as ids",
        )
    return ids


def _rendered(tokenizer: Any, prompt: Mapping[str, Any]) -> str:
    """Messages rendered by the tokenizer's chat template."""
    if not getattr(tokenizer, "chat_template", True):  # some tokenizers lack the attribute
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
            f"the chat template rejects a prompt: {' '.join(str(error).split())[:200]}",
            "check the roles of its messages, or give prompts as text",
        ) from error
