"""Running a preflight: load the inputs, run the checks, collect the results."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from grpodoctor.errors import DataError, GrpodoctorError, ModelError, RunError
from grpodoctor.preflight.answers.inferred_answers import (
    InferredAnswers,
    are_results_of,
    infer_answers,
    solved_puzzles,
)
from grpodoctor.preflight.answers.other_tasks import rows_with_rewards
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.checks.engines.zero_learning_rate import ZeroLearningRate
from grpodoctor.preflight.checks.responses.pass_rates import PassRates
from grpodoctor.preflight.config_lint import ConfigResults, check_config
from grpodoctor.preflight.context import ModelFiles, NoModelError, PreflightContext
from grpodoctor.preflight.inputs.columns import ANSWER_COLUMNS
from grpodoctor.preflight.inputs.filtered_rows import write_rows
from grpodoctor.preflight.inputs.prompt_rows import PromptRow, PromptTable, read_prompt_table
from grpodoctor.preflight.inputs.request import PreflightRequest
from grpodoctor.preflight.results.check_results import SkippedCheck
from grpodoctor.preflight.results.preflight_results import (
    PreflightFinding,
    PreflightResults,
    UnfinishedCheck,
)
from grpodoctor.preflight.sampling.sampled_responses import ResponseSampler
from grpodoctor.probe.engines.engine_run import EngineProgress
from grpodoctor.probe.engines.engine_runner import EngineRunner
from grpodoctor.probe.engines.jobs import BudgetSpentError
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.inputs.prompt_columns import PROMPT_COLUMNS
from grpodoctor.rules.base import SEVERITIES, Rule
from grpodoctor.support.defects import defect_of
from grpodoctor.trainer.rewards.user_reward import UserReward


def run_preflight(
    request: PreflightRequest,
    checks: Sequence[Check],
    config_rules: Sequence[Rule] = (),
    *,
    on_check: Callable[[str], None] = lambda _: None,
    on_progress: Callable[[EngineProgress], None] = lambda _: None,
) -> PreflightResults:
    """Run checks one after the other; a check that fails does not stop the others.

    Without a model, the checks of the prompts and the reward run that do not read its files;
    without prompts too, only the configuration is checked.

    Args:
        request: the user's options.
        checks: the checks to run.
        config_rules: the rules about the configuration to examine.
        on_check: called with code and name before each check.
        on_progress: called several times a second while an engine runs.

    Raises:
        InputError: if the model, the prompts, the reward function or the config cannot be used.
    """
    started = time.monotonic()
    request.validate()
    config = check_config(request.run_config, request.framework, config_rules)
    if request.model is None and request.prompts is None:
        return _results_of_config(request, config, checks, started)
    collector = _Collector()
    with _open_context(request, on_progress, config) as context:
        for check in checks:
            on_check(f"{check.code} {check.name}")
            collector.run(check, context)
        filtered_rows = collector.write_filtered(request, context)
    return PreflightResults(
        model=str(request.model or request.prompts),
        rows=len(context.rows),
        whole_file=context.table.is_complete,
        findings=tuple(sorted((*collector.findings, *config.findings), key=_most_severe_first)),
        passed=(*collector.passed, *config.passed),
        skipped=(*collector.skipped, *config.skipped),
        failed=tuple(collector.failed),
        seconds=time.monotonic() - started,
        sampled_rows=len(context.sampler.rows) if context.sampler else 0,
        filtered_rows=filtered_rows,
        reward=context.reward.description if context.reward else "",
    )


def _results_of_config(
    request: PreflightRequest, config: ConfigResults, checks: Sequence[Check], started: float
) -> PreflightResults:
    """The results of a preflight without a model and prompts."""
    collector = _Collector()
    context = PreflightContext(
        files=None, rows=(), settings=request.settings, framework=config.framework,
        run_config=config.settings, reward_weights=config.reward_weights,
    )  # fmt: skip
    for check in checks if config.reward_weights else ():
        if check.reads_config_only:
            collector.run(check, context)
    others = UnfinishedCheck(
        "",
        "model, data, reward and engines",
        "no model and no prompts were given",
        "pass --model DIR, --prompts FILE and --reward FILE.py:FUNCTION",
    )
    return PreflightResults(
        model=str(request.run_config),
        rows=0,
        findings=tuple(sorted((*collector.findings, *config.findings), key=_most_severe_first)),
        passed=(*collector.passed, *config.passed),
        skipped=(*config.skipped, others),
        failed=tuple(collector.failed),
        seconds=time.monotonic() - started,
        settings_framework=config.framework,
    )


def _defect(check: Check, error: Exception) -> UnfinishedCheck:
    """A check that raised: a fault of the check, not of the user's input."""
    what, where = defect_of(error)
    return UnfinishedCheck(check.code, check.name, f"{what} ({where})", "please report it")


class _Collector:
    """Collects results while checks run."""

    def __init__(self) -> None:
        self.findings: list[PreflightFinding] = []
        self.passed: list[str] = []
        self.skipped: list[UnfinishedCheck] = []
        self.failed: list[UnfinishedCheck] = []

    def run(self, check: Check, context: PreflightContext) -> None:
        """Run one check."""
        try:
            result = check.examine(context)
        except GrpodoctorError as error:
            self._failed(check.code, check.name, error)
            return
        except (MemoryError, OSError):
            raise  # a fault of the machine, which ends the other checks as well
        except Exception as error:  # noqa: BLE001 - a defect of one check must not end the others
            self.failed.append(_defect(check, error))
            return
        if isinstance(result, SkippedCheck):
            self.skipped.append(
                UnfinishedCheck(check.code, check.name, result.reason, result.remedy)
            )
        elif not result:
            self.passed.append(check.code)
        else:
            self.findings += [
                PreflightFinding(check.code, check.name, finding) for finding in result
            ]

    def write_filtered(self, request: PreflightRequest, context: PreflightContext) -> int | None:
        """Write the prompts of suitable difficulty, if the user asked for them."""
        try:
            return _write_filtered(request.filtered, context)
        except GrpodoctorError as error:
            self._failed("", "--write-filtered", error)
            return None

    def _failed(self, code: str, name: str, error: GrpodoctorError) -> None:
        if isinstance(error, BudgetSpentError | NoModelError):
            self.skipped.append(UnfinishedCheck(code, name, error.what, error.remedy))
        else:
            self.failed.append(UnfinishedCheck(code, name, str(error)))


def _most_severe_first(finding: PreflightFinding) -> tuple[int, str]:
    return -SEVERITIES.index(finding.severity), finding.code


@contextmanager
def _open_context(
    request: PreflightRequest,
    on_progress: Callable[[EngineProgress], None],
    config: ConfigResults,
) -> Iterator[PreflightContext]:
    """Load the inputs; yields them with running engines and reward function, and ends these.

    Raises:
        InputError: if the model, the prompts or the reward function cannot be used.
    """
    with ExitStack() as stack:
        table = _read_table(request.prompts, request)
        reward = _open_reward(request, table.rows, stack)
        own = rows_with_rewards(reward, table.rows) if reward else table.rows
        inferred = _inferred_answers(request, reward, own)
        has_column = inferred is not None and bool(inferred.column)
        context = PreflightContext(
            files=ModelFiles.read(request.model) if request.model else None,
            rows=inferred.rows if inferred and has_column else table.rows,
            scored_rows=inferred.rows if inferred else own if len(own) < len(table.rows) else (),
            table=table,
            held_out=_read_table(request.held_out, request).rows,
            answer_column=inferred.column if inferred else request.columns.answer,
            framework=config.framework,
            run_config=config.settings,
            stop_strings=config.stop_strings,
            reward_weights=config.reward_weights,
            config_contents=config.contents,
            has_unscored_rows=len(own) < len(table.rows),
            settings=request.settings.completed_by(config.settings),
            reward=reward,
            templates=request.templates,
            learner=request.learner,
            reference=request.reference,
            control=request.control,
            filtered=request.filtered,
        )
        if request.sampler is not None:
            deadline = time.monotonic() + (request.budget or float("inf"))
            runner = stack.enter_context(_engine_runner(request.folder, deadline, on_progress))
            sampler = _response_sampler(context, runner, request.sampler)
            with suppress(BudgetSpentError):  # the checks report what they had no time for
                sampler.prepare(request.learner, ZeroLearningRate.rounds)
            context = context.with_sampler(sampler)
        yield context


def _read_table(path: Path | None, request: PreflightRequest) -> PromptTable:
    return read_prompt_table(path, request.columns) if path else PromptTable()


def _open_reward(
    request: PreflightRequest, rows: Sequence[PromptRow], stack: ExitStack
) -> UserReward | None:
    if not request.reward:
        return None
    reward = UserReward(
        request.reward,
        seconds=request.reward_seconds,
        columns={str(name) for row in rows for name in row.columns},
        option="--reward",
        seconds_option="--reward-seconds",
    )
    stack.callback(reward.close)
    return reward


def _inferred_answers(
    request: PreflightRequest, reward: UserReward | None, rows: Sequence[PromptRow]
) -> InferredAnswers | None:
    """Answers in a column that only the reward function knows, if no usual column has any.

    The target of a number puzzle stands in a usual column, but is no answer to it.
    """
    if reward is None or request.columns.answer:
        return None
    if solved := solved_puzzles(reward, rows, request.settings):
        return solved
    has_answers = any(row.answer is not None for row in rows)
    if has_answers and not _reads_another_column(reward, rows):
        return None
    found = infer_answers(reward, rows, request.settings)
    if has_answers and found and not are_results_of(found.rows, rows):
        return None  # tests of the programs in the usual column, for example, or a level
    return found


def _reads_another_column(reward: UserReward, rows: Sequence[PromptRow]) -> bool:
    """Whether the function names columns as parameters, but not the one that has the answers.

    A table may have worked solutions in a usual column and their results in another one.
    """
    columns = {str(name) for row in rows for name in row.columns}
    read = {*reward.parameters, *reward.keywords}
    used = next((name for name in ANSWER_COLUMNS if name in columns), "")
    if not used or used in read or read & {"answers", "ground_truth", "ground_truths"} - columns:
        return False
    prompts = {*PROMPT_COLUMNS, *(row.prompt_column for row in rows)}
    return bool({*reward.parameters} & columns - prompts)


def _engine_runner(
    folder: Path, deadline: float, on_progress: Callable[[EngineProgress], None]
) -> EngineRunner:
    """Raises: RunError: if the folder cannot be used."""
    try:
        return EngineRunner(folder, (), deadline=deadline, watch=on_progress)
    except RunError as error:
        raise RunError(
            error.what, where=error.where, remedy="pass another directory with --work"
        ) from error


def _response_sampler(
    context: PreflightContext, runner: EngineRunner, engine: EngineSpec
) -> ResponseSampler:
    try:
        answers = context.reference_answers
    except DataError:  # REW103 reports it
        answers = None
    return ResponseSampler(
        runner,
        engine,
        _rows_to_sample(context, engine),
        tokenizer=context.tokenizer,
        reward=context.reward,
        threshold=answers.threshold if answers else None,
        settings=context.settings,
    )


def _rows_to_sample(context: PreflightContext, engine: EngineSpec) -> list[PromptRow]:
    """A seeded choice of the prompts, in the order of the file.

    Prompts as long as the engine's context are left out, because the engine would refuse the whole
    batch; DAT106 reports them.
    """
    order = list(range(len(context.rows)))
    random.Random(context.settings.seed).shuffle(order)  # noqa: S311 - a choice of prompts
    limit, context_length = context.settings.limit, context.context_length_with(engine)
    chosen: list[int] = []
    for index in order:
        if len(chosen) == limit:
            break
        if context_length is None or _length(context, context.rows[index]) + 2 <= context_length:
            chosen.append(index)
    kept = chosen or order[:limit]  # if no prompt fits, the engine reports that
    return [context.rows[index] for index in sorted(kept)]


def _length(context: PreflightContext, row: PromptRow) -> int:
    try:
        return len(context.render(row))
    except ModelError:  # the checks of the template report it
        return 0


def _write_filtered(path: Path | None, context: PreflightContext) -> int | None:
    """Write the sampled prompts of suitable difficulty.

    Raises:
        DataError: if the pass rates are unknown, or the file cannot be written.
    """
    if path is None:
        return None
    sampler = context.sampler
    solved = sampler.solved() if sampler and context.reward else None
    if sampler is None or solved is None:
        raise DataError("nothing was written: no response has a reward", where="--write-filtered")
    rates = solved.mean(axis=1)
    kept = [
        row
        for row, rate in zip(sampler.rows, rates, strict=True)
        if PassRates.min_pass_rate <= rate <= PassRates.max_pass_rate
    ]
    write_rows(kept, path)
    return len(kept)
