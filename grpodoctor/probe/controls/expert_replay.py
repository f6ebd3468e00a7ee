"""The learner forced to the sampler's experts: does it obey, and what is left of the gap?"""

from __future__ import annotations

from pathlib import Path

from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.contract import Processing, shard_paths
from grpodoctor.probe.engines.jobs import ScoreJob
from grpodoctor.probe.engines.shards import read_shard
from grpodoctor.probe.results.results import Comparison, Replayed
from grpodoctor.vocabulary.values import scalar


def replay_job(rollouts: Path, processing: Processing, *, own_prompts: bool = False) -> ScoreJob:
    """Score responses with the experts that they tell of."""
    return ScoreJob(
        rollouts=rollouts,
        processing=processing,
        want=("experts",),
        own_prompts=own_prompts,
        replay=True,
    )


def tells_experts(rollouts: Path) -> bool:
    """Whether the sampler of some shards has told of experts.

    Raises:
        EngineError: if its first shard is damaged.
    """
    first = shard_paths(rollouts)[:1]
    return any(read_shard(path).experts_NLK is not None for path in first)


def replayed_of(part: Path, free: Path, held: Path) -> Replayed | None:
    """What a replay has come to.

    Args:
        part: responses of the sampler, with experts.
        free: the learner's scores of them with its own routing.
        held: those with the sampler's.

    Returns:
        None where no token has its experts told on both sides.

    Raises:
        EngineError: as `compare`.
    """
    before, after = compare(part, free), compare(part, held)
    if after.experts is None:
        return None
    return Replayed(
        responses=after.responses,
        tokens=after.tokens,
        experts=after.experts,
        kl_k3_before=_figure(before, "mismatch/kl_k3"),
        kl_k3_after=_figure(after, "mismatch/kl_k3"),
        prob_diff_before=_figure(before, "mismatch/prob_diff_mean"),
        prob_diff_after=_figure(after, "mismatch/prob_diff_mean"),
    )


def _figure(comparison: Comparison, metric: str) -> float:
    number = scalar(comparison.readings[metric])
    return float("nan") if number is None else number
