"""`Doctor`: the instruments for a custom training loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from grpodoctor.frameworks import torch_loop
from grpodoctor.hooks.run_hook import RunHook, hook_options, timestamped_directory
from grpodoctor.hooks.torch_loop.step import DoctorStep
from grpodoctor.report.run.run_report import RunReport
from grpodoctor.rules.base import Finding
from grpodoctor.runs.rollouts import Depth
from grpodoctor.treatment.doctor import Apply
from grpodoctor.vocabulary.knobs import Setting

if TYPE_CHECKING:
    from torch import nn

    from grpodoctor.hooks.weight_delivery.canary import DeliveryCanary


class Doctor:
    """Records, diagnoses and treats a training loop.

        doctor = grpodoctor.Doctor("runs/mine", model="Qwen/Qwen3-0.6B")
        for number in range(steps):
            with doctor.step(number) as step:
                ...
                step.rollouts(tokens=tokens, mask=mask, rewards=rewards, groups=groups)
                step.logits(logits)
                step.update(loss=loss, grad_norm=grad_norm, learning_rate=learning_rate)

    No method raises into the loop or changes a number of it. What cannot be measured is reported
    by one warning line. Use it as a context manager, or close it. With several ranks, each rank
    makes the same calls with its own rows, and rank 0 writes the record.

    Args:
        run_dir: directory to record in; `runs/<time>` if None. If it already has a run, a number
            is appended.
        model: name or path of the model.
        config: the configuration of the training, for the record.
        seed: seed of the training.
        decode: turns lists of token ids into texts, such as `tokenizer.batch_decode`; used where
            a step has no texts.
        apply: remedies to apply without a person: `none`, `safe` or `unsafe`; they need knobs.
        depth: how much of each response is kept: `off`, `summary`, `worst` or `full`.
        worst: responses kept in full at depth `worst`.
        resume: continue the run in the directory.
        framework: framework whose settings the remedies show.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str] | None = None,
        *,
        model: str = "",
        config: Mapping[str, Any] | None = None,
        seed: int | None = None,
        decode: Callable[[list[list[int]]], list[str]] | None = None,
        apply: Apply = "none",
        depth: Depth = "summary",
        worst: int = 8,
        resume: bool = False,
        framework: str = torch_loop.NAME,
    ) -> None:
        options = hook_options(run_dir, apply, depth, worst)
        self._hook = RunHook(framework, options, timestamped_directory())
        self._facts: dict[str, Any] = {
            "model": model, "config": config, "seed": seed, "resume": resume,
        }  # fmt: skip
        self._decode = decode
        self._canary: DeliveryCanary | None = None
        self._next = 0
        self._is_closed = False

    def knob(
        self,
        name: str,
        get: Callable[[], object],
        set: Callable[[Any], object] | None = None,  # noqa: A002 - named as in `property`
        bounds: tuple[float, float] | None = None,
    ) -> None:
        """Register a setting of the loop; call it before the first step.

        `grpodoctor watch --apply` in another terminal, or `apply` here, can then change it between
        two steps.

        Args:
            name: canonical name, such as `learning_rate`, `clip_high` or `temperature`.
            get: returns the current setting.
            set: puts a new setting in force from the next step on; None if it cannot change.
            bounds: lowest and highest setting to accept.
        """
        self._hook.guard.run(f"knob {name}", self._add_knob, name, get, set, bounds)

    def _add_knob(
        self,
        name: str,
        get: Callable[[], object],
        set_: Callable[[Any], object] | None,
        bounds: tuple[float, float] | None,
    ) -> None:
        low, high = bounds or (None, None)
        if set_ is None:
            self._hook.knobs.read_only(name, get)
        else:
            self._hook.knobs.add(name, get=get, set=set_, low=low, high=high)

    def watch_delivery(
        self, model: nn.Module, score: Callable[[Any], object], *, staleness: int = 0
    ) -> None:
        """Check after each sync that the sampler has the learner's weights, for another engine.

        Call it before the first step, and `step.delivery` after each sync. `docs/hooks.md` explains
        the check.

        Args:
            model: the learner; its parameters are whole, not sharded over ranks.
            score: takes the `inputs` of `step.delivery` and returns the learner's log-probabilities
                of the response tokens, shape (R, T), at the sampling temperature.
            staleness: syncs by which the sampler is behind the learner by design.
        """
        self._hook.guard.run("weight delivery", self._add_canary, model, score, staleness)

    def _add_canary(self, model: nn.Module, score: Callable[[Any], object], staleness: int) -> None:
        from grpodoctor.hooks.weight_delivery.canary import DeliveryCanary

        canary = DeliveryCanary(model, score, staleness)
        if canary.obstacle:
            self._hook.missing("whether the weights reach the sampler", canary.obstacle)
        else:
            self._canary = canary

    @contextmanager
    def step(self, number: int | None = None) -> Iterator[DoctorStep]:
        """One step of the training, from sampling to the last update on the samples.

        A step that ends with an exception is not recorded; the exception passes unchanged.

        Args:
            number: number of the step; counted from 0 if None.
        """
        number = self._next if number is None else number
        self._next = number + 1
        if not self._is_closed:
            self._hook.begin(**self._facts)
        self._hook.begin_step(number)
        step = DoctorStep(number, self._hook, self._decode, self._canary)
        yield step
        self._hook.guard.run("step", step.finish)

    @property
    def run_dir(self) -> Path:
        """The run directory."""
        return self._hook.run_dir

    @property
    def knobs(self) -> dict[str, Setting]:
        """The current settings of the registered knobs."""
        return self._hook.guard.run("knobs", self._hook.knobs.settings) or {}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings so far, on rank 0; reading them takes time, so not at every step."""
        return self._hook.findings

    def report(self) -> RunReport:
        """The report of the run so far; a notebook shows it as a page.

        If nothing can be read, its verdict is the reason.
        """
        return self._hook.report()

    def close(self, *, finished: bool = True) -> None:
        """Write what is pending and release the directory; the second call does nothing.

        Args:
            finished: whether the training is complete.
        """
        self._is_closed = True
        self._hook.close(finished=finished)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(finished=kind is None)
