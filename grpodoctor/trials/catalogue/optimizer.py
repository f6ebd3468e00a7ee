"""Trials of the step size, the number of updates and the batch."""

from grpodoctor.trials.trial import Arm, Treated, Trial

TRIALS = (
    Trial(
        name="learning-rate-too-high",
        question="Is a learning rate that is twenty times too high reported, and does lowering it "
        "help?",
        disease=Arm(settings=("optimizer.learning_rate=2e-3",)),
        rules=("KLD001", "OPT006", "REW002"),
        misses="`KLD001` requires three large updates in a row. In the run that it misses at most "
        "two follow each other, and the reward has collapsed by the fifth step.",
        remedies=(
            Treated(remedy="lower-learning-rate"),
            Treated(remedy="kl-penalty", settings=("loss.kl_coefficient=0.05",)),
        ),
    ),
    Trial(
        name="too-many-updates",
        question="Are sixteen updates and four epochs per batch without a clip reported, and do "
        "fewer updates or clip bounds help?",
        disease=Arm(
            settings=(
                "optimizer.updates_per_batch=16",
                "optimizer.epochs=4",
                "optimizer.learning_rate=5e-4",
                "loss.clip_low=1",
                "loss.clip_high=10",
            )
        ),
        control=Arm(settings=("optimizer.learning_rate=5e-4",)),
        rules=("CFG010", "KLD001"),
        remedies=(
            Treated(
                remedy="fewer-updates",
                settings=("optimizer.updates_per_batch=4", "optimizer.epochs=1"),
            ),
            Treated(
                remedy="fewer-updates",
                variant="clip bounds of 0.2 instead",
                settings=("loss.clip_low=0.2", "loss.clip_high=0.2"),
            ),
        ),
    ),
    Trial(
        name="small-batch",
        question="Do two prompts per batch learn worse than a larger batch, at equal steps and at "
        "equal cost?",
        disease=Arm(settings=("rollout.prompts_per_batch=2", "optimizer.updates_per_batch=1")),
        rules=(),
        remedies=(Treated(remedy="larger-batch", settings=("rollout.prompts_per_batch=16",)),),
    ),
    Trial(
        name="group-of-two",
        question="Do groups of two responses learn worse than groups of sixteen, at equal samples?",
        disease=Arm(settings=("rollout.group_size=2", "rollout.prompts_per_batch=32")),
        control=Arm(settings=("rollout.group_size=8",)),
        rules=("CFG013",),
        remedies=(
            Treated(
                remedy="larger-groups",
                settings=("rollout.group_size=16", "rollout.prompts_per_batch=4"),
            ),
        ),
    ),
)
