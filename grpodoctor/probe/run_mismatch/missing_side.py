"""Errors about runs without log-probabilities of both sides: what is missing, what records it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from grpodoctor.errors import GrpodoctorError, RunError
from grpodoctor.frameworks.bundled.rollouts import complete_columns
from grpodoctor.frameworks.rollout_formats.base import DamageLog, DumpFormat, FilePart
from grpodoctor.probe.run_mismatch.run_source import manifest_of
from grpodoctor.runs.records import Manifest

_NATIVE = "grpodoctor"
_SIDES = {"sampler_logprobs": "sampler", "learner_logprobs": "learner"}
_PART_BYTES = 1 << 22
_ANY = "record log-probabilities of both sides as docs/probe.md describes for `recorded`"
_OTHER_DUMPS = "use dumps of grpodoctor, prime-rl, NeMo RL or slime, which have them"
_ATTACH = "record whole responses with attach(trainer, depth='full')"
_BUNDLED = "record whole responses with --set record.depth=full"
_OF_DUMPS = {
    "prime-rl": "set trainer.enable_token_export=true",
    "slime": "give it --dump-details DIR, and name train_data in it",
    "nemo-rl": "keep the files train_data_step*.jsonl that NeMo RL logs, and leave "
    "loss_fn.force_on_policy_ratio off, which puts zeros there for the learner",
    "trl": "record both sides with grpodoctor.attach(trainer, depth='full') and use_vllm=True, "
    "because the completions that TRL logs have no log-probabilities",
    "verl": "add rollout_log_probs, old_log_probs and responses to the rows of "
    "trainer.rollout_data_dir, because verl saves no log-probabilities per token",
}
"""How the dumps of a framework get both sides, by its name."""
_NOT_ATTACHED = frozenset({"verl"})
"""Frameworks whose hooks record no whole responses, so that only their dumps hold both sides."""
_OF_LOGS = {
    "trl": "use_vllm=True",
    "verl": "actor_rollout_ref.rollout.calculate_log_probs=True",
}
"""The setting with which a framework logs the mean mismatch, by its name."""
_OF_SAMPLERS = {
    "trl": "TRL returns them only with use_vllm=True; otherwise it samples with the learner itself",
    "ms-swift": "ms-swift returns them only with use_vllm=True",
    "verl": "set actor_rollout_ref.rollout.calculate_log_probs=True",
    "torch": "pass sampler_logprobs to step.rollouts",
}
"""How a recording at depth `full` gets the sampler's values, by the framework that is recorded."""


def with_logged_alternative(error: RunError, run: Path) -> RunError:
    """The error with the setting that logs the mean mismatch at least, where it is known."""
    setting = _OF_LOGS.get(manifest_of(run).framework)
    if setting is None:
        return error
    remedy = f"{error.remedy}; {setting} alone logs the mean mismatch of each step"
    return RunError(error.what, where=error.where, remedy=remedy)


def no_dump(run: Path) -> RunError:
    """The error for a run without rollouts."""
    manifest = manifest_of(run)
    is_attached = manifest.run_id and manifest.framework not in _NOT_ATTACHED
    remedy = _of_depth(manifest) if is_attached else _OF_DUMPS.get(manifest.framework, _ANY)
    return RunError("the run has no rollout dump of a known format", where=str(run), remedy=remedy)


def empty_files(paths: Sequence[Path]) -> RunError:
    """The error for rollout dumps of 0 bytes.

    Args:
        paths: the empty files, at least one.
    """
    more = len(paths) - 1
    what = f"the file and {more} more have 0 bytes" if more else "the file has 0 bytes"
    return RunError(
        f"no rollout dump: {what}",
        where=str(paths[0]),
        remedy="copy it again from the disk of the trainer, or record the step again",
    )


def missing_side(run: Path, dumps: Sequence[tuple[DumpFormat, Path]]) -> RunError:
    """The error for a run whose rollouts lack the log-probabilities of a side.

    Args:
        run: the run's directory, or a dump.
        dumps: its rollout dumps, with their formats.
    """
    names = ", ".join(sorted({form.name for form, _ in dumps}))
    recorded = _recorded(dumps)
    missing = [side for column, side in _SIDES.items() if column not in recorded]
    if not missing:
        return RunError(
            f"no token of the rollouts ({names}) has finite log-probabilities of both sides",
            where=str(run),
            remedy="run `grpodoctor check` on it",
        )
    whose = " and ".join(missing) if len(missing) == 2 else f"the {missing[0]}"
    return RunError(
        f"the rollouts ({names}) hold no log-probabilities of {whose}, so there is no mismatch to "
        "judge",
        where=str(run),
        remedy=_remedy(run, dumps, recorded, missing),
    )


def recording_advice(run: Path, dumps: Sequence[tuple[DumpFormat, Path]]) -> str:
    """How a run gets log-probabilities of both sides, as an instruction."""
    recorded = _recorded(dumps)
    missing = [side for column, side in _SIDES.items() if column not in recorded]
    return _remedy(run, dumps, recorded, missing)


def _remedy(
    run: Path,
    dumps: Sequence[tuple[DumpFormat, Path]],
    recorded: frozenset[str],
    missing: Sequence[str],
) -> str:
    """One instruction for each framework that wrote a dump."""
    remedies: list[str] = []
    for writer in sorted({form.framework for form, _ in dumps}):
        if writer != _NATIVE:
            remedies.append(_OF_DUMPS.get(writer, _OTHER_DUMPS))
            continue
        manifest = manifest_of(run)
        is_full = "token_ids" in recorded
        remedies += [] if is_full else [_of_depth(manifest)]
        if "sampler" in missing and (is_full or _samples_itself(manifest.config)):
            remedies.append(_OF_SAMPLERS.get(manifest.framework, _ANY))
        elif is_full:
            remedies.append(_ANY)
    return "; ".join(dict.fromkeys(remedies))


def _of_depth(manifest: Manifest) -> str:
    if not manifest.run_id:  # the rollouts alone do not say who recorded them
        return f"{_ATTACH} or --set record.depth=full"
    return _BUNDLED if manifest.framework == _NATIVE else _ATTACH


def _samples_itself(config: Mapping[str, object]) -> bool:
    """Whether TRL samples with the learner's own module, as it does by default."""
    return config.get("use_vllm") is False


def _recorded(dumps: Sequence[tuple[DumpFormat, Path]]) -> frozenset[str]:
    """The columns per token that the last dump holds of all its responses."""
    form, path = max(dumps, key=lambda dump: (dump[0].step_of(dump[1]) or -1, str(dump[1])))
    notes = DamageLog()
    try:
        start, stop = form.cut(path, _PART_BYTES)[-1]
        part = FilePart(str(path), start, stop, form.step_of(path))
        if form.framework == _NATIVE:
            return complete_columns(part, notes)
        responses = next(iter(form.read(part, notes)))
    except (GrpodoctorError, OSError, ValueError, IndexError, StopIteration):
        return frozenset()
    sides = {"sampler_logprobs": responses.sampler, "learner_logprobs": responses.learner}
    return frozenset(name for name, column in sides.items() if column is not None)
