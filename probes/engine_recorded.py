"""What a training run has saved: `recorded:RUN?side=sampler`, `recorded:RUN?side=learner`.

As a sampler it gives the responses that the run's rollout dumps hold, with the log-probabilities of
that side; as a learner it gives those of the other side to the same responses. Either side may be
compared with a live engine: the record is then the one that samples, whichever side it gives. A
live engine's own samples nobody has recorded, and they are refused.

Options:

- `side`: `sampler` or `learner`
- `step`: which step's responses; the last one with both sides if not given
- `tokenizer`: a directory or hub name, for prompts of which only the text was saved: a live engine
  can score a response only behind its prompt
- `responses`: the most of them, the first of the step
- `logprobs`: `processed`, as trainers record them, or `raw`, at temperature 1

Responses whose generated tokens have others between them, of several turns, are left out and
counted, as is what of the dumps cannot be read. This program runs in the probe's own Python.
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
from grpodoctor.frameworks.rollout_formats.registry import dump_format_named, dumps_among
from grpodoctor.runs.rollout_dumps.shards import plan_shards
from grpodoctor.support.directory_walk import files_below

_SIDES = ("sampler", "learner")
_DEFAULTS: dict[str, Any] = {
    "side": "", "step": -1, "tokenizer": "", "responses": 4096, "logprobs": "processed",
    "trust_remote_code": False,
}  # fmt: skip
_HOW = {
    "grpodoctor": "record them with --set record.depth=full",
    "prime-rl": "set trainer.enable_token_export=true",
    "nemo-rl": "keep the train_data_step<N>.jsonl that it writes to its log directory, and leave "
    "loss_fn.force_on_policy_ratio off, which puts zeros there for the learner",
    "slime": "give it --dump-details DIR, and name train_data in it",
}
"""How each framework is told to save both sides' log-probabilities of every token."""


@dataclass(frozen=True)
class _Row:
    """One response as it was recorded."""

    group: str
    prompt_ids: list[int]
    prompt: str | None
    """Its text, where the ids are not known."""
    ids: list[int]
    sampler: list[float]
    learner: list[float]
    ended: bool


class Recorded:
    """The responses of one step of a run.

    Args:
        run: its directory, or one dump of it.
        options: see the module.

    Raises:
        RefusalError: if an option is unknown, or nothing was saved that has both sides.
    """

    def __init__(self, run: str, options: Mapping[str, Any]) -> None:
        self._options = _known(options)
        self._run = run
        self._left_out = 0
        self._notes = DamageLog()
        dumps = _dumps(Path(run))
        self._frameworks = sorted({form.framework for form, _ in dumps})
        self.step, batches = self._chosen(dumps)
        rows = [row for batch in batches for row in self._rows(batch)]
        if not rows:
            raise RefusalError(
                f"no response of step {self.step} in {run} can be scored: {self._left_out} have "
                "tokens of others between their own",
                "probe a run of single turns, or let `grpodoctor check` compare what was recorded",
            )
        self._responses = self._numbered(rows[: int(self._options["responses"])])

    def describe(self) -> dict[str, Any]:
        """What was recorded; of the engines themselves a dump says nothing."""
        return {
            "name": f"recorded ({', '.join(self._frameworks)})",
            "version": "",
            "model": self._run,
            "dtype": "not told",
            "device": "not told",
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
                "left_out": self._left_out,
                "damaged": self._notes.damaged,
            },
        }

    def recorded(self) -> list[Response]:
        """The responses with this side's log-probabilities."""
        return self._responses

    def tokenise(self, prompts: Sequence[Mapping[str, Any]]) -> list[list[int]]:
        """By the tokenizer given."""
        if not self._options["tokenizer"]:
            raise RefusalError(
                "a record has no tokenizer", "name the model's with tokenizer=DIRECTORY"
            )
        tokenizer = self._tokenizer()
        return [hf_tokenizer.encoded(tokenizer, prompt) for prompt in prompts]

    def sample(self, *_: object) -> list[Response]:
        """Nothing is drawn: `recorded` is asked instead."""
        raise RefusalError("a record draws no responses")

    def score(
        self,
        responses: Sequence[Response],
        processing: Processing,  # noqa: ARG002 - what was recorded is what there is
        want: Sequence[str],  # noqa: ARG002
    ) -> list[Response]:
        """This side's log-probabilities of responses that came from the same record."""
        known = {(each.prompt, each.sample): each for each in self._responses}
        scored = []
        for response in responses:
            own = known.get((response.prompt, response.sample))
            if own is None or list(own.response_ids) != list(response.response_ids):
                raise RefusalError(
                    f"sample {response.sample} of prompt {response.prompt} is not in the record of "
                    f"step {self.step}",
                    "a record scores what it has recorded: let it be the sampler, with the same "
                    "step=",
                )
            scored.append(replace(response, logprobs=own.logprobs, extras={}))
        return scored

    def close(self) -> None:
        """Nothing is held."""

    def _chosen(self, dumps: Sequence[tuple[DumpFormat, Path]]) -> tuple[int, list[Responses]]:
        """The step asked for, or the last with both sides, and its responses."""
        wanted, last, found = int(self._options["step"]), -1, list[Responses]()
        for responses in _batches(dumps, wanted, self._notes):
            if responses.learner is None or responses.sampler is None:
                continue
            steps = {wanted} if wanted >= 0 else set(np.unique(responses.steps_B).tolist())
            newest = max(steps)
            if newest < last or newest not in responses.steps_B:
                continue
            if newest > last:
                last, found = newest, []
            found.append(responses)
        if not found:
            raise self._nothing(wanted, dumps)
        return last, found

    def _nothing(self, wanted: int, dumps: Sequence[tuple[DumpFormat, Path]]) -> RefusalError:
        which = f"step {wanted} of " if wanted >= 0 else ""
        names = ", ".join(sorted({form.name for form, _ in dumps}))
        damaged = self._notes.damage
        if damaged:
            worst = f"{damaged[0].file}: {damaged[0].why}"
            names += f"; {self._notes.damaged} damaged ({worst})"
        advice = [_HOW[each] for each in self._frameworks if each in _HOW]
        others = "its dumps have no log-probabilities by token; those of grpodoctor, prime-rl, "
        return RefusalError(
            f"{which}{self._run} holds no log-probabilities of both sides: only {names}",
            "; ".join(advice) or others + "NeMo RL and slime do",
        )

    def _rows(self, responses: Responses) -> Iterator[_Row]:
        """The responses of the chosen step that can be scored again."""
        sequences = responses.sequences() if responses.sequences is not None else None
        for row in np.flatnonzero(responses.steps_B == self.step).tolist():
            found = self._row(responses, row, _tokens(responses, sequences, row))
            if found is None:
                self._left_out += 1
            else:
                yield found

    @staticmethod
    def _row(
        responses: Responses, row: int, placed: tuple[list[int], list[int]] | None
    ) -> _Row | None:
        if placed is None or responses.learner is None or responses.sampler is None:
            return None
        before, ids = placed
        learner, sampler = responses.learner.row(row), responses.sampler.row(row)
        if not len(ids) == len(learner) == len(sampler) or not len(ids):
            return None
        text = responses.prompts[row] if responses.prompts is not None else None
        truncated = responses.truncated_B
        return _Row(
            _group(responses, row, before),
            before,
            text if not before else None,
            ids,
            sampler.tolist(),
            learner.tolist(),
            ended=truncated is not None and truncated[row] == 0,
        )

    def _numbered(self, rows: Sequence[_Row]) -> list[Response]:
        """Those of a prompt together, in the order in which the prompts appear."""
        groups: dict[str, list[_Row]] = {}
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
        """Of a prompt whose text alone was saved; none without a tokenizer."""
        if text is None or not self._options["tokenizer"]:
            return []
        # Saved as the model read it, template and all.
        return list(self._tokenizer().encode(text, add_special_tokens=False))

    def _tokenizer(self) -> Any:
        if not hasattr(self, "_loaded"):
            self._loaded: Any = hf_tokenizer.load(
                str(self._options["tokenizer"]), bool(self._options["trust_remote_code"])
            )
        return self._loaded


def load(run: str, options: dict[str, Any]) -> Recorded:
    """Read what a run has saved."""
    try:
        return Recorded(run, options)
    except GrpodoctorError as error:
        raise RefusalError(str(error)) from error
    except (ValueError, OSError) as error:
        raise RefusalError(f"{run} cannot be read: {error}", "look at its dumps") from error


def _known(options: Mapping[str, Any]) -> dict[str, Any]:
    merged = with_defaults(options, _DEFAULTS, "a record")
    if merged["side"] not in _SIDES:
        raise RefusalError("a record has two sides", "say side=sampler or side=learner")
    if merged["logprobs"] not in ("raw", "processed"):
        raise RefusalError("logprobs= is raw or processed")
    for name in ("step", "responses"):
        if type(merged[name]) is not int:
            raise RefusalError(f"{name}= is a whole number")
    return merged


def _dumps(path: Path) -> list[tuple[DumpFormat, Path]]:
    """The rollout dumps of a run."""
    if not path.exists():
        raise RefusalError(f"there is no run at {path}", "check the path")
    dumps = dumps_among(files_below(path) if path.is_dir() else [path])
    if not dumps:
        raise RefusalError(
            f"{path} holds no rollout dump that is known",
            "name the folder that the trainer wrote its rollouts to",
        )
    return dumps


def _batches(
    dumps: Sequence[tuple[DumpFormat, Path]], wanted: int, notes: DamageLog
) -> Iterator[Responses]:
    """Responses batch by batch, those of late steps last.

    The last file may be one that is being written, so one that cannot be read is counted alone.
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


def _tokens(
    responses: Responses, sequences: Sequences | None, row: int
) -> tuple[list[int], list[int]] | None:
    """Ids before a response and its own; None unless these stand together."""
    if sequences is None:
        own = responses.tokens
        return None if own is None else ([], own.row(row).tolist())
    ids_T, mask_T = sequences.tokens.row(row), sequences.mask.row(row)
    generated = np.flatnonzero(mask_T > 0)
    if not generated.size or len(mask_T) != len(ids_T):
        return None
    first, last = int(generated[0]), int(generated[-1]) + 1
    if last - first != generated.size:
        return None
    return ids_T[:first].tolist(), ids_T[first:last].tolist()


def _group(responses: Responses, row: int, before: Sequence[int]) -> str:
    """What responses to one prompt share."""
    if responses.groups is not None:
        return responses.groups[row]
    if before:
        return repr(list(before))
    return responses.prompts[row] if responses.prompts is not None else responses.names[row]


if __name__ == "__main__":
    contract.serve(load)
