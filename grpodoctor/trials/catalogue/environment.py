"""Trials of tools and prompts: tokens of tools, visible failures, unsolvable prompts."""

from grpodoctor.trials.trial import Arm, Treated, Trial

TRIALS = (
    Trial(
        name="environment-tokens-in-loss",
        question="Are tokens of a tool in the loss reported, and does masking them help?",
        environment="noisy_tool",
        disease=Arm(fault="tool_tokens_in_loss"),
        rules=("DAT001",),
        remedies=(Treated(remedy="mask-environment-tokens", removes_fault=True),),
    ),
    Trial(
        name="length-bias-after-failure",
        question="Do incorrect responses grow where the policy can see that it has failed, and "
        "does a token-level loss help?",
        settings=("optimizer.learning_rate=2e-4", "rollout.max_length=40"),
        steps=250,
        environment="failing_tool",
        disease=Arm(settings=("loss.aggregation=sequence-mean",)),
        control=Arm(settings=("loss.aggregation=token-mean",)),
        rules=("LEN001",),
        remedies=(
            Treated(remedy="token-level-loss"),
            Treated(remedy="dr-grpo", preset="dr_grpo"),
        ),
    ),
    Trial(
        name="unsolvable-prompts",
        question="Is it reported if four in five prompts have a wrong reference answer, and "
        "does filtering by pass rate help?",
        settings=("rollout.prompts_per_batch=16",),
        environment="repeated_prompts",
        disease=Arm(settings=("task.reward=grpodoctor.trials.rewards:unsolvable",)),
        rules=("GRP002",),
        remedies=(
            Treated(remedy="refilter-prompts", settings=("difficulty.every=1",)),
            Treated(remedy="dynamic-sampling"),
        ),
    ),
)
