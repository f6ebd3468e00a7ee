"""Trials of the learning signal: groups without variance, advantages, several rewards."""

from grpodoctor.trials.trial import Arm, Treated, Trial

_HARD = ("model.warm_start_steps=100", "task.difficulty=6", "rollout.max_length=40")

_EASIER = Treated(
    remedy="easier-prompts", variant="half of them; the same held-out prompts", removes_fault=True
)

TRIALS = (
    Trial(
        name="starved-groups",
        question="Are prompts that are almost never solved reported, and does dynamic "
        "sampling help?",
        disease=Arm(settings=_HARD),
        rules=("GRP002",),
        remedies=(Treated(remedy="dynamic-sampling"),),
    ),
    Trial(
        name="hard-prompts",
        question="Does it help to make half of the prompts easier, if almost none is solved?",
        # Its own settings: published runs of other trials have another warm start.
        settings=("evaluation.prompts=256",),
        steps=100,
        disease=Arm(settings=_HARD),
        faults={_EASIER.name: "half_easier_prompts"},
        rules=("GRP002",),
        remedies=(_EASIER,),
    ),
    Trial(
        name="std-normalization",
        question="Does leaving out the division by the group's standard deviation help?",
        disease=Arm(preset="grpo", settings=("optimizer.updates_per_batch=4",)),
        rules=(),
        remedies=(
            Treated(remedy="dr-grpo", preset="dr_grpo"),
            Treated(remedy="lite-ppo", preset="lite_ppo"),
        ),
    ),
    Trial(
        name="several-rewards",
        question="Do rewards of very different scale starve the task reward, and does GDPO help?",
        disease=Arm(settings=("task.reward=grpodoctor.trials.rewards:brevity_first",)),
        rules=("REW010",),
        remedies=(
            Treated(remedy="gdpo", preset="gdpo"),
            Treated(
                remedy="reweight-rewards", settings=("task.reward=grpodoctor.trials.rewards:good",)
            ),
        ),
    ),
)
