"""A preflight from its beginning to its end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpodoctor.errors import ConfigError, DataError, GrpodoctorError, ModelError, RunError
from grpodoctor.preflight.base import Check, Remark, Skipped
from grpodoctor.preflight.checks.pass_rates import PassRates
from grpodoctor.preflight.checks.still_control import StillControl
from grpodoctor.preflight.context import Judge, Patient, Plan, Row, load_tokenizer, read_settings
from grpodoctor.preflight.judge import UserJudge
from grpodoctor.preflight.rows import check_target, training_rows, write_rows
from grpodoctor.preflight.sampled_responses import Bench
from grpodoctor.probe.engines.engine_run import EngineProgress
from grpodoctor.probe.engines.engine_runner import EngineRunner
from grpodoctor.probe.engines.jobs import BudgetSpentError
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.rules.base import SEVERITIES, Severity

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the user has asked for."""

    model: Path
    prompts: Path | None = None
    held_out: Path | None = None
    reward: str | None = None
    reward_seconds: float = 60.0
    sampler: EngineSpec | None = None
    learner: EngineSpec | None = None
    reference: EngineSpec | None = None
    templates: Mapping[str, str] = field(default_factory=dict)
    control: Path | None = None
    folder: Path
    """Where engines' answers are kept."""
    budget: float | None = None
    """Seconds for engines."""
    filtered: Path | None = None
    """Where the prompts of the right difficulty are written."""
    plan: Plan


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing that a check has to say."""

    code: str
    name: str
    remark: Remark

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return self.remark.severity


@dataclass(frozen=True, slots=True)
class NotMade:
    """A check that could not be made."""

    code: str
    name: str
    why: str
    how: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """All that a preflight has found."""

    model: str
    rows: int
    seen: tuple[Seen, ...]
    """The worst first."""
    passed: tuple[str, ...]
    """Codes of the checks that had nothing to say."""
    skipped: tuple[NotMade, ...]
    failed: tuple[NotMade, ...]
    """Checks that an engine or a reward function has ended."""
    seconds: float
    asked: int = 0
    """Prompts that an engine was asked."""
    filtered: int | None = None
    """Of these, those that were written."""

    def reaches(self, severity: str) -> bool:
        """Whether anything is at least as bad; `never` is never reached."""
        if severity not in SEVERITIES:
            return False
        worst = SEVERITIES.index(severity)
        return any(SEVERITIES.index(each.severity) >= worst for each in self.seen)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "schema_version": SCHEMA_VERSION,
            "model": self.model,
            "rows": self.rows,
            "asked": self.asked,
            "findings": [
                {
                    "code": each.code,
                    "name": each.name,
                    "severity": each.severity,
                    "summary": each.remark.summary,
                    "advice": list(each.remark.advice),
                    "details": list(each.remark.details),
                    "figures": dict(each.remark.figures),
                }
                for each in self.seen
            ],
            "passed": list(self.passed),
            "skipped": [_made(each) for each in self.skipped],
            "failed": [_made(each) for each in self.failed],
            "filtered": self.filtered,
            "seconds": round(self.seconds, 3),
        }


def _made(entry: NotMade) -> dict[str, str]:
    return {"code": entry.code, "name": entry.name, "why": entry.why, "how": entry.how}


def preflight(
    request: Request,
    checks: Sequence[Check],
    *,
    tell: Callable[[str], None] = lambda _: None,
    watch: Callable[[EngineProgress], None] = lambda _: None,
) -> Preflight:
    """Make checks, one after the other; one that an engine ends does not end the others.

    Args:
        request: what the user has asked for.
        checks: to be made.
        tell: told the name of each check before it is made.
        watch: told several times a second what an engine does.

    Raises:
        InputError: if the model, the prompts or the reward function cannot be used at all.
    """
    began = time.monotonic()
    seen: list[Seen] = []
    passed: list[str] = []
    skipped: list[NotMade] = []
    failed: list[NotMade] = []
    with examined(request, watch) as patient:
        for check in checks:
            tell(f"{check.code} {check.name}")
            try:
                outcome = check.examine(patient)
            except BudgetSpentError as error:
                skipped.append(NotMade(check.code, check.name, error.what, error.remedy))
                continue
            except GrpodoctorError as error:
                failed.append(NotMade(check.code, check.name, str(error)))
                continue
            if isinstance(outcome, Skipped):
                skipped.append(NotMade(check.code, check.name, outcome.why, outcome.how))
            elif not outcome:
                passed.append(check.code)
            else:
                seen += [Seen(check.code, check.name, remark) for remark in outcome]
        written = None
        try:
            written = _write_filtered(request, patient)
        except BudgetSpentError as error:
            skipped.append(NotMade("", "--write-filtered", error.what, error.remedy))
        except GrpodoctorError as error:
            failed.append(NotMade("", "--write-filtered", str(error)))
    return Preflight(
        model=str(request.model),
        rows=len(patient.rows),
        seen=tuple(sorted(seen, key=_badness)),
        passed=tuple(passed),
        skipped=tuple(skipped),
        failed=tuple(failed),
        seconds=time.monotonic() - began,
        asked=len(patient.bench.rows) if patient.bench else 0,
        filtered=written,
    )


def _badness(seen: Seen) -> tuple[int, str]:
    return -SEVERITIES.index(seen.severity), seen.code


@contextmanager
def examined(request: Request, watch: Callable[[EngineProgress], None]) -> Iterator[Patient]:
    """What is examined, with its engines and its reward function for as long as it lasts.

    Raises:
        InputError: if the model, the prompts or the reward function cannot be used at all.
    """
    _refuse_halves(request)
    with ExitStack() as open_things:
        rows = training_rows(request.prompts) if request.prompts else ()
        judge = None
        if request.reward:
            judge = UserJudge(request.reward, request.reward_seconds)
            open_things.callback(judge.close)
        patient = Patient(
            model=request.model,
            rows=rows,
            held_out=training_rows(request.held_out) if request.held_out else (),
            plan=request.plan,
            judge=judge,
            templates=request.templates,
            learner=request.learner,
            reference=request.reference,
            control=request.control,
            tokenizer=load_tokenizer(request.model),
            config=read_settings(request.model / "config.json"),
            generation=read_settings(request.model / "generation_config.json"),
        )
        if request.sampler is not None:
            deadline = time.monotonic() + (request.budget or float("inf"))
            lab = open_things.enter_context(_laboratory(request.folder, deadline, watch))
            bench = _bench(patient, lab, request.sampler, judge)
            with suppress(BudgetSpentError):  # the checks will say what there was no time for
                bench.prepare(request.learner, StillControl.rounds)
            patient = patient.with_bench(bench)
        yield patient


def _laboratory(
    folder: Path, deadline: float, watch: Callable[[EngineProgress], None]
) -> EngineRunner:
    """Raises: RunError: if the folder cannot be used."""
    try:
        return EngineRunner(folder, (), deadline=deadline, watch=watch)
    except RunError as error:
        raise RunError(error.what, where=error.where, remedy="give another --work") from error


def _refuse_halves(request: Request) -> None:
    """Refuse at once what would be missing after minutes of engines.

    Raises:
        ConfigError: if an option was given without another that it needs.
    """
    pairs = (
        ("--sampler", request.sampler, "--prompts", request.prompts),
        ("--held-out", request.held_out, "--prompts", request.prompts),
        ("--reward", request.reward, "--prompts", request.prompts),
        ("--learner", request.learner, "--sampler", request.sampler),
        ("--reference", request.reference, "--learner", request.learner),
        ("--template", request.templates or None, "--sampler", request.sampler),
    )
    for option, given, other, has in pairs:
        if given is not None and has is None:
            raise ConfigError(
                f"{option} was given and no {other}, which it needs", remedy=f"give {other} too"
            )
    needed = (request.sampler, request.prompts, request.reward)
    if request.filtered is not None and None in needed:
        raise ConfigError(
            "prompts cannot be filtered without their pass rates",
            where="--write-filtered",
            remedy="give --sampler, --prompts and --reward",
        )
    if request.filtered is not None:
        check_target(request.filtered, request.prompts)


def _bench(patient: Patient, lab: EngineRunner, sampler: EngineSpec, judge: Judge | None) -> Bench:
    try:
        gold = patient.gold
    except DataError:  # which REW103 tells
        gold = None
    threshold = gold.threshold if gold else None
    return Bench(
        lab, sampler, _asked(patient, sampler), patient.tokenizer, judge, threshold, patient.plan
    )


def _asked(patient: Patient, sampler: EngineSpec) -> list[Row]:
    """A seeded choice of the prompts, in the order of the file.

    Prompts that are as long as the engine's context are not asked, which it would refuse them all
    for; DAT106 tells of them.
    """
    order = list(range(len(patient.rows)))
    random.Random(patient.plan.seed).shuffle(order)  # noqa: S311 - a choice of prompts
    context = patient.context_with(sampler)
    chosen: list[int] = []
    for index in order:
        if len(chosen) == patient.plan.limit:
            break
        if context is None or _length(patient, patient.rows[index]) + 2 <= context:
            chosen.append(index)
    kept = chosen or order[: patient.plan.limit]  # if none fits, the engine is to say so
    return [patient.rows[index] for index in sorted(kept)]


def _length(patient: Patient, row: Row) -> int:
    try:
        return len(patient.render(row))
    except ModelError:  # which the checks of the template tell
        return 0


def _write_filtered(request: Request, patient: Patient) -> int | None:
    """Write the prompts of the right difficulty among those that were sampled from.

    Raises:
        DataError: if nothing tells how difficult they are, or they cannot be written.
    """
    if request.filtered is None:
        return None
    solved = patient.bench.solved() if patient.bench and patient.judge else None
    if solved is None or patient.bench is None:
        raise DataError("nothing was written: no response was judged", where="--write-filtered")
    rates = solved.mean(axis=1)
    kept: list[Row] = [
        row
        for row, rate in zip(patient.bench.rows, rates, strict=True)
        if PassRates.low <= rate <= PassRates.high
    ]
    write_rows(kept, request.filtered)
    return len(kept)
