"""Trials of response length: truncation, and how the loss weighs long responses."""

from grpodoctor.trials.trial import Arm, Treated, Trial

TRIALS = (
    Trial(
        name="truncation",
        question="Is a length limit that cuts a third of the solutions reported, and what helps?",
        disease=Arm(settings=("rollout.max_length=12",)),
        rules=("LEN002",),
        misses="In the runs that `LEN002` misses, few responses are truncated at the end: the "
        "policy learns to answer within the limit.",
        remedies=(
            Treated(remedy="longer-limit", settings=("rollout.max_length=28",)),
            Treated(remedy="overlong-mask"),
            Treated(remedy="soft-overlong"),
        ),
    ),
    Trial(
        name="length-bias",
        question="Do incorrect responses grow with a loss that averages within each response, and "
        "does a token-level loss help?",
        disease=Arm(settings=("loss.aggregation=sequence-mean",)),
        control=Arm(settings=("loss.aggregation=token-mean",)),
        rules=(),
        remedies=(
            Treated(remedy="token-level-loss"),
            Treated(remedy="dr-grpo", preset="dr_grpo"),
        ),
    ),
)
