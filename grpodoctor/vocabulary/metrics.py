"""The canonical metrics: one row each, one meaning per name.

A name may have a qualifier, which narrows the population (`vocabulary/metric_qualifiers.py`).

Policies are written as in the literature: `learner` (the current parameters), `old` (the learner
when the rollout batch began, also called proximal), `sampler` (the engine that generated the
tokens), `reference` (the frozen model of a KL penalty).
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

from grpodoctor.vocabulary.metric import Metric
from grpodoctor.vocabulary.metric_qualifiers import without_qualifier

_YAO = "Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training"
_DAPO = "DAPO, arXiv 2503.14476"
_PPO = "PPO, arXiv 1707.06347"
_GSPO = "GSPO, arXiv 2507.18071, section 5.3"
_KL = "Schulman, Approximating KL Divergence"
_CUI = "Cui et al. 2025, arXiv 2505.22617"
_CANARY = "recorded by live hooks, if the sampler reports log-probabilities"
_SAMPLER = "record the sampler's log-probabilities of its tokens with each rollout"
_ROLLOUTS = "record the reward and the prompt of each response"
_CORRECT = "let the reward function report which responses are correct"
_HELDOUT = "evaluate on held-out prompts every few steps"
_REFERENCE = "set a KL coefficient above zero, so that the reference model is evaluated"
_EXPERTS = "record the routed experts of the same tokens in sampler and learner"
_REPLAY = "replay the routing of a mixture of experts (R2 or R3) and count the routes that are used"
_CRITIC = "train with a critic; group-relative advantages do not use one"
_COMPONENTS = "record each reward component alongside the total"
_ANSWERS = "record or dump the responses with their reference answers"
_DAPO_CLIP = "DAPO, arXiv 2503.14476, section 3.1"

METRICS: tuple[Metric, ...] = (
    # reward
    Metric("reward/mean", "mean", "reward", "responses",
           "Reward from which advantages are computed, before a KL penalty in the reward."),
    Metric("reward/std", "mean", "reward", "batches",
           "Standard deviation of reward over the responses of a batch (population).", low=0),
    Metric("reward/kept_mean", "mean", "reward", "responses",
        "Mean reward of the groups that are left after those with equal rewards are filtered."),
    Metric("reward/max", "max", "reward", "responses", "Highest reward of a batch."),
    Metric("reward/min", "min", "reward", "responses",
           "Lowest reward of a batch. Equal to the maximum, no group of the batch has a gradient."),
    Metric("reward/heldout", "mean", "reward", "held-out responses",
           "Reward on held-out prompts.", how=_HELDOUT),
    Metric("reward/truncated", "mean", "reward", "truncated responses",
           "Reward of responses cut by the length limit.", how=_ROLLOUTS),
    Metric("reward/answer_correlation", "mean", "correlation", "batches",
           "Correlation of the reward with whether the final answer equals the reference answer.",
           low=-1, high=1, how=_ANSWERS),
    Metric("reward/answer_disagreement_rate", "rate", "share", "responses with a reference answer",
           "Responses whose reward, of two values, is the higher one although the final answer differs from the "
           "reference answer, or the lower one although it is equal.", low=0, high=1, how=_ANSWERS),
    Metric("reward/kl_penalty", "mean", "reward", "responses",
           "KL penalty subtracted from the reward: its coefficient times k1, summed over a response. "
           "All other metrics of rewards and groups are measured before it.",
           "old | reference", source="RLOO, arXiv 2402.14740"),
    Metric("reward/component/<name>/mean", "mean", "reward", "responses",
           "One component of the reward, unweighted.", how=_COMPONENTS),
    Metric("reward/component/<name>/std", "mean", "reward", "batches",
           "Standard deviation of one component over a batch (population).", low=0,
           how=_COMPONENTS),
    Metric("reward/heldout/component/<name>/mean", "mean", "reward", "held-out responses",
           "One component of the reward on held-out prompts, unweighted.", how=_HELDOUT),
    Metric("reward/heldout/component/<name>/std", "mean", "reward", "batches",
           "Standard deviation of one component over a batch of held-out responses.", low=0,
           how=_HELDOUT),
    Metric("accuracy/train", "rate", "share", "responses", "Correct responses among the rollouts.",
           "sampler", 0, 1, how=_CORRECT),
    Metric("accuracy/heldout", "rate", "share", "held-out responses",
           "Correct responses on held-out prompts.", "learner", 0, 1, how=_HELDOUT),
    Metric("pass_at_k/<k>", "mean", "share", "prompts",
           "Unbiased estimate of solving a prompt within k samples.", "learner", 0, 1,
           "Chen et al. 2021, arXiv 2107.03374", how=_HELDOUT),
    # length
    Metric("length/mean", "mean", "tokens", "responses", "Response length.", "sampler", 0),
    Metric("length/p95", "quantiles", "tokens", "responses",
           "Distribution of response length, read at the 95th percentile.", "sampler", 0),
    Metric("length/max", "max", "tokens", "responses", "Longest response.", "sampler", 0),
    Metric("length/min", "min", "tokens", "responses", "Shortest response.", "sampler", 0),
    Metric("length/prompt_mean", "mean", "tokens", "prompts", "Prompt length.", low=0),
    Metric("length/prompt_truncated_rate", "rate", "share", "prompts",
           "Prompts as long as the prompt limit, so probably cut.", low=0, high=1),
    Metric("length/correct", "mean", "tokens", "correct responses",
           "Length of correct responses.", "sampler", 0, how=_CORRECT),
    Metric("length/incorrect", "mean", "tokens", "incorrect responses",
           "Length of incorrect responses.", "sampler", 0, how=_CORRECT),
    Metric("length/group_gap", "mean", "tokens", "groups with correct and incorrect responses",
           "Length of incorrect minus correct responses to the same prompt, so that longer answers to "
           "harder prompts do not count.", "sampler", source="Dr. GRPO, arXiv 2503.20783",
           how=_CORRECT),
    Metric("length/truncated_rate", "rate", "share", "responses",
           "Responses cut by the length limit before an end token.", "sampler", 0, 1),
    Metric("length/end_tokens", "mean", "tokens", "responses of the batch",
           "Count of end tokens in the responses of a batch.", "sampler", 0),
    Metric("length/terminated_mean", "mean", "tokens", "terminated responses",
           "Length of responses that were not truncated.", "sampler", 0),
    # entropy
    Metric("entropy/mean", "mean", "nats", "generated tokens",
           "Full-vocabulary entropy of the next-token distribution at the sampling temperature.",
           "old", 0, source=_CUI),
    Metric("entropy/sampled", "mean", "nats", "generated tokens",
           "Mean -log p of the sampled tokens. It estimates the entropy of the sampled policy, without "
           "bias if its distribution is not cut off by top-p or similar.", "sampler", 0),
    Metric("entropy/correct", "mean", "nats", "tokens of correct responses",
           "Entropy within correct responses.", "old", 0, how=_CORRECT),
    Metric("entropy/incorrect", "mean", "nats", "tokens of incorrect responses",
           "Entropy within incorrect responses.", "old", 0, how=_CORRECT),
    Metric("entropy/p10", "quantiles", "nats", "generated tokens",
           "Distribution of entropy, read at the 10th percentile.", "old", 0),
    Metric("entropy/fork_tokens", "mean", "nats", "the 20 % of tokens with the highest entropy",
           "Entropy of forking tokens, where the policy has a real choice.", "old", 0,
           source="Beyond the 80/20 Rule, arXiv 2506.01939"),
    # groups
    Metric("groups/size", "mean", "responses", "groups", "Responses per prompt.", low=1),
    Metric("groups/zero_variance_rate", "rate", "share", "groups",
           "Groups whose rewards are all equal, so they contribute no gradient.", "sampler", 0, 1, _DAPO,
           _ROLLOUTS),
    Metric("groups/all_correct_rate", "rate", "share", "groups",
           "Groups without reward variance in which every response is correct.", "sampler", 0, 1, _DAPO,
           _CORRECT),
    Metric("groups/all_incorrect_rate", "rate", "share", "groups",
           "Groups without reward variance in which no response is correct.", "sampler", 0, 1, _DAPO,
           _CORRECT),
    Metric("groups/cancelled_rate", "rate", "share", "groups",
           "Groups without reward variance in which two or more reward components vary and cancel out.", "sampler", 0, 1,
           how=_COMPONENTS),
    Metric("groups/duplicate_rate", "rate", "share", "responses",
           "Responses that are identical to an earlier one of their group, in tokens or, in a dump "
           "without tokens, in text.", "sampler", 0, 1),
    Metric("groups/expected_duplicate_rate", "mean", "share", "responses",
           "Chance of a response to be identical to an earlier one of its group if each is sampled on "
           "its own, by its probability under the sampler or the learner, whichever is larger.",
           "sampler, learner", 0, 1, how=_SAMPLER),
    Metric("groups/equal_text_variance", "mean", "reward²", "groups with identical and different responses",
           "Reward variance of identical responses to one prompt: half the mean squared difference of two of "
           "them.", "sampler", 0, how=_ROLLOUTS),
    Metric("groups/other_text_variance", "mean", "reward²", "groups with identical and different responses",
           "The same of two different responses to one prompt.", "sampler", 0, how=_ROLLOUTS),
    Metric("groups/same_answer_variance", "mean", "reward²", "groups with one and with two answers",
           "Reward variance of different responses to one prompt that state the same answer with a digit, in a box or "
           "after `#`: half the mean squared difference of two of them.", "sampler", 0, how=_ROLLOUTS),
    Metric("groups/other_answer_variance", "mean", "reward²", "groups with one and with two answers",
           "The same of two responses that state different answers.", "sampler", 0, how=_ROLLOUTS),
    Metric("groups/same_answer_length_correlation", "mean", "correlation", "pairs of responses with the same answer",
           "Correlation of their differences in reward and in length.", "sampler", -1, 1, how=_ROLLOUTS),
    Metric("groups/agreed_rate", "rate", "share", "groups of four or more",
           "Groups in which three quarters of the responses state one answer with a digit, in a box or after `#`; "
           "not if the batch has only a few answers.", "sampler", 0, 1, how=_ROLLOUTS),
    Metric("groups/agreed_incorrect_rate", "rate", "share", "groups that agree on an answer",
           "Groups that agree on an answer which counts as wrong.", "sampler", 0, 1, how=_ROLLOUTS),
    Metric("groups/returned_rate", "rate", "share", "groups whose prompt was seen before",
           "Groups whose responses are exactly those of an earlier step.", "sampler", 0, 1, how=_ROLLOUTS),
    Metric("groups/returned_by_chance", "mean", "share", "groups whose prompt was seen before",
           "The largest chance of this for responses that are sampled independently.", "sampler", 0, 1, how=_ROLLOUTS),
    Metric("groups/reward_by_place", "mean", "share", "batches",
           "Share of the reward's variance within groups that the place of a response in its group explains, "
           "above what chance explains.", "sampler", -1, 1, how=_ROLLOUTS),
    Metric("groups/length_by_place", "mean", "share", "batches",
           "The same of the length of responses.", "sampler", -1, 1, how=_ROLLOUTS),
    Metric("groups/repeated_prompt_rate", "rate", "share", "groups",
           "Groups with the prompt of an earlier group of the batch.", "sampler", 0, 1, how=_ROLLOUTS),
    Metric("groups/uncentred_rate", "rate", "share", "groups with different rewards",
           "Groups whose advantages have a mean other than zero, beyond rounding.", "sampler", 0, 1,
           how=_ROLLOUTS),
    Metric("groups/text_similarity", "mean", "share", "pairs of responses of a group",
           "Share of common 6-byte pieces in two responses to the same prompt (Jaccard, estimated by "
           "MinHash), in 64 responses of each step and rank, chosen by a hash of prompt and content.",
           "sampler", 0, 1, "Broder 1997, On the Resemblance and Containment of Documents",
           _ROLLOUTS),
    Metric("groups/effective_rate", "rate", "share", "groups", "Groups with reward variance.",
           "sampler", 0, 1, _DAPO, _ROLLOUTS),
    Metric("groups/reward_std", "mean", "reward", "groups",
           "Standard deviation of reward within a group (population).", low=0, how=_ROLLOUTS),
    Metric("groups/generated_per_kept", "mean", "groups", "batches",
           "Groups generated per group trained on; above 1 with dynamic sampling.", low=1),
    Metric("groups/limit_hit_rate", "rate", "share", "batches",
           "Batches for which resampling stopped at its limit, so they contain groups without variance.", low=0,
           high=1),
    # prompts
    Metric("prompts/skipped_rate", "rate", "share", "prompts considered",
           "Prompts skipped when sampling a batch because they are almost always or never solved.", low=0,
           high=1),
    Metric("prompts/stage", "mean", "stage", "steps",
           "Stage of a curriculum as a number: another one means other tasks.",
           how="log the stage, task or difficulty of a step in a column of that name"),
    Metric("prompts/outside_rate", "rate", "share", "prompts with a known pass rate",
           "Prompts whose pass rate is outside the range that is sampled.", low=0, high=1),
    # rollouts, tools and environments
    Metric("rollouts/aborted_rate", "rate", "share", "responses",
           "Responses that were aborted: generation or the environment ended before any token counted.",
           low=0, high=1),
    Metric("rollouts/error_rate", "rate", "share", "responses",
           "Responses whose environment, tool server or reward function raised an error.", low=0,
           high=1),
    Metric("rollouts/evicted", "mean", "responses", "steps",
           "Responses discarded in a step because they were too stale.", low=0),
    Metric("tools/calls_per_response", "mean", "calls", "responses", "Tool calls.", low=0),
    Metric("tools/failure_rate", "rate", "share", "tool calls", "Tool calls that failed.", low=0,
           high=1),
    Metric("environment/invalid_action_rate", "rate", "share", "actions",
           "Actions that the environment or the parser refused.", low=0, high=1),
    Metric("environment/turns_mean", "mean", "turns", "responses", "Turns of an episode.", low=0),
    # trust region
    Metric("clip/low_rate", "rate", "share", "loss tokens (sequences for sequence-level losses)",
           "Clipped on the low side with a negative advantage, so without gradient. For losses that cap "
           "the weight instead (CISPO): weights below the lower bound, which keep their gradient.",
           "learner / old", 0, 1, _PPO),
    Metric("clip/high_rate", "rate", "share", "loss tokens (sequences for sequence-level losses)",
           "Clipped on the high side with a positive advantage, so without gradient. For losses that cap "
           "the weight instead (CISPO, ScaleRL): weights above the upper bound, which keep their gradient.",
           "learner / old", 0, 1, _PPO),
    Metric("clip/any_rate", "rate", "share", "loss tokens (sequences for sequence-level losses)",
           "Clipped on either side, so without gradient; for logs that do not separate the sides.", "learner / old", 0, 1, _PPO),
    Metric("clip/dual_rate", "rate", "share", "loss tokens",
           "Clipped by the dual clip for negative advantages.", "learner / old", 0, 1,
           "Dual-clip PPO, arXiv 1912.09729"),
    Metric("clip/fork_token_rate", "rate", "share", "the 20 % of tokens with the highest entropy",
           "Forking tokens that are clipped on either side.", "learner / old", 0, 1),
    Metric("clip/high_probability", "mean", "probability", "tokens clipped on the high side",
           "Probability before the update of the tokens that the upper clip removes.", "old", 0, 1,
           _DAPO_CLIP),
    Metric("clip/covariance_rate", "rate", "share", "loss tokens",
           "Tokens selected for a high covariance of log-probability and advantage. They get no gradient "
           "(Clip-Cov) or a KL penalty to the old policy (KL-Cov).", "learner", 0, 1,
           _CUI),
    Metric("clip/gate_mean", "mean", "share", "loss tokens",
           "Share of a token's gradient that remains with a soft gate in place of a clip.",
           "learner / old, learner / sampler", 0),
    Metric("ratio/mean", "mean", "ratio", "loss tokens", "Importance ratio before any clip.",
           "learner / old", 0, source=_PPO),
    Metric("ratio/max", "max", "ratio", "loss tokens", "Largest importance ratio of a token.",
           "learner / old", 0, source=_PPO),
    Metric("ratio/sequence_max", "max", "ratio", "responses",
           "Largest length-normalized ratio of a response.", "learner / old", 0, source=_GSPO),
    Metric("mismatch/first_ratio_off", "rate", "share", "loss tokens",
           "Importance ratios that differ from 1 by more than rounding before the first update of a "
           "batch. Above zero, the old log-probabilities are not the learner's.", "learner / old", 0, 1),
    Metric("updates_per_batch", "mean", "optimizer steps", "batches",
           "Optimizer steps on each rollout batch.", low=0),
    # KL
    *(
        Metric(f"kl/{policy}/{estimator}", "mean", "nats", "loss tokens",
               f"KL divergence by the {estimator} estimator.", pair,
               low=-math.inf if estimator == "k1" else 0, source=_KL,
               how=_REFERENCE if policy == "reference" else "")
        for policy, pair in (("reference", "learner | reference"), ("old_policy", "old | learner"))
        for estimator in ("k1", "k2", "k3")
    ),
    Metric("kl/teacher", "mean", "nats", "generated tokens",
           "KL divergence to the teacher of a distillation, reverse unless the log's key says otherwise.",
           "learner | teacher", how="train by on-policy distillation"),
    # sampler against learner
    Metric("mismatch/nll_gap", "mean", "nats", "generated tokens",
           "Mean -log p of the sampled tokens minus mean entropy, both under the learner. Zero in "
           "expectation if the learner's policy sampled the tokens.", "old against sampler"),
    Metric("mismatch/prob_diff_mean", "mean", "probability", "responses",
           "Mean over a response's tokens of |p - p'| of the sampled token.", "old - sampler", 0, 1,
           _YAO, _SAMPLER),
    Metric("mismatch/prob_diff_max", "mean", "probability", "responses",
           "Maximum over a response's tokens of |p - p'| of the sampled token.", "old - sampler", 0,
           1, _YAO, _SAMPLER),
    Metric("mismatch/logprob_diff_mean", "mean", "nats", "responses",
           "Mean over a response's tokens of |log p - log p'|.", "old - sampler", 0, how=_SAMPLER),
    Metric("mismatch/logprob_diff_max", "mean", "nats", "responses",
           "Maximum over a response's tokens of |log p - log p'|.", "old - sampler", 0,
           how=_SAMPLER),
    Metric("mismatch/bias", "mean", "nats", "generated tokens",
           "Signed mean of log p - log p'.", "old - sampler", how=_SAMPLER),
    Metric("mismatch/kl_k1", "mean", "nats", "generated tokens",
           "KL(sampler, learner) by k1: mean of log p' - log p; may be negative.",
           "sampler | old", source=_KL, how=_SAMPLER),
    Metric("mismatch/kl_k2", "mean", "nats", "generated tokens",
           "KL(sampler, learner) by k2: half the mean squared log-ratio.", "sampler | old", 0,
           source=_KL, how=_SAMPLER),
    Metric("mismatch/kl_k3", "mean", "nats", "generated tokens",
           "KL(sampler, learner) by k3: mean of w - log w - 1.", "sampler | old", 0, source=_KL,
           how=_SAMPLER),
    Metric("mismatch/chi2", "mean", "1", "generated tokens",
           "Mean squared importance weight minus 1, raw weights.", "old / sampler", -1,
           how=_SAMPLER),
    Metric("mismatch/ess", "mean", "share", "batches",
           "Effective sample size of the raw token weights over their number.", "old / sampler", 0,
           1, how=_SAMPLER),
    Metric("mismatch/pearson", "mean", "1", "batches",
           "Correlation of the two probabilities of the sampled tokens.", "old, sampler", -1, 1,
           "MiniMax-M1, arXiv 2506.13585", _SAMPLER),
    Metric("mismatch/far_rate", "rate", "share", "generated tokens",
           "Tokens with |log p - log p'| above ln 2.", "old - sampler", 0, 1, how=_SAMPLER),
    Metric("mismatch/nonfinite", "rate", "share", "generated tokens",
           "Tokens whose log-probability is not finite on either side.", "old, sampler", 0, 1,
           how=_SAMPLER),
    Metric("correction/weight_mean", "mean", "ratio", "generated tokens",
           "Correction weight as applied, after its cap or mask.", "old / sampler", 0),
    Metric("correction/capped_rate", "rate", "share", "generated tokens",
           "Tokens whose correction weight was capped or set to zero.", "old / sampler", 0, 1),
    Metric("correction/masked_rate", "rate", "share", "generated tokens",
           "Tokens removed from the loss because sampler and learner differ too much.",
           "old / sampler", 0, 1),
    Metric("correction/stale_rate", "rate", "share", "responses",
           "Responses with A < 0 that are masked because the learner differs too much from the sampler.",
           "learner / sampler", 0, 1, "DeepSeek-V3.2, arXiv 2512.02556"),
    # delivery of the weights to the sampler, from a few responses after each sync
    Metric("delivery/gap", "mean", "nats", "checked tokens",
           "Mean |log p - log p'| after a sync.", "learner - sampler", 0, how=_CANARY),
    Metric("delivery/noise", "mean", "nats", "checked tokens",
           "The same at the latest sync at which the sampler had the right weights.",
           "learner - sampler", 0, how=_CANARY),
    Metric("delivery/unexplained", "mean", "nats", "checked tokens",
           "Mean |log p - log p'| that is left if the sampler has any mixture of the current, the "
           "previously checked and the first weights.", "learner - sampler", 0, how=_CANARY),
    *(
        row
        for name, since in (("change", "since the start"), ("update", "since the previous check"))
        for row in (
            Metric(f"delivery/{name}", "mean", "nats", "checked tokens",
                   f"Mean |change of log p| by the updates {since}.", "learner, earlier learner",
                   0, how=_CANARY),
            Metric(f"delivery/{name}_missing", "mean", "share", "checked tokens",
                   f"Share of the change {since} that the sampler lacks: 0 if delivered, 1 if not.",
                   "sampler, learner, earlier learner", how=_CANARY),
            Metric(f"delivery/{name}_missing_low", "mean", "share", "checked tokens",
                   "Its lower bound, which a delivered sync exceeds with a chance of 0.0001.",
                   "sampler, learner, earlier learner", how=_CANARY),
        )
    ),
    Metric("delivery/missing_part", "max", "share", "parts of the model",
           "Share of its change that the sampler lacks; `where` names the part.",
           "sampler, learner, earlier learner", how=_CANARY),
    # experts
    Metric("experts/churn_update", "mean", "share", "tokens x layers",
           "Experts that are active before an update but not after it.", "old, learner", 0, 1, _GSPO,
           _EXPERTS),
    Metric("experts/churn_engine", "mean", "share", "tokens x layers",
           "Experts that are active in the sampler but not in the learner.", "sampler, old", 0, 1,
           "R3, arXiv 2510.11370", _EXPERTS),
    Metric("experts/tokens_with_any_flip", "rate", "share", "tokens",
           "Tokens with a changed expert in at least one layer.", "sampler, old", 0, 1,
           "R3, arXiv 2510.11370", _EXPERTS),
    Metric("experts/load_max_over_mean", "mean", "ratio", "layers",
           "Load of the busiest expert over the mean load.", "old", 1, how=_EXPERTS),
    Metric("experts/router_entropy", "mean", "nats", "tokens x layers",
           "Entropy of the router.", "old", 0, how=_EXPERTS),
    Metric("experts/router_margin", "mean", "logits", "tokens x layers",
           "Router logit of the last chosen expert minus the first not chosen.", "old", 0,
           how=_EXPERTS),
    Metric("experts/replay_coverage", "rate", "share", "tokens x layers",
           "Expected routes that were available for replay.", "sampler, old", 0, 1, how=_REPLAY),
    Metric("experts/replay_agreement", "rate", "share", "tokens x layers",
           "Replayed routes that the learner used.", "sampler, old, learner", 0, 1,
           how=_REPLAY),
    Metric("experts/replay_fallback_rate", "rate", "share", "tokens x layers",
           "Routes that were missing, so the learner's own routing replaced the replay.",
           "sampler, old", 0, 1, how=_REPLAY),
    Metric("experts/auxiliary_loss", "mean", "1", "updates",
           "Load-balancing loss of the routers, as added to the loss.", "learner"),
    # advantage
    Metric("advantage/abs_max", "max", "1", "responses", "Largest |advantage|.", low=0),
    Metric("advantage/max", "max", "1", "responses", "Largest advantage."),
    Metric("advantage/min", "min", "1", "responses", "Smallest advantage."),
    Metric("advantage/mean", "mean", "1", "loss tokens",
           "Mean advantage; near 0 for group-relative advantages."),
    Metric("advantage/bound_excess", "mean", "ratio", "batches",
           "Largest |advantage| over the bound sqrt(G-1) (population std) of its group size.",
           low=0),
    Metric("advantage/positive_rate", "rate", "share", "loss tokens",
           "Tokens with a positive advantage.", low=0, high=1),
    Metric("advantage/zero_rate", "rate", "share", "loss tokens",
           "Tokens with an advantage of exactly zero.", low=0, high=1),
    Metric("advantage/token_weight", "mean", "1", "loss tokens",
           "Factor by which a reweighting scales the response's advantage at a token.", "old", 0, 1),
    Metric("advantage/lambda_mean", "mean", "1", "responses",
           "Lambda of generalized advantage estimation; 0 uses one-step estimates.", low=0,
           high=1, source="GAE, arXiv 1506.02438; by length, VAPO, arXiv 2504.05118"),
    # critic
    Metric("critic/loss", "mean", "reward squared", "critic updates",
           "Half the mean squared error of the values of loss tokens.", low=0, how=_CRITIC),
    Metric("critic/explained_variance", "mean", "1", "batches",
           "1 - Var(return - value) / Var(return) over loss tokens, with full returns and the values from "
           "before the batch. At 0 or below the critic predicts nothing.", high=1,
           how=_CRITIC),
    Metric("critic/value_mean", "mean", "reward", "loss tokens",
           "Value before the update on the batch.", how=_CRITIC),
    Metric("critic/grad_norm", "mean", "1", "critic updates",
           "Norm of the critic's gradient before clipping.", low=0, how=_CRITIC),
    Metric("critic/skipped_rate", "rate", "share", "critic updates",
           "Critic updates that were skipped because loss or gradient was not finite.", low=0, high=1),
    # optimizer
    Metric("optimizer/loss", "mean", "1", "updates", "Loss."),
    Metric("optimizer/positive_nll", "mean", "nats", "updates with correct responses",
           "Mean -log p of the tokens of correct responses, if the loss has a term for it.",
           "learner", 0, source="VAPO, arXiv 2504.05118"),
    Metric("optimizer/loss_tokens", "mean", "tokens", "updates",
           "Tokens in the loss mask, whatever their advantage.", low=0),
    Metric("optimizer/environment_token_rate", "rate", "share", "loss tokens",
           "Loss tokens that the policy did not generate: text of tools, the environment or padding.",
           low=0, high=1, how="record which tokens the policy generated and which are in the loss"),
    Metric("optimizer/response_in_loss_rate", "rate", "share", "response tokens",
           "Tokens of a response, with the text of tools, that are in the loss.", low=0, high=1),
    Metric("optimizer/left_out_rate", "rate", "share", "responses",
           "Responses without loss: filtered with their group, masked, or duplicates.", low=0,
           high=1),
    Metric("optimizer/untrained_token_rate", "rate", "share",
           "generated tokens of responses in the loss",
           "Tokens that the policy generated and that the loss mask leaves out.", low=0, high=1,
           how="record which tokens the policy generated and which are in the loss"),
    Metric("optimizer/entropy_coefficient", "mean", "1", "batches",
           "Weight of the entropy bonus, if the loss has one.", source=_CUI),
    Metric("optimizer/kl_coefficient", "mean", "1", "batches",
           "Weight of the KL penalty to the reference, if there is one.", low=0),
    Metric("optimizer/grad_norm", "mean", "1", "updates",
           "Norm of the gradient before clipping.", low=0),
    Metric("optimizer/learning_rate", "mean", "1", "updates", "Learning rate.", low=0),
    Metric("optimizer/update_norm_ratio", "mean", "1", "batches",
           "Norm of the weight change over the norm of the weights.", low=0),
    Metric("optimizer/changed_weight_rate", "rate", "share", "weights",
           "Weights that changed; low if updates are rounded away in a low-precision dtype.", low=0,
           high=1),
    Metric("optimizer/noise_scale", "mean", "groups", "batches",
           "Simple gradient noise scale, in prompt groups.", low=0,
           source="McCandlish et al. 2018, arXiv 1812.06162"),
    Metric("optimizer/nonfinite", "rate", "share", "updates",
           "Updates whose loss or gradient was not finite.", low=0, high=1),
    Metric("optimizer/skipped_rate", "rate", "share", "updates",
           "Updates that were skipped.", low=0, high=1),
    # staleness
    Metric("staleness/mean", "mean", "optimizer steps", "responses",
           "Optimizer steps between sampling and use.", "learner, sampler", 0),
    Metric("staleness/max", "max", "optimizer steps", "responses",
           "Largest number of optimizer steps between sampling and use.", "learner, sampler", 0),
    # text
    Metric("text/unique_ngram_rate", "mean", "share", "responses",
           "Distinct 3-grams over all 3-grams of a response's tokens, in 32 responses of each step and rank, "
           "chosen by a hash of their content.", "sampler", 0, 1,
           "distinct-n, arXiv 1510.03055"),
    Metric("text/repetition_rate", "rate", "share", "responses",
           "Responses that end in a loop: a block of tokens (of bytes in a dump without tokens) "
           "repeats to the end.", "sampler", 0, 1),
    Metric("text/reflection_rate", "rate", "share", "responses",
           "Responses with a word of reflection (wait, recheck, alternatively), among 128 of each step and "
           "rank, chosen by a hash of their content.", "sampler", 0, 1),
    Metric("text/compression_ratio", "mean", "ratio", "responses",
           "Bytes of a response over its deflated bytes, in 32 responses of each step and rank, chosen by a "
           "hash of their content.", "sampler", 0),
    # instruments
    Metric("instruments/failed_parts", "max", "parts", "steps",
           "Parts of a live hook that failed and are off; `where` names the last one.", low=0,
           how="recorded by live hooks only"),
    # time
    Metric("time/step", "mean", "seconds", "steps", "A whole step.", low=0),
    Metric("time/rollout", "mean", "seconds", "steps", "Sampling.", low=0),
    Metric("time/learn", "mean", "seconds", "steps", "Forward, backward and update.", low=0),
    Metric("time/checkpoint", "mean", "seconds", "steps",
           "Saving a checkpoint; logged at the steps that have one.", low=0),
    Metric("time/record", "mean", "seconds", "steps",
           "Time that recording takes in the training thread.", low=0),
)

_PARTIAL = re.compile(r"/(position|probability)/[0-9.e-]+$")
"""Qualifiers of a part of the tokens that can be empty."""

_EXACT = {metric.name: metric for metric in METRICS if "<" not in metric.name}
_TEMPLATES = [
    (re.compile(re.sub(r"<[a-z]+>", "[^/]+", metric.name)), metric)
    for metric in METRICS
    if "<" in metric.name
]


@lru_cache(maxsize=4096)
def metric_of(name: str) -> Metric | None:
    """The row of a metric name, which may have qualifiers or match a template; None if unknown."""
    if name in _EXACT:
        return _EXACT[name]
    for pattern, metric in _TEMPLATES:
        if pattern.fullmatch(name):
            return metric
    base = without_qualifier(name)
    return metric_of(base) if base != name else None


@lru_cache(maxsize=4096)
def may_be_empty(name: str) -> bool:
    """Whether NaN in a metric can mean that nothing was measured, instead of a broken value."""
    metric = metric_of(name)
    return metric is not None and (metric.may_be_empty or _PARTIAL.search(name) is not None)
