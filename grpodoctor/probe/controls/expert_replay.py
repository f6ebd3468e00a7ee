"""Routing replay in the learner: whether it uses the sampler's experts, and the remaining gap."""

from __future__ import annotations

from pathlib import Path

from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.contract import Processing, shard_paths
from grpodoctor.probe.engines.jobs import ScoreJob
from grpodoctor.probe.engines.shards import read_shard
from grpodoctor.probe.results.results import Replayed


def replay_job(rollouts: Path, processing: Processing, *, own_prompts: bool = False) -> ScoreJob:
    """A job that scores responses with their recorded experts."""
    return ScoreJob(
        rollouts=rollouts,
        processing=processing,
        want=("experts",),
        own_prompts=own_prompts,
        replay=True,
    )


def has_experts(rollouts: Path) -> bool:
    """Whether the sampler recorded experts.

    Raises:
        EngineError: if the first shard is damaged.
    """
    first = shard_paths(rollouts)[:1]
    return any(read_shard(path).experts_NLK is not None for path in first)


def replayed_of(part: Path, free: Path, replayed: Path) -> Replayed | None:
    """The gap with and without expert replay.

    Args:
        part: responses of the sampler, with experts.
        free: the learner's scores with its own routing.
        replayed: the learner's scores with the sampler's routing.

    Returns:
        None if no token has known experts on both sides.

    Raises:
        EngineError: as `compare`.
    """
    before, after = compare(part, free), compare(part, replayed)
    if after.experts is None:
        return None
    return Replayed(
        responses=after.responses,
        tokens=after.tokens,
        experts=after.experts,
        kl_k3_before=before.value("mismatch/kl_k3"),
        kl_k3_after=after.value("mismatch/kl_k3"),
        prob_diff_before=before.value("mismatch/prob_diff_mean"),
        prob_diff_after=after.value("mismatch/prob_diff_mean"),
    )
