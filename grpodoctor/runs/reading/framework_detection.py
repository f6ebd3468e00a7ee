"""Detecting which framework wrote a log, with which settings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grpodoctor.errors import OtherTrainingError, RunError, name_some
from grpodoctor.frameworks.common_names import has_common_names
from grpodoctor.frameworks.detection import Guess, guess_frameworks
from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.objective import other_objective
from grpodoctor.frameworks.registry import (
    find_framework,
    framework_named,
    generic_framework,
    logging_frameworks,
)
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.frameworks.run_config import read_settings
from grpodoctor.frameworks.translation import Translator
from grpodoctor.runs.log_formats.base import LogReader, LogRow
from grpodoctor.runs.log_formats.registry import all_log_formats, log_format_named
from grpodoctor.runs.reading.bare_keys import metrics_of_bare_keys, question_about
from grpodoctor.runs.reading.centred_reward import (
    centred_keys,
    centred_note,
    raw_reward_among,
)
from grpodoctor.runs.reading.episode_cuts import set_episode_cuts_aside
from grpodoctor.runs.reading.heldout_accuracy import heldout_accuracy_among
from grpodoctor.runs.reading.key_words import (
    is_training_mean,
    lone_reward_among,
    reward_key_among,
    whole_reward_among,
)
from grpodoctor.runs.reading.read_notes import (
    guess_notes,
    named_framework_note,
    objective_notes,
    settings_notes,
)
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.runs.reading.rows_without_steps import episodes_of_actions, texts_of_responses
from grpodoctor.runs.reading.share_units import counts_and_percentages
from grpodoctor.runs.reading.tracker_exports import error_of_keys
from grpodoctor.runs.records import Manifest
from grpodoctor.vocabulary.knobs import Setting

_OUTCOMES = ("reward/mean", "accuracy/train")

DETECTION_ROWS = 50
"""Rows that are read before the framework is decided, unless the log ends earlier."""

_MAX_DETECTION_ROWS = 5000
"""Rows that are read if none of them has a key that only one framework uses."""


class Detection(NamedTuple):
    """The result of the detection."""

    translator: Translator
    manifest: Manifest
    notes: list[str]


class FrameworkDetector:
    """Detects the framework of a run's logs.

    Args:
        path: the log, or the directory of logs.
        options: the user's options; they may name the framework or the file format.

    Raises:
        ConfigError: if the options name an unknown format.
    """

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self._path, self._options = path, options
        self._named: Framework | None = None
        self._guesses: tuple[frozenset[str], list[Guess]] = (frozenset(), [])
        """The latest keys, and the frameworks that may have logged them."""
        self.format_name: str | None = None
        """File format that the user named."""
        if options.format is None:
            return
        if log_format_named(options.format) is not None:
            self.format_name = options.format
        else:
            formats = [log_format.name for log_format in all_log_formats()]
            self._named = framework_named(options.format, file_formats=formats)

    @property
    def row_keys(self) -> RowKeys:
        """Keys of the step and the time in a row."""
        return self._named.row_keys if self._named else RowKeys()

    def detect(
        self,
        rows: Sequence[LogRow],
        readers: Sequence[LogReader],
        formats: Sequence[str],
        *,
        ended: bool,
        quiet: bool,
    ) -> Detection | None:
        """Detect the framework; None if more rows are needed.

        Args:
            rows: all rows so far.
            readers: readers of the logs, which may contain the run's config.
            formats: file formats of the rows' logs.
            ended: whether there are no more rows.
            quiet: whether no row was written recently.

        Raises:
            RunError: if no framework uses these keys, or there are no numbers.
        """
        keys = {key for row in rows for key in row.values}
        if self._named is not None:
            framework, notes = self._named, [named_framework_note(self._named, formats)]
        else:
            decided = ended or len(rows) >= _MAX_DETECTION_ROWS
            guess = self._guess(keys, formats, decided=decided, quiet=quiet)
            if guess is None:
                return None
            framework, notes = guess
            is_mapped = not keys.isdisjoint(self._options.mapping)
            objective = "" if is_mapped else other_objective(framework, keys)
            if objective and not decided:
                return None  # rows of reinforcement learning may follow
            if objective:
                raise self._other_objective_error(objective)
            if not is_mapped and (texts := texts_of_responses(rows)):
                raise self._responses_error(texts)
            if not is_mapped and (episode := episodes_of_actions(rows)):
                raise self._episodes_error(episode)
        settings = {**_hints(framework, rows), **self._settings(framework, readers)}
        if self._named is None:
            notes += objective_notes(framework, keys, settings)
        translator = Translator(
            framework,
            settings,
            str(settings.get(framework.version_key, "")),
            own=self._options.mapping,
            generic=generic_framework(),
        )
        for layout in dict.fromkeys(tuple(row.values) for row in rows):
            translator.readings(dict.fromkeys(layout, math.nan))
        translator.correct_shares(*counts_and_percentages(rows))
        set_episode_cuts_aside(translator, keys, self._options.mapping)
        notes += _find_reward(translator, rows, self._options.mapping)
        notes += _find_heldout_accuracy(translator, rows, self._options.mapping)
        manifest = _manifest(framework, settings)
        notes += settings_notes(translator, manifest.knobs)
        return Detection(translator, manifest, notes)

    def _guess(
        self, keys: set[str], formats: Sequence[str], *, decided: bool, quiet: bool
    ) -> tuple[Framework, list[str]] | None:
        """The framework by its keys; None to wait for more rows.

        A job may print much else before the first row of a training step.
        """
        if keys != self._guesses[0]:
            self._guesses = frozenset(keys), guess_frameworks(keys)
        candidates = self._guesses[1]
        decided = decided or bool(candidates and quiet)
        if not decided and not (candidates and candidates[0].signature):
            return None
        if candidates:
            return candidates[0].framework, guess_notes(candidates, formats)
        if not keys.isdisjoint(self._options.mapping):
            return generic_framework(), [
                f"read by --map only: none of the other {len(keys)} keys is known"
            ]
        if has_common_names(generic_framework(), keys):
            return generic_framework(), ["no framework logs these keys; common names are read"]
        if objective := other_objective(generic_framework(), keys):
            raise self._other_objective_error(objective)
        raise self._unknown_keys_error(keys)

    def _responses_error(self, texts: list[str]) -> RunError:
        return RunError(
            f"each row is one response ({name_some(texts)}) without a step, not a step of the "
            "training",
            where=str(self._path),
            remedy="pass the log of the training; pass a dump of its responses as a part of the "
            "run's directory",
        )

    def _episodes_error(self, column: str) -> RunError:
        return RunError(
            f"each row is one action: the step begins again with every value of {column}",
            where=str(self._path),
            remedy="pass the log of the training, which has a row for each update",
        )

    def _other_objective_error(self, objective: str) -> OtherTrainingError:
        return OtherTrainingError(
            objective,
            where=str(self._path),
            remedy="pass the log of a GRPO run; if this is one, name the key of its reward with "
            "--map KEY=reward/mean",
        )

    def _unknown_keys_error(self, keys: set[str]) -> RunError:
        where = str(self._path)
        if keys and all(key.startswith("console/") for key in keys):  # prose with labels
            return RunError(
                "no line of the text has a step and a known metric",
                where=where,
                remedy="pass the metrics that the trainer saves, or print one line per step, such "
                "as `step=12 reward_mean=0.41 response_length=230`",
            )
        if keys == _ONE_SCALAR:
            return RunError(
                "TensorBoard exported one scalar without its name",
                where=where,
                remedy="pass the event file (events.out.tfevents.*), which has all of them",
            )
        if error := error_of_keys(self._path, keys):
            return error
        if bare := metrics_of_bare_keys(keys):
            return RunError(
                f"the keys do not state what they measure: {name_some(sorted(bare))}",
                where=where,
                remedy=question_about(bare),
            )
        if keys:
            return RunError(
                f"no known framework logs these keys: {name_some(sorted(keys))}",
                where=where,
                remedy="name the framework with --format, or propose a mapping with --suggest-map",
            )
        if self.format_name:
            return RunError(
                f"read as {self.format_name}, the log has no training metrics",
                where=where,
                remedy="remove --format",
            )
        return RunError(
            "the log has no training metrics",
            where=where,
            remedy="pass the file or directory that has the log",
        )

    def manifest_of_dumps(self, writer: str, readers: Sequence[LogReader]) -> Manifest:
        """The manifest of a run that has only rollout dumps.

        Args:
            writer: name of the framework that wrote the dumps.
            readers: readers of the logs, if there are any.
        """
        framework = find_framework(writer, logging_frameworks())
        if framework is None:
            return Manifest(framework=writer)
        return _manifest(framework, self._settings(framework, readers))

    def _settings(self, framework: Framework, readers: Sequence[LogReader]) -> dict[str, Any]:
        configs = [reader.config for reader in readers if reader.config]
        paths = [reader.path for reader in readers]
        return read_settings(self._path, framework, configs, self._options.run_config, paths)


_ONE_SCALAR = {"Wall time", "Value"}
"""Columns of a CSV file that TensorBoard's page exports, besides the step."""


def _find_reward(
    translator: Translator, rows: Sequence[LogRow], mapping: Mapping[str, str]
) -> list[str]:
    """Read the only key that is named like a reward as the reward, if no known key holds it.

    Without such a key, the only component of the reward that is named like the whole is it.
    """
    counts = Counter(key for row in rows for key in row.values)
    centred = _set_centred_aside(translator, rows, counts.keys() - mapping.keys())
    if not translator.metrics.isdisjoint(_OUTCOMES):
        return [centred_note(centred, "")] if centred else []
    unknown = {key: counts[key] for key in counts if translator.is_unmapped(key)}
    components = {
        key: counts[key]
        for key in translator.component_keys
        if is_training_mean(key) and key not in centred
    }
    raw = raw_reward_among({**unknown, **components}) if centred else ""
    key = raw or reward_key_among(unknown) or reward_key_among(_nonzero(unknown, rows))
    key = key or whole_reward_among(components)
    reason = "because of its name"
    if not key and (key := lone_reward_among(components)):
        reason = "since the log has no other reward"
    notes = [centred_note(centred, raw)] if centred else []
    if not key:
        translator.unused.components = tuple(components)
        return notes
    translator.read_as(key, "reward/mean")
    notes = notes or [
        f"no known key holds the reward; {key} is read as reward/mean {reason}, which "
        f"`--map {key}=METRIC` overrides"
    ]
    heldout = f"eval/{key}"
    if heldout in unknown and "reward/heldout" not in translator.metrics:
        translator.read_as(heldout, "reward/heldout")
        notes.append(f"{heldout} is read as reward/heldout, like {key}")
    return notes


def _nonzero(counts: Mapping[str, int], rows: Sequence[LogRow]) -> dict[str, int]:
    """The keys that are not zero in every row: a component that is not in use is no reward."""
    return {key: count for key, count in counts.items() if any(row.values.get(key) for row in rows)}


def _find_heldout_accuracy(
    translator: Translator, rows: Sequence[LogRow], mapping: Mapping[str, str]
) -> list[str]:
    """Read an accuracy that is also logged before the training as one on held-out prompts."""
    if "accuracy/heldout" in translator.metrics:
        return []
    keys = tuple(dict.fromkeys(key for row in rows for key in row.values))
    metrics = translator.metrics_of(keys)
    reward = next((key for key, metric in metrics.items() if metric == "reward/mean"), "")
    key = heldout_accuracy_among(rows, reward)
    if not key or key in mapping:
        return []
    translator.read_as(key, "accuracy/heldout")
    return [
        f"{key} is read as accuracy/heldout, because it was measured before the first reward; "
        f"`--map {key}=accuracy/train` overrides this"
    ]


def _set_centred_aside(
    translator: Translator, rows: Sequence[LogRow], keys: Iterable[str]
) -> set[str]:
    """Read rewards that are zero by construction as advantages; return their keys."""
    centred = centred_keys(rows, keys)
    for key, metric in translator.metrics_of(tuple(centred)).items():
        if metric == "reward/mean":
            translator.read_as(key, "advantage/mean")
    return centred


def _manifest(framework: Framework, settings: Mapping[str, Any]) -> Manifest:
    knobs = framework.knobs.read(settings)
    return Manifest(framework=framework.name, knobs=knobs, config=dict(settings))


def _hints(framework: Framework, rows: Sequence[LogRow]) -> Mapping[str, Setting]:
    """Settings that follow from the logged numbers."""
    if framework.infer_settings is None:
        return {}
    first = rows[:DETECTION_ROWS]
    bare = {key: framework.bare_key(key) for key in {key for row in first for key in row.values}}
    return framework.infer_settings(
        [{bare[key]: value for key, value in row.values.items()} for row in first]
    )
