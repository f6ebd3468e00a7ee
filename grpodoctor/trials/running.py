"""Training one run of a trial, and reading its result."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from grpodoctor.errors import ConfigError
from grpodoctor.remedies.catalogue import all_remedies, remedy_of
from grpodoctor.rules.catalogue import all_rules
from grpodoctor.rules.engine import Engine
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.runs.records import StepRecord
from grpodoctor.trials.registry import experiment_of
from grpodoctor.trials.results import RESULT, Alarm, Evaluation, RunResult, RunSpec, failed
from grpodoctor.trials.trial import BASE_SETTINGS, Arm, Experiment, Treated
from grpodoctor.vocabulary.values import scalar

if TYPE_CHECKING:
    from grpodoctor.trainer.config.train_config import TrainConfig
    from grpodoctor.trainer.loop import StepReport

_LAST_SHARE = 4
"""A metric's level at the end is its mean over the last quarter of the steps."""


def config_of(trial: Experiment, arm: str, seed: int, steps: int | None = None) -> TrainConfig:
    """The configuration of a run.

    Raises:
        ConfigError: if a setting is unknown or out of bounds, or the remedy changes nothing.
    """
    chosen = trial.arms[arm]
    # The first seed has the weights of the default warm start, which is usually cached.
    fixed = (f"seed={seed}", f"model.initial_seed={seed - 1}", f"steps={steps or trial.steps}")
    common = (*BASE_SETTINGS, *fixed, *trial.settings)
    if isinstance(chosen, Arm):
        return _load(chosen.preset, (*common, *chosen.settings))
    disease = trial.disease
    preset = chosen.preset or disease.preset
    if chosen.preset or chosen.settings or chosen.removes_fault:
        return _load(preset, (*common, *disease.settings, *chosen.settings))
    return _remedied(_load(preset, (*common, *disease.settings)), chosen, trial)


def _load(preset: str | None, assignments: Iterable[str]) -> TrainConfig:
    from grpodoctor.trainer.config.presets import preset_of
    from grpodoctor.trainer.config.train_config import load_config

    layers = [preset_of(preset).settings] if preset else []
    return load_config(*layers, assignments=assignments)


def _remedied(config: TrainConfig, treated: Treated, trial: Experiment) -> TrainConfig:
    from grpodoctor.trainer.config.knobs import apply_change, knobs_of

    change = remedy_of(treated.remedy).change(knobs_of(config))
    if not change:
        raise ConfigError(
            f"the remedy {treated.remedy} changes no setting",
            where=f"trial {trial.name}",
            remedy="give the settings of the treated arm",
        )
    return apply_change(config, change)


def fault_of(trial: Experiment, arm: str) -> str | None:
    """The fault that is injected into an arm; None for none."""
    chosen = trial.arms[arm]
    if isinstance(chosen, Arm):
        return chosen.fault
    return trial.faults.get(arm, None if chosen.removes_fault else trial.disease.fault)


def spec_of(trial: Experiment, arm: str, seed: int, steps: int | None = None) -> RunSpec:
    """The run of an arm with a seed.

    Raises:
        ConfigError: as `config_of`.
    """
    config = config_of(trial, arm, seed, steps)
    facts = [config.model_dump(mode="json"), fault_of(trial, arm)]
    if trial.environment is not None:
        facts.append(trial.environment)
    digest = hashlib.sha256(orjson.dumps(facts)).hexdigest()[:16]
    return RunSpec(trial.name, arm, seed, config.steps, digest)


def stored_results(root: Path) -> dict[str, RunResult]:
    """The results of all runs below a directory, by fingerprint.

    Raises:
        RunError: if a stored result is damaged.
        OSError: if one cannot be read.
    """
    paths = sorted(root.glob(f"*/*/*/{RESULT}"))
    return {result.spec.fingerprint: result for result in map(RunResult.read, paths)}


def train(spec: RunSpec, root: Path) -> RunResult:
    """Train a run and store its result; a run that fails is a result too.

    The run is trained in a folder of another name, so that an interrupted one is repeated.
    """
    from grpodoctor.trainer.model.warm_start import warm_start_kind

    folder = root / spec.folder
    unfinished = folder.with_name(f"unfinished-{spec.seed}")
    for leftover in (unfinished, folder):
        shutil.rmtree(leftover, ignore_errors=True)
    began = time.monotonic()
    try:
        evaluations = tuple(_train(spec, unfinished))
        seconds = round(time.monotonic() - began, 1)
        trained = RunResult(
            spec, "done", evaluations=evaluations, seconds=seconds, warm_start=warm_start_kind()
        )
        result = examined(trained, unfinished)
        result.write(unfinished)
        unfinished.rename(folder)
    except Exception as error:  # noqa: BLE001 - one run that fails must not end the others
        return failed(spec, f"{type(error).__name__}: {error}"[:300])
    return result


def _train(spec: RunSpec, run_dir: Path) -> list[Evaluation]:
    """Train; return the evaluations."""
    from grpodoctor.trainer.loop import Trainer
    from grpodoctor.trials import environments, faults
    from grpodoctor.trials.meter import Meter
    from grpodoctor.trials.true_accuracy import TrueAccuracy

    trial = experiment_of(spec.trial)
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    config = config_of(trial, spec.arm, spec.seed, spec.steps)
    trainer = Trainer(config, run_dir)
    if trial.environment is not None:
        getattr(environments, trial.environment)(trainer)
    fault = fault_of(trial, spec.arm)
    if fault is not None:
        getattr(faults, fault)(trainer)
    meter, accuracy, passes = Meter(trainer), TrueAccuracy(trainer), dict[int, int]()

    def count(report: StepReport) -> None:
        passes[report.step] = meter.passes

    trainer.run(count)
    return [Evaluation(step, value, passes[step]) for step, value in accuracy.by_step.items()]


def examined(result: RunResult, run_dir: Path) -> RunResult:
    """The result with the alarms of today's rules and the levels of the metrics in its run.

    Raises:
        RunError: if the record of the run is missing.
    """
    run = read_run(run_dir)
    records = list(run.steps)
    engine = Engine(all_rules(), run.manifest)
    return replace(result, alarms=tuple(_alarms(engine, records)), levels=_levels(records))


def _value(record: StepRecord, metric: str) -> float | None:
    reading = record.values.get(metric)
    return None if reading is None else scalar(reading)


def _alarms(engine: Engine, records: list[StepRecord]) -> Iterable[Alarm]:
    """The first alarm of each rule, with the highest severity that it reached."""
    first: dict[str, Alarm] = {}
    for change in (change for record in records for change in engine.observe(record)):
        finding = change.finding
        if change.kind == "resolved":
            continue
        alarm = Alarm(finding.code, finding.severity, change.step, finding.onset_step)
        known = first.get(finding.code)
        if known is None or (alarm.is_loud and not known.is_loud):
            first[finding.code] = alarm
        elif alarm.rank > known.rank:
            first[finding.code] = replace(known, severity=alarm.severity)
    return first.values()


def _levels(records: list[StepRecord]) -> dict[str, float]:
    """Mean of each metric that is the target of any remedy, over the last steps."""
    targets = {target.metric for remedy in all_remedies() for target in remedy.targets}
    last = records[-max(1, len(records) // _LAST_SHARE) :]
    levels = {}
    for metric in sorted(targets):
        values = [value for each in last if (value := _value(each, metric)) is not None]
        if values:
            levels[metric] = sum(values) / len(values)
    return levels
