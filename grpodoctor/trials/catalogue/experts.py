"""Trials of mixtures of experts: routing that differs between passes and engines."""

from grpodoctor.trials.trial import Arm, Treated, Trial

_MOE = ("model.experts=8", "record.experts_every=1")

TRIALS = (
    Trial(
        name="expert-churn",
        question="Do experts flip with every update at a learning rate that is too high, and does "
        "GSPO or routing replay help?",
        settings=_MOE,
        disease=Arm(settings=("optimizer.learning_rate=3e-3",)),
        rules=("MOE002",),
        steps=50,
        remedies=(
            Treated(remedy="lower-learning-rate"),
            Treated(remedy="gspo", preset="gspo"),
            Treated(
                remedy="routing-replay",
                variant="of the learner's own first pass (R2)",
                settings=("engine.routing_replay=R2",),
            ),
        ),
    ),
    Trial(
        name="expert-mismatch",
        question="Are experts that differ between a quantized sampler and the learner reported, "
        "and does routing replay help?",
        settings=_MOE,
        disease=Arm(settings=("engine.precision=int4",)),
        rules=("MOE001", "MIS001"),
        misses="In the runs that `MOE001` and `MIS001` miss, the mismatch stays below their "
        "thresholds, and the policy learns about as well as in the controls.",
        steps=50,
        remedies=(
            Treated(remedy="routing-replay", settings=("engine.routing_replay=R3",)),
            Treated(remedy="higher-precision-sampler", settings=("engine.precision=learner",)),
        ),
    ),
)
