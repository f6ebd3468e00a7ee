"""KLD101."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from grpodoctor.preflight.base import Check, Outcome, Remark
from grpodoctor.preflight.checks.mismatch import K3, LARGEST, NEEDS_PAIR, figure
from grpodoctor.preflight.context import Patient
from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.contract import Processing
from grpodoctor.probe.engines.jobs import ScoreJob

_OTHERS = ("classifier_dropout", "classifier_dropout_prob")
"""Of heads that a language model does not have."""
_ADVICE = ("find out why: grpodoctor probe with the two as --sampler and --learner",)


class KlAtStepZero(Check):
    """The KL divergence from the reference is not zero before the first update.

    What it sees:
        Learner and reference score the same responses. Without --reference the learner scores them
        twice, in opposite orders. Dropout in config.json is told as well: in training mode it makes
        two passes of the same weights differ.

    Why it matters:
        At step zero the policy is the reference, and the KL is zero. What is there is the floor of
        every KL curve of the run: a penalty that pulls at nothing, an early stop that comes by
        itself. A large one means that the reference is another model.

    What to do:
        Compute both in one precision and one attention kernel; set dropout to zero.

    When it is wrong:
        A reference that is meant to be another model than the policy.

    References:
        slime tests that its first step's KL is exactly zero.
    """

    code: ClassVar[str] = "KLD101"
    name: ClassVar[str] = "kl-at-step-zero"
    summary: ClassVar[str] = "The KL divergence from the reference is not zero at the start."
    floor: ClassVar[float] = 1e-6
    """k3 that float32 leaves; bfloat16 with other neighbours in a batch leaves up to some 1e-4."""
    other: ClassVar[float] = 1e-2
    """k3 from which on it is another model, not rounding."""

    def examine(self, patient: Patient) -> Outcome:
        """Score the sampler's responses with policy and reference."""
        dropout = tuple(self._dropout(patient))
        if patient.bench is None or patient.learner is None:
            return dropout or NEEDS_PAIR
        return (*dropout, *self._measured(patient))

    def _dropout(self, patient: Patient) -> Iterator[Remark]:
        nested = patient.config.get("text_config")
        entries = {**patient.config, **(nested if isinstance(nested, Mapping) else {})}
        rates = {
            name: value
            for name, value in entries.items()
            if ("dropout" in name or name.endswith("pdrop"))
            and name not in _OTHERS
            and isinstance(value, float)
            and value > 0
        }
        if rates:
            yield Remark(
                "warning",
                "config.json has dropout: in training mode old and new log-probabilities of the "
                "same weights differ",
                ("set it to zero for reinforcement learning",),
                tuple(f"{name}: {value}" for name, value in rates.items()),
            )

    def _measured(self, patient: Patient) -> Iterator[Remark]:
        bench, learner = patient.bench, patient.learner
        if bench is None or learner is None:
            return
        drawn = bench.rollouts(patient.plan.temperatures[0])
        processing = Processing(temperature=patient.plan.temperatures[0])
        job = ScoreJob(rollouts=drawn, processing=processing)
        backwards = ScoreJob(rollouts=drawn, processing=processing, backwards=True)
        if patient.reference is None:
            policy, reference = bench.lab.run(learner, [job, backwards])
        else:
            policy = bench.lab.run(learner, [job])[0]
            reference = bench.lab.run(patient.reference, [job])[0]
        found = compare(policy, reference, seed=patient.plan.seed)
        k3, largest = figure(found, K3), figure(found, LARGEST)
        figures = {"k3": k3, "largest": largest}
        against = "the reference" if patient.reference else "itself in batches of another order"
        told = f"k3 between the learner and {against} is {k3:.1e} nats a token"
        if k3 >= self.other:
            why = "these are different models" if patient.reference else "more than rounding is"
            yield Remark("critical", f"{told}: {why}", _ADVICE, (), figures)
        elif k3 >= self.floor:
            advice = ("this is the floor of the run's KL curves; compute both sides alike",)
            yield Remark("info", told, advice, (), figures)
