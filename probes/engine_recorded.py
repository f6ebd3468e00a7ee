"""Engine program: values recorded by a training run, `recorded:RUN?side=sampler` or `side=learner`.

As a sampler it returns the responses of the run's rollout dumps with the log-probabilities of one
side; as a learner it returns the other side's log-probabilities of the same responses. Either side
can be compared with a live engine, for which the record is always the sampler. A live engine's own
samples are refused, because no log-probabilities of them were recorded.

Options:

- `side`: `sampler` or `learner`
- `step`: the step of the responses; default: the last one with both sides
- `tokenizer`: a directory or hub name, for prompts recorded only as text: a live engine can score a
  response only after its prompt
- `responses`: maximum number of responses, from the start of the step
- `logprobs`: `processed`, as trainers record them, or `raw`, at temperature 1

Multi-turn responses have tokens of tools or users between the generated ones. Each of their turns
is a response after everything before it, so only sampled tokens are compared. Responses without one
value for each generated token, and unreadable parts of the dumps, are skipped and counted. This
program runs in the probe's own Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import contract
import numpy as np
from contract import Processing, RefusalError, Response, with_defaults
from hf import tokenizer as hf_tokenizer

from grpodoctor.errors import GrpodoctorError, RunError
from grpodoctor.frameworks.rollout_formats.base import (
    DamageLog,
    DumpFormat,
    FilePart,
    Responses,
    Sequences,
)
from grpodoctor.frameworks.rollout_formats.registry import (
    dump_format_named,
    dumps_among,
    empty_dumps,
)
from grpodoctor.probe.run_mismatch.missing_side import empty_files, recording_advice
from grpodoctor.runs.rollout_dumps.shards import plan_shards
from grpodoctor.support.files.regular_files import files_below

_SIDES = ("sampler", "learner")
_DEFAULTS: dict[str, Any] = {
    "side": "", "step": -1, "tokenizer": "", "responses": 4096, "logprobs": "processed",
    "trust_remote_code": False,
}  # fmt: skip


@dataclass(frozen=True)
class _RecordedResponse:
    """One response as it was recorded."""

    group: str
    prompt_ids: list[int]
    prompt: str | None
    """Text of the prompt, if its ids are not known."""
    ids: list[int]
    sampler: list[float]
    learner: list[float]
    ended: bool


class Recorded:
    """The responses of one step of a run.

    Args:
        run: the run's directory, or one of its dumps.
        options: see the module.

    Raises:
        RefusalError: if an option is unknown, or no response was recorded with both sides.
    """

    def __init__(self, run: str, options: Mapping[str, Any]) -> None:
        self._options = _known(options)
        self._run = run
        self._skipped = 0
        self._notes = DamageLog()
        dumps, empty = _dumps(Path(run))
        for name in empty:
            self._notes.damaged_at(name, 0, "0 bytes")
        self._frameworks = sorted({form.framework for form, _ in dumps})
        self.step, batches = self._chosen(dumps)
        rows = [row for batch in batches for row in self._rows(batch)]
        if not rows:
            raise RefusalError(
                f"no response of step {self.step} in {run} can be scored: {self._skipped} have "
                "no log-probability for each generated token",
                "let `grpodoctor check` compare the recorded values",
            )
        self._responses = self._numbered(rows[: int(self._options["responses"])])

    def describe(self) -> dict[str, Any]:
        """What was recorded; dumps hold nothing about the engines themselves."""
        return {
            "name": f"recorded ({', '.join(self._frameworks)})",
            "version": "",
            "model": self._run,
            "dtype": "not reported",
            "device": "not reported",
            "layout": {},
            "vocab_size": 0,
            "end_ids": [],
            "begin_id": None,
            "context": 0,
            "logprobs": self._options["logprobs"],
            "settings": {
                "side": self._options["side"],
                "step": self.step,
                "responses": len(self._responses),
                "left_out": self._skipped,
                "damaged": self._notes.damaged,
            },
        }

    def recorded(self) -> list[Response]:
        """The responses with this side's log-probabilities."""
        return self._responses

    def tokenise(self, prompts: Sequence[Mapping[str, Any]]) -> list[list[int]]:
        """Token ids by the given tokenizer."""
        if not self._options["tokenizer"]:
            raise RefusalError(
                "a record has no tokenizer", "give the model's with tokenizer=DIRECTORY"
            )
        tokenizer = self._tokenizer()
        return [hf_tokenizer.encoded(tokenizer, prompt) for prompt in prompts]

    def sample(self, *_: object) -> list[Response]:
        """A record samples nothing; `recorded` returns its responses."""
        raise RefusalError("a record samples no responses")

    def score(
        self,
        responses: Sequence[Response],
        processing: Processing,  # noqa: ARG002 - recorded values are fixed
        want: Sequence[str],  # noqa: ARG002
    ) -> list[Response]:
        """This side's log-probabilities of responses from the same record."""
        recorded = {(each.prompt, each.sample): each for each in self._responses}
        scored = []
        for response in responses:
            own = recorded.get((response.prompt, response.sample))
            if own is None or list(own.response_ids) != list(response.response_ids):
                raise RefusalError(
                    f"sample {response.sample} of prompt {response.prompt} is not in the record of "
                    f"step {self.step}",
                    "use the record as the sampler too, with the same step=",
                )
            scored.append(replace(response, logprobs=own.logprobs, extras={}))
        return scored

    def close(self) -> None:
        """A record holds no resources."""

    def _chosen(self, dumps: Sequence[tuple[DumpFormat, Path]]) -> tuple[int, list[Responses]]:
        """The requested step, or the last one with both sides, and its responses."""
        wanted, last, batches = int(self._options["step"]), -1, list[Responses]()
        for responses in _batches(dumps, wanted, self._notes):
            if responses.learner is None or responses.sampler is None:
                continue
            steps = {wanted} if wanted >= 0 else set(np.unique(responses.steps_B).tolist())
            newest = max(steps)
            if newest < last or newest not in responses.steps_B:
                continue
            if newest > last:
                last, batches = newest, []
            batches.append(responses)
        if not batches:
            raise self._no_logprobs(wanted, dumps)
        return last, batches

    def _no_logprobs(self, wanted: int, dumps: Sequence[tuple[DumpFormat, Path]]) -> RefusalError:
        which = f"step {wanted} of " if wanted >= 0 else ""
        names = ", ".join(sorted({form.name for form, _ in dumps}))
        damaged = self._notes.damage
        if damaged:
            worst = f"{damaged[0].file}: {damaged[0].why}"
            names += f"; {self._notes.damaged} damaged ({worst})"
        return RefusalError(
            f"{which}{self._run} has no log-probabilities of both sides: only {names}",
            recording_advice(Path(self._run), dumps),
        )

    def _rows(self, responses: Responses) -> Iterator[_RecordedResponse]:
        """The responses of the chosen step that can be scored."""
        sequences = responses.sequences() if responses.sequences is not None else None
        for row in np.flatnonzero(responses.steps_B == self.step).tolist():
            turns = _recorded_turns(responses, row, _turns(responses, sequences, row))
            self._skipped += not turns
            yield from turns

    def _numbered(self, rows: Sequence[_RecordedResponse]) -> list[Response]:
        """The responses grouped by prompt, in the order in which the prompts appear."""
        groups: dict[str, list[_RecordedResponse]] = {}
        for row in rows:
            groups.setdefault(row.group, []).append(row)
        side = self._options["side"]
        return [
            Response(
                row.prompt_ids or self._prompt_ids(row.prompt),
                row.ids,
                row.sampler if side == "sampler" else row.learner,
                prompt,
                sample,
                row.ended,
            )
            for prompt, own in enumerate(groups.values())
            for sample, row in enumerate(own)
        ]

    def _prompt_ids(self, text: str | None) -> list[int]:
        """Ids of a prompt recorded only as text; empty without a tokenizer."""
        if text is None or not self._options["tokenizer"]:
            return []
        # The text was recorded as the model read it, including the template.
        return list(self._tokenizer().encode(text, add_special_tokens=False))

    def _tokenizer(self) -> Any:
        if not hasattr(self, "_loaded"):
            self._loaded: Any = hf_tokenizer.load(
                str(self._options["tokenizer"]), bool(self._options["trust_remote_code"])
            )
        return self._loaded


def load(run: str, options: dict[str, Any]) -> Recorded:
    """Read a run's recorded responses."""
    try:
        return Recorded(run, options)
    except GrpodoctorError as error:
        raise RefusalError(str(error)) from error
    except (ValueError, OSError) as error:
        raise RefusalError(f"{run} cannot be read: {error}", "check its dumps") from error


def _known(options: Mapping[str, Any]) -> dict[str, Any]:
    merged = with_defaults(options, _DEFAULTS, "a record")
    if merged["side"] not in _SIDES:
        raise RefusalError("side= is missing or unknown", "set side=sampler or side=learner")
    if merged["logprobs"] not in ("raw", "processed"):
        raise RefusalError("logprobs= must be raw or processed")
    for name in ("step", "responses"):
        if type(merged[name]) is not int:
            raise RefusalError(f"{name}= must be an integer")
    return merged


def _dumps(path: Path) -> tuple[list[tuple[DumpFormat, Path]], list[str]]:
    """The rollout dumps of a run, and the names of those of 0 bytes."""
    if not path.exists():
        raise RefusalError(f"there is no run at {path}", "check the path")
    files = list(files_below(path)) if path.is_dir() else [path]
    dumps = dumps_among(files)
    empty = empty_dumps(files, dumps)
    if empty and not dumps:
        raise empty_files(empty)
    if not dumps:
        raise RefusalError(
            f"{path} holds no rollout dump of a known format",
            "give the folder that the trainer wrote its rollouts to",
        )
    return dumps, [each.name for each in empty]


def _batches(
    dumps: Sequence[tuple[DumpFormat, Path]], wanted: int, notes: DamageLog
) -> Iterator[Responses]:
    """Responses in batches, in the order of steps.

    An unreadable file is counted and skipped: the last file may still be being written.
    """
    made = plan_shards(dumps)
    pieces: list[tuple[str, FilePart]] = [
        (shard.format, piece) for shard in made.shards for piece in shard.pieces
    ]
    for form, piece in pieces:
        if piece.step in (None, wanted) or wanted < 0:
            try:
                yield from dump_format_named(form).read(piece, notes)
            except (RunError, OSError, ValueError) as error:
                notes.damaged_at(Path(piece.path).name, 0, str(error))


_Turn = tuple[list[int], list[int]]
"""Ids before a turn, and its own."""


def _turns(responses: Responses, sequences: Sequences | None, row: int) -> list[_Turn]:
    """The turns of a response; empty if its tokens are not known."""
    if sequences is None:
        own = responses.tokens
        return [] if own is None else [([], own.row(row).tolist())]
    ids_T, mask_T = sequences.tokens.row(row), sequences.mask.row(row)
    generated = np.flatnonzero(mask_T > 0)
    if not generated.size or len(mask_T) != len(ids_T):
        return []
    parts = np.split(generated, np.flatnonzero(np.diff(generated) > 1) + 1)
    return [(ids_T[: part[0]].tolist(), ids_T[part[0] : part[-1] + 1].tolist()) for part in parts]


def _recorded_turns(
    responses: Responses, row: int, turns: Sequence[_Turn]
) -> list[_RecordedResponse]:
    """The turns with their values; empty unless there is one value for each generated token."""
    if responses.learner is None or responses.sampler is None:
        return []
    learner, sampler = responses.learner.row(row), responses.sampler.row(row)
    ends = np.cumsum([len(ids) for _, ids in turns]).tolist()
    if not ends or not ends[-1] == len(learner) == len(sampler) > 0:
        return []
    text = responses.prompts[row] if responses.prompts is not None else None
    truncated = responses.truncated_B
    is_complete = truncated is not None and truncated[row] == 0
    return [
        _RecordedResponse(
            _group(responses, row, before, number),
            before,
            text if not before else None,
            ids,
            sampler[end - len(ids) : end].tolist(),
            learner[end - len(ids) : end].tolist(),
            ended=is_complete and number == len(turns) - 1,
        )
        for number, ((before, ids), end) in enumerate(zip(turns, ends, strict=True))
    ]


def _group(responses: Responses, row: int, before: Sequence[int], turn: int) -> str:
    """A key shared by the responses to one prompt; later turns follow different texts."""
    if turn:
        return repr(list(before))
    if responses.groups is not None:
        return responses.groups[row]
    if before:
        return repr(list(before))
    return responses.prompts[row] if responses.prompts is not None else responses.names[row]


if __name__ == "__main__":
    contract.serve(load)
