"""Loading a model's tokenizer, and rendering conversations in its chat template."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from grpodoctor.errors import MissingExtraError, ModelError
from grpodoctor.support.files.regular_files import read_regular

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def render_ids(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]],
    *,
    generation: bool = False,
) -> list[int]:
    """The token ids of a conversation in the tokenizer's chat template.

    Args:
        tokenizer: has a chat template.
        messages: the conversation.
        generation: add the generation prompt.

    Raises:
        ModelError: if the template refuses the conversation.
    """
    text = render_text(tokenizer, messages, generation=generation)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def render_text(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]],
    *,
    generation: bool = False,
    **options: Any,
) -> str:
    """A conversation in the tokenizer's chat template.

    Args:
        tokenizer: has a chat template.
        messages: the conversation.
        generation: add the generation prompt.
        **options: passed to `apply_chat_template`.

    Raises:
        ModelError: if the template refuses the conversation.
    """
    from jinja2 import TemplateError

    try:
        text = tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            add_generation_prompt=generation,
            tokenize=False,
            **options,
        )
    except (TemplateError, TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise ModelError(
            f"the chat template fails: {' '.join(str(error).split())[:200]}",
            where=str(tokenizer.name_or_path),
            remedy="fix chat_template in tokenizer_config.json",
        ) from error
    return str(text)


def load_tokenizer(model: Path) -> PreTrainedTokenizerBase:
    """Load a model's tokenizer, without downloading anything or running code of the model.

    Raises:
        MissingExtraError: if transformers is not installed.
        ModelError: if the tokenizer is missing or damaged.
    """
    if not model.is_dir():
        raise ModelError(
            "the model directory does not exist",
            where=str(model),
            remedy="pass the directory of a downloaded model",
        )
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise MissingExtraError("grpodoctor preflight", "torch") from error
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            model, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # the tokenizers package raises this class for damaged files
        raise ModelError(
            f"the tokenizer does not load: {' '.join(str(error).split())[:200]}",
            where=str(model),
            remedy="save the tokenizer in the model directory",
        ) from error
    if not isinstance(tokenizer.chat_template, str | dict | None):
        raise ModelError(
            "the chat template is not text",
            where=str(model),
            remedy="fix chat_template in tokenizer_config.json",
        )
    tokenizer.model_max_length = sys.maxsize  # no warnings about long prompts: DAT106 reports them
    return tokenizer


def read_json_config(path: Path) -> dict[str, Any]:
    """A JSON object from the model directory; empty if the file does not exist.

    Raises:
        ModelError: if the file is damaged or holds something else.
    """
    if not path.exists():
        return {}
    try:
        config = orjson.loads(read_regular(path))
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except ValueError as error:
        raise ModelError(f"not JSON: {error}", where=str(path)) from error
    if not isinstance(config, dict):
        raise ModelError("not a JSON object", where=str(path))
    return config
