"""The causal table: which condition of a run causes which, by what mechanism, and how to check.

Rules name the condition that they show (`Rule.condition`). The table has no cycles: where two
conditions can cause each other, it has the direction that a treatment should begin with, and the
order of onset decides whether the table applies to a run at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from grpodoctor.vocabulary.conditions import Condition

_WRONG_DATA = "the loss trains on the wrong tokens or weights"
_OFF_POLICY = "the importance ratios contain the gap between sampler and learner"
_BIASED = "the gradient is biased by the gap between sampler and learner"
_WRONG_RATIO = "the importance ratios are wrong before the first update"
_TOO_FAR = "each update moves the policy too far"
_HUGE = "one update with a huge gradient moves the policy far"
_RUINED = "a policy ruined by a few updates earns no reward"
_MANGLED = "a policy ruined by a few updates writes different text"
_PAID = "the policy writes more of the text that the reward function rewards"
_NO_GRADIENT = "without a gradient the policy does not change"
_NO_VARIANCE = "equal rewards leave no advantage"
_FAILED_CALL = "a failed tool call counts as an incorrect response"
_ABORTED = "an aborted rollout counts as an incorrect response"
_CHANGED = "other prompts, tools or graders give the same policy another reward"
_OTHER_TEXT = "other prompts ask for other responses"
_SAME_POLICY = "the policy is the same, and its rollouts are not"
_PULLED = "the KL penalty pulls the policy toward another model"
_REJECTED = "an episode of rejected actions earns no reward"

LEVEL = "the reward stays level for this reason, regardless of the size of the updates"
"""Why a finding of small updates that rests on a level reward and a level policy is doubtful."""

CAUSES: Mapping[Condition, Mapping[Condition, str]] = {
    "wrong-loss-tokens": {
        "large-kl": _WRONG_DATA, "entropy-rise": _WRONG_DATA, "reward-loss": _WRONG_DATA,
        "engine-mismatch": "tokens that the policy did not sample have other probabilities",
    },
    "wrong-advantages": {
        "large-kl": _WRONG_DATA, "clipped-tokens": _WRONG_DATA, "reward-loss": _WRONG_DATA,
        "length-growth": "advantages without a baseline push every response in one direction",
    },
    "copied-rollouts": {
        "diversity-loss": "copies of a response are identical",
        "equal-rewards": "copies of a response earn the same reward",
        "plateau": "copies add nothing to the comparison within a group",
        "undersized-updates": LEVEL,
    },
    "repeated-prompts": {
        "zero-rewards": "a prompt without its question cannot be answered",
        "equal-rewards": "one prompt is all right or all wrong",
        "plateau": "the same prompt in every group teaches one answer",
        "held-out-loss": "few prompts are memorized",
        "undersized-updates": LEVEL,
    },
    "wrong-reference": {
        "reference-drift": "the KL measures the distance to another model",
        "entropy-rise": _PULLED, "reward-loss": _PULLED, "gradient-spike": _PULLED,
    },
    "wrong-reward": {
        "zero-rewards": "the reward function rejects correct answers",
        "equal-rewards": "the reward function gives every response the same reward",
        "reward-hacking": "the reward function rewards something other than the task",
        "undersized-updates": LEVEL, "environment-change": _SAME_POLICY,
    },
    "noisy-reward": {
        "plateau": "the noise of the reward hides the gradient",
        "undersized-updates": LEVEL,
    },
    "tool-failures": {
        "zero-rewards": _FAILED_CALL, "reward-loss": _FAILED_CALL, "undersized-updates": LEVEL,
        "environment-change": _SAME_POLICY,
    },
    "lost-rollouts": {
        "zero-rewards": _ABORTED, "reward-loss": _ABORTED, "undersized-updates": LEVEL,
        "truncation": "aborted rollouts count as truncated",
        "environment-change": _SAME_POLICY,
    },
    "invalid-actions": {
        "zero-rewards": _REJECTED, "equal-rewards": _REJECTED, "reward-loss": _REJECTED,
        "undersized-updates": LEVEL, "environment-change": _SAME_POLICY,
    },
    "environment-change": {
        "reward-loss": _CHANGED, "zero-rewards": _CHANGED, "equal-rewards": _CHANGED,
        "truncation": _OTHER_TEXT, "length-growth": _OTHER_TEXT, "entropy-rise": _OTHER_TEXT,
        "undersized-updates": LEVEL,
    },
    "stale-weights": {
        "off-policy": "the samples come from older weights",
        "environment-change": "the sampler no longer has the learner's policy",
        "engine-mismatch": "the two engines hold different weights",
        "reference-drift": "samples of other weights do not show the learner where it went",
        "held-out-loss": _BIASED,
    },
    "expert-instability": {
        "expert-mismatch": "routes that change with every update also differ between the engines",
        "reward-loss": "tokens pass through experts that were not trained on them",
        "entropy-rise": "tokens pass through experts that were not trained on them",
        "large-kl": "changed routes change the probabilities of the same tokens",
    },
    "expert-mismatch": {"engine-mismatch": "different experts give different probabilities"},
    "engine-mismatch": {
        "off-policy": "the learner trains on tokens of another distribution",
        "zero-rewards": "the sampler solves fewer prompts than the learner would",
        "held-out-loss": _BIASED,
        "reward-loss": "the gradient is biased by the gap between sampler and learner",
        "undersized-updates": LEVEL,
    },
    "off-policy": {
        "clipped-tokens": _OFF_POLICY,
        "large-kl": _OFF_POLICY,
        "gradient-spike": "rare tokens with a large importance ratio dominate the gradient",
        "entropy-rise": "the gradient is biased by the gap between sampler and learner",
        "entropy-loss": "the gradient is biased by the gap between sampler and learner",
        "reward-loss": "the gradient is biased by the gap between sampler and learner",
    },
    "wrong-old-logprobs": {
        "clipped-tokens": _WRONG_RATIO, "large-kl": _WRONG_RATIO, "gradient-spike": _WRONG_RATIO,
        "entropy-rise": _WRONG_RATIO, "entropy-loss": _WRONG_RATIO, "reward-loss": _WRONG_RATIO,
        "wrong-reference": "the KL compares the same wrong log-probabilities",
        "oversized-updates": _WRONG_RATIO,
        "plateau": "wrong ratios scale and clip the gradient", "undersized-updates": LEVEL,
    },
    "oversized-updates": {
        "expert-instability": _TOO_FAR, "gradient-spike": _TOO_FAR, "large-kl": _TOO_FAR,
        "clipped-tokens": _TOO_FAR, "reward-loss": _TOO_FAR, "zero-rewards": _RUINED,
        "equal-rewards": _RUINED, "entropy-loss": _TOO_FAR, "entropy-rise": _TOO_FAR,
        "repetition": _MANGLED, "length-growth": _MANGLED, "length-loss": _MANGLED,
        "truncation": _MANGLED,
    },
    "undersized-updates": {"plateau": "the updates are too small to change the policy"},
    "useless-critic": {
        "plateau": "advantages from an untrained critic are noise",
        "undersized-updates": LEVEL,
    },
    "non-finite": {
        "zero-rewards": "a policy whose weights are NaN generates no valid response",
        "zero-gradient": "a step with NaN or infinity is skipped",
        "reward-loss": "NaN or infinity destroys the weights",
        "entropy-rise": "NaN or infinity destroys the weights",
        "repetition": "NaN or infinity destroys the weights",
        "length-growth": "NaN or infinity destroys the weights",
        "truncation": "NaN or infinity destroys the weights",
    },
    "gradient-spike": {
        "large-kl": _HUGE, "reference-drift": _HUGE, "reward-loss": _HUGE, "entropy-rise": _HUGE,
        "entropy-loss": _HUGE,
    },
    "large-kl": {
        "clipped-tokens": _TOO_FAR, "reference-drift": _TOO_FAR, "entropy-rise": _TOO_FAR,
        "entropy-loss": _TOO_FAR, "reward-loss": _TOO_FAR, "zero-rewards": _RUINED,
    },
    "clipped-tokens": {
        "entropy-loss": "the clip removes the gradient of rare tokens that would keep exploration",
        "entropy-rise": "updates outside the trust region ruin the policy",
        "reward-loss": "updates outside the trust region ruin the policy",
    },
    "entropy-rise": {
        "repetition": "a nearly random policy does not end its responses",
        "no-end-token": "a nearly random policy does not end its responses",
        "truncation": "a nearly random policy does not end its responses",
        "length-growth": "a nearly random policy does not end its responses",
        "reward-loss": "a nearly random policy does not solve the task",
        "zero-gradient": "a random policy solves nothing, so no advantage is left",
    },
    "entropy-loss": {
        "diversity-loss": "a policy without entropy repeats one response",
        "length-loss": "a policy without entropy keeps the length of the one response it repeats",
        "plateau": "a policy without entropy does not explore",
    },
    "diversity-loss": {"equal-rewards": "identical responses earn identical rewards"},
    "repetition": {
        "length-growth": "repeated text fills the response",
        "no-end-token": "a repeating response never ends",
        "truncation": "repeated text runs into the length limit",
        "undersized-updates": LEVEL,
    },
    "no-end-token": {"truncation": "responses without an end token run into the length limit"},
    "length-growth": {"truncation": "longer responses reach the length limit"},
    "length-loss": {"reward-loss": "responses become too short to contain the solution"},
    "truncation": {
        "equal-rewards": "truncated responses earn the same reward",
        "zero-rewards": "a truncated response has no answer and is graded as incorrect",
        "reward-loss": "a truncated response has no answer and is graded as incorrect",
        "plateau": "a truncated response does not earn the reward of its answer",
        "undersized-updates": LEVEL,
    },
    "reward-hacking": {
        "held-out-loss": "the policy optimizes the reward function instead of the task",
        "repetition": _PAID, "length-growth": _PAID, "truncation": _PAID,
    },
    "reward-loss": {
        "zero-rewards": "after a collapse hardly any response is correct",
        "held-out-loss": "the policy lost what it had learned, on held-out prompts as well",
    },
    "cancelled-components": {
        "equal-rewards": "reward components cancel each other",
        "zero-rewards": "reward components cancel each other",
        "constant-reward": "reward components cancel each other",
    },
    "zero-rewards": {
        "equal-rewards": "groups in which every response fails have equal rewards",
        "constant-reward": "responses that all fail earn the same reward",
        "zero-gradient": "groups in which every response fails have no advantage",
        "plateau": "groups in which every response fails have no gradient",
        "undersized-updates": "groups in which every response fails have no gradient",
    },
    "equal-rewards": {
        "zero-gradient": _NO_VARIANCE,
        "constant-reward": "every response earns the same",
        "plateau": _NO_VARIANCE,
        "undersized-updates": _NO_VARIANCE,
    },
    "constant-reward": {
        "zero-gradient": _NO_VARIANCE, "plateau": _NO_VARIANCE, "undersized-updates": _NO_VARIANCE,
    },
    "zero-gradient": {
        "plateau": _NO_GRADIENT, "undersized-updates": _NO_GRADIENT,
    },
    "solved": {
        "equal-rewards": "every response is correct",
        "constant-reward": "every response is correct",
        "zero-gradient": "every response is correct, so no advantage is left",
        "entropy-loss": "a policy that solves its prompts is certain",
        "diversity-loss": "a policy that solves its prompts is certain",
        "plateau": "nothing is left to gain",
    },
}  # fmt: skip
"""Cause to effects, each with the mechanism in a few words."""

CONFIRM: Mapping[Condition, str] = {
    "wrong-settings": "Compare the setting with the run's resolved config.",
    "wrong-loss-tokens": "Print the loss mask of one response next to its tokens.",
    "wrong-advantages": "Print the advantages of one group: their mean should be zero.",
    "copied-rollouts": "Print the tokens of one group: whole responses repeat in a pattern.",
    "repeated-prompts": "Print five prompts as the sampler receives them, and compare them.",
    "wrong-reference": "Score one batch with the starting policy: its reference KL must be 0.",
    "wrong-reward": "Call the reward function on a known correct and a known incorrect answer.",
    "noisy-reward": "Score the same responses twice, and compare the difference with the reward.",
    "tool-failures": "Read the tool errors of ten responses that earned nothing.",
    "lost-rollouts": "Count the aborted rollouts in the sampler's log.",
    "environment-change": "Let the current policy answer the prompts of a step before the fall: "
    "an unchanged reward confirms it.",
    "invalid-actions": "Read ten rejected actions next to the list of actions in the prompt.",
    "stale-weights": "Score one batch right after a sync: a gap of zero confirms stale weights.",
    "expert-instability": "Freeze the router for 20 steps: instability stops if routing causes it.",
    "expert-mismatch": "Replay the sampler's routes in the learner: the gap must disappear.",
    "engine-mismatch": "Run grpodoctor probe on both engines with equal weights: it finds why.",
    "off-policy": "Sync at every step, sample at the loss's temperature: the gap must vanish.",
    "wrong-old-logprobs": "Compare the old log-probabilities with a fresh pass of the learner.",
    "oversized-updates": "Restart before the onset at a lower learning rate: the fault must not "
    "return.",
    "undersized-updates": "Compare weights before and after one update: unchanged ones confirm it.",
    "useless-critic": "Compare with group-relative advantages on the same prompts.",
    "gradient-spike": "Read the responses of the step with the largest gradient.",
    "non-finite": "Find the first step with NaN, and compute its loss in float32.",
    "large-kl": "Restart before the onset with half the updates per batch: the KL must be lower.",
    "clipped-tokens": "Log the importance ratio before the first update of a batch: it must be 1.",
    "reference-drift": "Compare responses of this policy and of the reference to the same prompts.",
    "entropy-rise": "Read five responses of the last step: noise instead of text confirms it.",
    "entropy-loss": "Sample one prompt 16 times: nearly identical responses confirm it.",
    "diversity-loss": "Sample one prompt 16 times: nearly identical responses confirm it.",
    "repetition": "Read the ends of the longest responses: repeated phrases confirm it.",
    "no-end-token": "Check that the template's end token equals the sampler's stop token.",
    "length-growth": "Compare a short and a long response to the same prompt: look for padding.",
    "length-loss": "Read five responses: missing reasoning confirms it.",
    "truncation": "Read five truncated responses: if sound to the end, the limit is too low; if "
    "they loop, the policy is the cause.",
    "zero-rewards": "Score a known correct answer: if it earns nothing, the reward is wrong; "
    "otherwise the prompts are too hard.",
    "equal-rewards": "Print the rewards of one group with its responses.",
    "constant-reward": "Score a known correct and a known incorrect answer: they must differ.",
    "cancelled-components": "Print the reward components of one group: a constant sum confirms it.",
    "zero-gradient": "Print the advantages of one batch: only zeros confirm it.",
    "reward-hacking": "Read the ten responses with the highest reward.",
    "held-out-loss": "Compare a training and a held-out response that earned the full reward.",
    "reward-loss": "Read five responses from before and after the onset.",
    "plateau": "Evaluate the first and the last checkpoint on the same held-out prompts.",
    "wrong-log": "Recompute the logged value from one dumped step by hand.",
}
"""What would confirm or exclude a condition as the cause, in one sentence."""

MOST_LINKS = 2
"""Links between two findings: at most one condition between them that no finding shows. A longer
chain needs a finding on the way."""

IsPossible = Callable[[Condition], bool]


def path_between(
    causes: Iterable[Condition], effect: Condition, is_possible: IsPossible
) -> tuple[Condition, ...] | None:
    """The shortest causal path to a condition.

    Args:
        causes: conditions that a finding shows or causes; the first is its own.
        effect: the condition to explain.
        is_possible: whether a condition on the path may hold in this run. A condition whose rules
            ran and found nothing cannot.

    Returns:
        The conditions from cause to effect, both included; None if there is no path.
    """
    own, *caused = causes
    queue = deque([(own,), *((own, condition) for condition in caused)])
    seen = {own}
    while queue:
        path = queue.popleft()
        if path[-1] == effect and len(path) > 1:
            return path
        if len(path) > MOST_LINKS or (path[-1] in seen and len(path) > 1):
            continue
        seen.add(path[-1])
        if len(path) > 1 and not is_possible(path[-1]):
            continue
        queue.extend((*path, following) for following in CAUSES.get(path[-1], ()))
    return None


def mechanism(path: tuple[Condition, ...]) -> str:
    """Why the last condition of a path follows, in a few words; empty if the table lacks it."""
    *_, before, effect = path
    return CAUSES.get(before, {}).get(effect, "")
