"""Everything that a preflight examines: model files, tokenizer, prompts, reward, engines."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpodoctor.errors import DataError, GrpodoctorError, ModelError
from grpodoctor.frameworks.run_config import flattened
from grpodoctor.preflight.inputs.chat_template import (
    load_tokenizer,
    read_json_config,
    render_ids,
    render_text,
)
from grpodoctor.preflight.inputs.config_columns import model_override
from grpodoctor.preflight.inputs.prompt_rows import PromptRow, PromptTable
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.support.numbers import count_of
from grpodoctor.trainer.rewards.user_reward import UserReward
from grpodoctor.vocabulary.knobs import Setting

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from grpodoctor.preflight.answers.completions.inverted_rewards import InvertedReward
    from grpodoctor.preflight.answers.reference_answers import ReferenceAnswers
    from grpodoctor.preflight.answers.row_slices import SliceFaults
    from grpodoctor.preflight.results.check_results import SkippedCheck
    from grpodoctor.preflight.sampling.sampled_responses import ResponseSampler
    from grpodoctor.probe.inputs.engine_spec import EngineSpec

_LANGUAGE_MODEL_KEYS = ("text_config", "llm_config", "language_config")
"""Keys under which multimodal models keep the config of their language model."""
_SLICED_ROWS = 2000
"""Rows among which kinds of rows are searched."""
_ANSWER, _NEXT_QUESTION = "grpodoctor", "nextquestion"


class NoModelError(GrpodoctorError):
    """A check reads the model's files, and no model was given: the check is skipped."""

    def __init__(self) -> None:
        super().__init__("no model was given", remedy="pass --model DIR")


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """What a model's directory says about the model."""

    path: Path
    tokenizer: PreTrainedTokenizerBase
    config: Mapping[str, Any]
    """Content of config.json."""
    generation_config: Mapping[str, Any]
    """Content of generation_config.json; empty if the file does not exist."""

    @classmethod
    def read(cls, path: Path) -> ModelFiles:
        """Read the files of a directory.

        Raises:
            ModelError: if the tokenizer does not load or a file cannot be read.
        """
        return cls(
            path=path,
            tokenizer=load_tokenizer(path),
            config=read_json_config(path / "config.json"),
            generation_config=read_json_config(path / "generation_config.json"),
        )


@dataclass(frozen=True, kw_only=True)
class PreflightContext:
    """The inputs of all checks. None means that the user did not give it.

    Attributes that read the model's files raise `NoModelError` if there is no model.
    """

    files: ModelFiles | None
    rows: tuple[PromptRow, ...]
    settings: RunSettings
    scored_rows: tuple[PromptRow, ...] = ()
    """Rows with answers that only the checks of the reward use; empty if the rows have their own.
    """
    table: PromptTable = field(default_factory=PromptTable)
    """The file that the rows were read from, with the rows that cannot be used."""
    framework: str = ""
    """Framework of the run's config; empty if no config was given."""
    run_config: Mapping[str, Setting] = field(default_factory=dict)
    """The knobs and facts that the run's config contains."""
    stop_strings: tuple[str, ...] = ()
    """Texts of the run's config at which a response ends, and which the engine cuts off."""
    reward_weights: tuple[tuple[str, float], ...] = ()
    """Name and weight of each reward function of the run's config."""
    config_contents: Mapping[str, Any] = field(default_factory=dict)
    """The run's config as it is written, nested."""
    has_unscored_rows: bool = False
    """Whether the reward function returns None for some rows, which other functions score."""
    answer_column: str = ""
    """The column of answers, if the user names it."""
    held_out: tuple[PromptRow, ...] = ()
    """Prompts for evaluation, which must not occur in the training data."""
    reward: UserReward | None = None
    sampler: ResponseSampler | None = None
    """Samples responses with an engine."""
    templates: Mapping[str, str] = field(default_factory=dict)
    """Candidate prompt templates by name, with `{prompt}` in each."""
    learner: EngineSpec | None = None
    reference: EngineSpec | None = None
    """Reference model of the KL penalty."""
    control: Path | None = None
    """Logs of a run with a learning rate of zero."""
    filtered: Path | None = None
    """The file that --write-filtered names; None without that option."""

    @cached_property
    def flat_config(self) -> Mapping[str, Setting]:
        """The run's config as it is written, with dotted keys and without lists."""
        return dict(flattened(self.config_contents))

    @property
    def max_prompt_length(self) -> int | None:
        """Longest prompt in tokens that the run's config allows; None if it is not known."""
        return self._count_in_config("max_prompt_length")

    @property
    def max_length(self) -> int | None:
        """Longest response in tokens in the run's config; None if it is not known."""
        return self._count_in_config("max_length")

    @property
    def batch_prompts(self) -> int | None:
        """Prompts of one step in the run's config; None if it is not known."""
        return self._count_in_config("prompts_per_batch")

    def _count_in_config(self, name: str) -> int | None:
        value = self.run_config.get(name)
        return int(value) if isinstance(value, int | float) and value >= 1 else None

    @property
    def model_files(self) -> ModelFiles:
        """The model's files."""
        if self.files is None:
            raise NoModelError
        return self.files

    @property
    def model(self) -> Path:
        """The model's directory."""
        return self.model_files.path

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer."""
        return self.model_files.tokenizer

    @property
    def config(self) -> Mapping[str, Any]:
        """Content of config.json."""
        return self.model_files.config

    @property
    def generation_config(self) -> Mapping[str, Any]:
        """Content of generation_config.json; empty if the file does not exist."""
        return self.model_files.generation_config

    def with_sampler(self, sampler: ResponseSampler) -> PreflightContext:
        """A copy with an engine; keeps the rewards of the reference answers."""
        changed = replace(self, sampler=sampler)
        if "_scored_task" in vars(self):
            vars(changed)["_scored_task"] = vars(self)["_scored_task"]
        return changed

    def render(self, row: PromptRow) -> list[int]:
        """The token ids of a prompt, in the chat template if the tokenizer has one.

        Raises:
            ModelError: if the template refuses the prompt.
        """
        if self.tokenizer.chat_template:
            return render_ids(self.tokenizer, row.conversation(), generation=True)
        return list(self.tokenizer(row.prompt)["input_ids"])

    @property
    def reward_rows(self) -> tuple[PromptRow, ...]:
        """The rows that the reward function scores and whose answers have one format."""
        return self._scored_task[0]

    @property
    def leaves_out_tasks(self) -> bool:
        """Whether `reward_rows` lacks the rows of other tasks."""
        scored = self.scored_rows or self.rows
        return self.has_unscored_rows or len(self.reward_rows) < len(scored)

    @property
    def reference_answers(self) -> ReferenceAnswers | None:
        """The rewards of the data's answers; None without a reward function or without answers.

        Raises:
            DataError: if the reward function fails.
        """
        _, answers = self._scored_task
        if isinstance(answers, DataError):
            raise answers
        return answers

    def rewarded_answers(self) -> tuple[UserReward, ReferenceAnswers] | SkippedCheck:
        """The reward function and the data's answers, or why a check cannot use them.

        Raises:
            DataError: as `reference_answers`.
        """
        from grpodoctor.preflight.answers.reference_answers import (
            NO_ANSWER_REWARDED,
            REQUIRES_ANSWERS,
            REQUIRES_REWARD,
        )

        if self.reward is None:
            return REQUIRES_REWARD
        if (answers := self.reference_answers) is None:
            return REQUIRES_ANSWERS
        return NO_ANSWER_REWARDED if answers.threshold is None else (self.reward, answers)

    @cached_property
    def _scored_task(
        self,
    ) -> tuple[tuple[PromptRow, ...], ReferenceAnswers | DataError | None]:
        """Rows, and their rewards or the error; a function that hangs is not called twice."""
        from grpodoctor.preflight.answers.other_tasks import rows_of_one_format
        from grpodoctor.preflight.answers.reference_answers import score_reference_answers

        rows = self.scored_rows or self.rows
        if self.reward is None:
            return rows, None
        try:
            answers = score_reference_answers(self.reward, rows, self.settings)
            kept = rows_of_one_format(self.reward, answers, rows) if answers else rows
            if len(kept) < len(rows):
                rows = kept
                answers = score_reference_answers(self.reward, rows, self.settings)
        except DataError as error:
            return rows, error
        return rows, answers

    def such_rows(self, count: int) -> str:
        """How many rows of a kind `slice_faults` found, and among which."""
        is_whole = len(self.reward_rows) <= _SLICED_ROWS
        where = "the file has" if is_whole else f"its first {_SLICED_ROWS} rows have"
        return f"{where} {count_of(count, 'such row')}"

    @cached_property
    def slice_faults(self) -> SliceFaults:
        """Kinds of rows in which the reward is wrong; empty if it cannot be known.

        Raises:
            DataError: as `reference_answers`.
        """
        from grpodoctor.preflight.answers.row_slices import SliceFaults, slice_faults

        answers = self.reference_answers
        if self.reward is None or answers is None:
            return SliceFaults()
        return slice_faults(self.reward, answers, self.reward_rows[:_SLICED_ROWS])

    @cached_property
    def inverted_reward(self) -> InvertedReward | None:
        """How right answers earn less than wrong ones; None if they do not.

        Raises:
            DataError: as `reference_answers`.
        """
        from grpodoctor.preflight.answers.completions.inverted_rewards import inverted_reward

        answers = self.reference_answers
        if self.reward is None or answers is None:
            return None
        pairs = list(zip(answers.rewards, answers.wrong, strict=True))
        if sum(right > wrong for right, wrong in pairs) > len(pairs) / 2:
            return None
        return inverted_reward(self.reward, answers.rows, self.settings)

    def config_value(self, name: str) -> Any:
        """A value of config.json, or of its language-model part; None if missing.

        A value that the run's config sets for the model comes first.
        """
        if (override := model_override(self.flat_config, name)) is not None:
            return override
        nested = (self.config.get(key) for key in _LANGUAGE_MODEL_KEYS)
        for values in (self.config, *nested):
            if isinstance(values, Mapping) and values.get(name) is not None:
                return values[name]
        return None

    def config_count(self, name: str) -> int | None:
        """A positive integer of config.json; None if missing or anything else."""
        value = self.config_value(name)
        return value if type(value) is int and value > 0 else None

    @property
    def declared_end_tokens(self) -> dict[str, tuple[int, ...]]:
        """The end tokens that each file declares."""
        return {
            "tokenizer": _token_ids(self.tokenizer.eos_token_id),
            "config.json": _token_ids(self.config_value("eos_token_id")),
            "generation_config.json": _token_ids(self.generation_config.get("eos_token_id")),
        }

    @property
    def end_tokens(self) -> frozenset[int]:
        """All declared end tokens."""
        return frozenset(token for ids in self.declared_end_tokens.values() for token in ids)

    @cached_property
    def turn_end(self) -> tuple[str, tuple[int, ...]] | None:
        """Text and tokens that the template writes after an answer; None without a template.

        Some templates write nothing there; the next turn's beginning ends the answer.
        """
        if not self.tokenizer.chat_template:
            return None
        turns = [_turn("user", "1"), _turn("assistant", _ANSWER), _turn("user", _NEXT_QUESTION)]
        text = render_text(self.tokenizer, turns[:2]).rpartition(_ANSWER)[2]
        if text.strip():
            return text, self._encode(text)
        with suppress(ModelError):  # some templates allow only single turns
            rendered = render_text(self.tokenizer, turns)
            text = rendered.rpartition(_ANSWER)[2].partition(_NEXT_QUESTION)[0]
        ids = self._encode(text)
        return (text, ids) if self.end_tokens.intersection(ids) else ("", ())

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    @cached_property
    def special_tokens(self) -> frozenset[int]:
        """Special and added tokens, which ordinary text does not encode to."""
        added = getattr(self.tokenizer, "added_tokens_decoder", {})
        return frozenset(self.tokenizer.all_special_ids) | frozenset(added)

    @property
    def rendered_end_token(self) -> int | None:
        """The declared end token that the template writes after an answer.

        Without a template, the tokenizer's end token.
        """
        if self.turn_end is None:
            eos: int | None = self.tokenizer.eos_token_id
            return eos
        return next((token for token in self.turn_end[1] if token in self.end_tokens), None)

    @property
    def context_length(self) -> int | None:
        """Maximum sequence length of the model, or of the engine if that is smaller."""
        return self.context_length_with(self.sampler.engine if self.sampler else None)

    def context_length_with(self, engine: EngineSpec | None) -> int | None:
        """Maximum sequence length of the model, or of an engine if that is smaller."""
        engine_limit = engine.options.get("max_model_len") if engine else None
        of_run = self._count_in_config("context_length")
        limits = (self.config_value("max_position_embeddings"), engine_limit, of_run)
        return min((each for each in limits if isinstance(each, int) and each > 0), default=None)

    def token_text(self, token: int) -> str | None:
        """A token's text; None if the tokenizer has no such token."""
        try:
            text = self.tokenizer.convert_ids_to_tokens(token)
        except (IndexError, OverflowError, TypeError, ValueError):
            return None
        return str(text) if text else None

    def decoded(self, token: int) -> str:
        """The text that a token stands for; empty if the tokenizer has no such token."""
        if self.token_text(token) is None:
            return ""
        return str(self.tokenizer.decode([token], skip_special_tokens=False))

    def describe_token(self, token: int) -> str:
        """A token's id and text, for messages."""
        text = self.token_text(token)
        return f"{token} {text!r}" if text else f"{token} (not in the tokenizer)"


def _token_ids(value: object) -> tuple[int, ...]:
    values = value if isinstance(value, list | tuple) else [value]
    return tuple(each for each in values if isinstance(each, int) and not isinstance(each, bool))


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}
