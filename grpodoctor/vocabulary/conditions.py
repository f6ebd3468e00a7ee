"""The conditions of a run: what a finding says about it, in terms of cause and effect.

A rule names the condition that its finding shows. The causal table (`monitor/diagnosis`) lists
which condition causes which, so a rule takes part in it without being listed there.
"""

from __future__ import annotations

from typing import Literal

Condition = Literal[
    # settings, data and reward function
    "wrong-settings",
    "wrong-loss-tokens",
    "wrong-advantages",
    "copied-rollouts",
    "repeated-prompts",
    "wrong-reference",
    "wrong-reward",
    "noisy-reward",
    "tool-failures",
    "lost-rollouts",
    "invalid-actions",
    "environment-change",
    # the two engines
    "stale-weights",
    "expert-instability",
    "expert-mismatch",
    "engine-mismatch",
    "off-policy",
    "wrong-old-logprobs",
    # the update
    "oversized-updates",
    "undersized-updates",
    "useless-critic",
    "gradient-spike",
    "non-finite",
    "large-kl",
    "clipped-tokens",
    "reference-drift",
    # the policy
    "entropy-rise",
    "entropy-loss",
    "diversity-loss",
    "repetition",
    "no-end-token",
    "length-growth",
    "length-loss",
    "truncation",
    # the signal
    "cancelled-components",
    "zero-rewards",
    "equal-rewards",
    "constant-reward",
    "zero-gradient",
    # the outcome
    "reward-hacking",
    "held-out-loss",
    "reward-loss",
    "plateau",
    "solved",
    # about the log
    "wrong-log",
    "expected",
    "other",
]
"""`expected`: normal for this run, such as a clip fraction of zero with one update per batch.
`other`: neither causes nor explains another condition."""
