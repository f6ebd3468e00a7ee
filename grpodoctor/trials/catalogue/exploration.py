"""Trials of exploration: entropy that collapses, and tokens whose gradient the clip removes."""

from grpodoctor.trials.trial import Arm, Treated, Trial

_COLLAPSE = ("optimizer.learning_rate=5e-4", "optimizer.updates_per_batch=8")

TRIALS = (
    Trial(
        name="entropy-collapse",
        question="Which remedy keeps entropy up, and does the outcome profit?",
        disease=Arm(settings=_COLLAPSE),
        rules=(),
        steps=100,
        remedies=(
            Treated(remedy="clip-higher"),
            Treated(remedy="entropy-bonus"),
            Treated(remedy="cispo", preset="cispo"),
            Treated(remedy="clip-cov", settings=("loss.kind=clip_cov",)),
            Treated(remedy="kl-cov", settings=("loss.kind=kl_cov",)),
        ),
    ),
    Trial(
        name="narrow-clip",
        question="Does a clip that removes most gradients slow the run down, and does CISPO, "
        "which keeps them, help?",
        disease=Arm(settings=("loss.clip_low=1e-4", "loss.clip_high=1e-4")),
        rules=("CLP001",),
        remedies=(
            Treated(remedy="clip-higher"),
            Treated(remedy="cispo", preset="cispo"),
        ),
    ),
    Trial(
        name="clipped-forks",
        question="Does a tight upper bound over sixteen updates clip the forking tokens, and does "
        "CISPO, which keeps their gradient, help?",
        disease=Arm(
            settings=(
                "optimizer.updates_per_batch=16",
                "optimizer.epochs=4",
                "optimizer.learning_rate=1e-4",
                "loss.clip_high=0.01",
            )
        ),
        rules=("CLP003",),
        remedies=(
            Treated(remedy="clip-higher"),
            Treated(remedy="cispo"),
        ),
    ),
)
