"""What a preflight examines: the model's files, its tokenizer, the prompts, the reward."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from grpodoctor.errors import DataError, MissingExtraError, ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from grpodoctor.preflight.reference_answers import Gold
    from grpodoctor.preflight.sampled_responses import Bench
    from grpodoctor.probe.inputs.engine_spec import EngineSpec

_MOST_BYTES = 64 << 20
_LANGUAGE_PARTS = ("text_config", "llm_config", "language_config")
"""Where models of several kinds of input keep the settings of their language model."""
_MARK, _NEXT = "grpodoctor", "nextquestion"


@dataclass(frozen=True, slots=True)
class Row:
    """A prompt of the training data."""

    place: str
    """Where it stands in its file."""
    prompt: str
    """Its text; of a conversation, the last message of the user."""
    messages: tuple[Mapping[str, Any], ...] = ()
    """The conversation, where the file has one."""
    answer: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    """All of the row, for reward functions that ask for more."""

    def conversation(self) -> list[dict[str, Any]]:
        """What a chat template is given."""
        if self.messages:
            return [dict(message) for message in self.messages]
        return [{"role": "user", "content": self.prompt}]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a reward function has said of one completion."""

    reward: float
    correct: bool | None = None


class Judge(Protocol):
    """A reward function of the user's, bounded in time."""

    spec: str

    def __call__(self, rows: Sequence[Row], texts: Sequence[str]) -> list[Verdict]:
        """What each completion is worth.

        Raises:
            DataError: if it raises, takes too long, or returns what is no number.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the run is going to be trained, as far as the user has said."""

    group_size: int = 8
    batch_prompts: int = 64
    max_tokens: int = 512
    temperatures: tuple[float, ...] = (1.0,)
    """The first is the run's."""
    samples: int = 8
    """Responses a prompt, to estimate pass rates from."""
    limit: int = 64
    """Prompts that are sampled from."""
    gold_format: str | None = None
    """How a right answer is written, with `{answer}` in it."""
    memory_gib: float | None = None
    """Of one device."""
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Patient:
    """All that there is before the run. What is None was not given."""

    model: Path
    rows: tuple[Row, ...]
    plan: Plan
    held_out: tuple[Row, ...] = ()
    """Prompts that the run is not to be trained on."""
    judge: Judge | None = None
    bench: Bench | None = None
    """Draws responses from an engine, where one was given."""
    templates: Mapping[str, str] = field(default_factory=dict)
    """Candidate prompt templates by name, with `{prompt}` in each."""
    learner: EngineSpec | None = None
    reference: EngineSpec | None = None
    """Of the KL penalty."""
    control: Path | None = None
    """What a run with a learning rate of zero has left."""
    tokenizer: PreTrainedTokenizerBase
    config: Mapping[str, Any]
    """config.json."""
    generation: Mapping[str, Any]
    """generation_config.json; empty where there is none."""

    def with_bench(self, bench: Bench) -> Patient:
        """The same, with an engine that answers; the reward function is not asked anew."""
        changed = replace(self, bench=bench)
        vars(changed).update({name: each for name, each in vars(self).items() if name == "_gold"})
        return changed

    def render(self, row: Row) -> list[int]:
        """The ids of a prompt: in the chat template, where the tokenizer has one."""
        if self.tokenizer.chat_template:
            return ids_of(self.tokenizer, row.conversation(), generation=True)
        return list(self.tokenizer(row.prompt)["input_ids"])

    @property
    def gold(self) -> Gold | None:
        """What the reward function pays for right answers; None without it or without answers.

        Raises:
            DataError: if the reward function fails.
        """
        if isinstance(self._gold, DataError):
            raise self._gold
        return self._gold

    @cached_property
    def _gold(self) -> Gold | DataError | None:
        """Kept if it is an error, too: a function that hangs is not to be waited for again."""
        from grpodoctor.preflight.reference_answers import try_gold

        try:
            return try_gold(self.judge, self.rows, self.plan) if self.judge else None
        except DataError as error:
            return error

    def setting(self, name: str) -> Any:
        """An entry of config.json, or of the language model's part of it; None if it has none."""
        nested = (self.config.get(part) for part in _LANGUAGE_PARTS)
        for entries in (self.config, *nested):
            if isinstance(entries, Mapping) and entries.get(name) is not None:
                return entries[name]
        return None

    def count(self, name: str) -> int | None:
        """An entry of config.json that is a positive whole number."""
        value = self.setting(name)
        return value if type(value) is int and value > 0 else None

    @property
    def declared_ends(self) -> dict[str, tuple[int, ...]]:
        """The end tokens that each file declares."""
        return {
            "tokenizer": _ids(self.tokenizer.eos_token_id),
            "config.json": _ids(self.setting("eos_token_id")),
            "generation_config.json": _ids(self.generation.get("eos_token_id")),
        }

    @property
    def ends(self) -> frozenset[int]:
        """All declared end tokens."""
        return frozenset(each for ids in self.declared_ends.values() for each in ids)

    @cached_property
    def closing(self) -> tuple[str, tuple[int, ...]] | None:
        """Text and tokens between an answer and what follows it; None without a chat template.

        Some templates write nothing there, and end an answer by the next turn's beginning.
        """
        if not self.tokenizer.chat_template:
            return None
        turns = [_turn("user", "1"), _turn("assistant", _MARK), _turn("user", _NEXT)]
        after = text_of(self.tokenizer, turns[:2]).rpartition(_MARK)[2]
        if after.strip():
            return after, self._encoded(after)
        with suppress(ModelError):  # a template of single turns
            after = text_of(self.tokenizer, turns).rpartition(_MARK)[2].partition(_NEXT)[0]
        ids = self._encoded(after)
        return (after, ids) if self.ends.intersection(ids) else ("", ())

    def _encoded(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    @cached_property
    def specials(self) -> frozenset[int]:
        """Tokens that no text is encoded to by chance: special ones and added ones."""
        added = getattr(self.tokenizer, "added_tokens_decoder", {})
        return frozenset(self.tokenizer.all_special_ids) | frozenset(added)

    @property
    def written_end(self) -> int | None:
        """The declared end token with which an answer of the model's is rendered to end.

        The tokenizer's own without a template.
        """
        if self.closing is None:
            own: int | None = self.tokenizer.eos_token_id
            return own
        return next((each for each in self.closing[1] if each in self.ends), None)

    @property
    def context(self) -> int | None:
        """The longest sequence that the model takes, or the engine if it was told of less."""
        return self.context_with(self.bench.sampler if self.bench else None)

    def context_with(self, sampler: EngineSpec | None) -> int | None:
        """The same with an engine that may be asked for responses."""
        told = sampler.options.get("max_model_len") if sampler else None
        given = (self.setting("max_position_embeddings"), told)
        return min((each for each in given if isinstance(each, int) and each > 0), default=None)

    def token_text(self, token: int) -> str | None:
        """A token's text; None if the tokenizer has no such token."""
        try:
            text = self.tokenizer.convert_ids_to_tokens(token)
        except (IndexError, OverflowError, TypeError, ValueError):
            return None
        return str(text) if text else None

    def shown(self, token: int) -> str:
        """A token for a person: its id and its text."""
        text = self.token_text(token)
        return f"{token} {text!r}" if text else f"{token} (no token of the tokenizer's)"


def _ids(entry: object) -> tuple[int, ...]:
    entries = entry if isinstance(entry, list | tuple) else [entry]
    return tuple(each for each in entries if isinstance(each, int) and not isinstance(each, bool))


def ids_of(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]],
    *,
    generation: bool = False,
) -> list[int]:
    """The ids of a conversation in the tokenizer's chat template.

    Raises:
        ModelError: if the template refuses it.
    """
    text = text_of(tokenizer, messages, generation=generation)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def text_of(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]],
    *,
    generation: bool = False,
    **more: Any,
) -> str:
    """A conversation in the tokenizer's chat template; `more` is for `apply_chat_template`.

    Raises:
        ModelError: if the template refuses it.
    """
    from jinja2 import TemplateError

    try:
        text = tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            add_generation_prompt=generation,
            tokenize=False,
            **more,
        )
    except (TemplateError, TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise ModelError(
            f"the chat template fails: {' '.join(str(error).split())[:200]}",
            where=str(tokenizer.name_or_path),
            remedy="mend chat_template in tokenizer_config.json",
        ) from error
    return str(text)


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def load_tokenizer(model: Path) -> PreTrainedTokenizerBase:
    """The tokenizer beside a model; nothing is downloaded, no code of the model's is run.

    Raises:
        MissingExtraError: if transformers is not installed.
        ModelError: if there is none, or it is damaged.
    """
    if not model.is_dir():
        raise ModelError(
            "there is no such model directory",
            where=str(model),
            remedy="download it first and name its directory",
        )
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise MissingExtraError("grpodoctor preflight", "torch") from error
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            model, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # of damaged files tokenizers raises this very class
        raise ModelError(
            f"the tokenizer does not load: {' '.join(str(error).split())[:200]}",
            where=str(model),
            remedy="save the tokenizer beside the model",
        ) from error
    if not isinstance(tokenizer.chat_template, str | dict | None):
        raise ModelError(
            "the chat template is no text",
            where=str(model),
            remedy="mend chat_template in tokenizer_config.json",
        )
    tokenizer.model_max_length = sys.maxsize  # it would warn of long prompts; DAT106 tells of them
    return tokenizer


def read_settings(path: Path) -> dict[str, Any]:
    """A JSON object of the model's; empty where there is no such file.

    Raises:
        ModelError: if it is damaged or no object.
    """
    import orjson

    if not path.exists():
        return {}
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError("larger than any configuration")  # noqa: TRY301
        settings = orjson.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"not JSON: {error}", where=str(path)) from error
    if not isinstance(settings, dict):
        raise ModelError("not a JSON object", where=str(path))
    return settings
