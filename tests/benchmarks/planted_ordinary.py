"""A seventh set of planted causes: the ordinary ones, in proportion to how often they are reported.

38 public threads about GRPO runs were read in which a maintainer, a fix or a measurement states the
cause. By kind: the reward function or its verifier is wrong (11), the sampler has other weights or
other numerics (6), the grouping or the mask of the loss is wrong (5), the length limit cuts the
answer (4), groups have equal rewards because they are small or alike (4), the learning rate or the
KL coefficient does not fit (4), and a metric becomes NaN (4). The set has 13 causes in these
proportions, each one as in one of the threads; whether an earlier set has it does not matter.

| kind | threads |
|---|---|
| reward | CoursIA #10380, #10504, Visual-RFT #176, TRL #2771, alpamayo-recipes #29, cookbook #335, open-r1 #235, #293, #566, ms-swift #3353, codescout #50 |
| sampler | verl #5211, #7495, unsloth #2451, AReaL #1290, TRL #2856, open-instruct #1473 |
| groups, mask | Search-R1 #88, MemGen #33, VLM-R1 #280, AgenticArXiv-RL #80, pytorch/rl #3580 |
| limit | autocontext #1067, CoursIA #13596, TRL #5759, UniRL #19 |
| equal rewards | CoursIA #10603, ms-swift #4570, UniRL #216, unsloth #2614 |
| rate | HelloAgents #107, cosmos-rl #318, DanceGRPO #45, TRL #2872 |
| NaN | ms-swift #8123, Soup #342, DeepAnalyze #116, NeMo RL #4161 |

Causes, words and codes were written down before any of these runs was trained. Runs with an even
number are half A, the others half B. A cause that leaves the hidden accuracy of the final policy as
it is does not count (`planted_truth`). This module has the runs of the bundled trainer.
"""  # noqa: E501 - a table

from __future__ import annotations

from typing import Any

import torch
from planted_faults import raw_rewards
from planted_reports import Case
from planted_unseen import Fault

from grpodoctor.trainer.model.lora import merged_copy
from grpodoctor.trials.faults import sync_by, weights_never_delivered

STEPS = 100
PREFIX = "ordinary:"
"""Prefix of the names of these faults."""


def _random_part(trainer: Any) -> None:
    """The sampler never receives one projection of each layer, whose weights are random."""
    kept: dict[str, Any] = {}

    @torch.no_grad()
    def deliver(_: Any, learner: Any) -> Any:
        copy = merged_copy(learner)
        for name, weight in copy.named_parameters():
            if name.endswith("down_proj.weight"):
                kept.setdefault(name, weight.std() * torch.randn_like(weight))
                weight.copy_(kept[name])
        return copy

    sync_by(trainer, deliver)
    trainer.engine.sync(1)


FAULTS: dict[str, Fault] = {
    "never_delivered": weights_never_delivered,
    "random_part": _random_part,
    "own_groups": raw_rewards,
}

_LORA = ("model.lora_rank=8", "optimizer.learning_rate=2e-3")
_OFF = ("MIS001", "MIS003", "MIS004", "SYN001", "SYN002", "SYN003", "SYN006", "SYN007", "SYN008")

CASES: dict[str, Case] = {
    "adapter-never-delivered": Case(
        _LORA, _OFF, "never_delivered",
        cause="The sync sends the base model's weights, so the sampler never has the adapter.",
        words="weights never delivered, stale samples, or sampler and learner disagree",
    ),
    "sampler-partly-random": Case(
        (), (*_OFF, "MIS002", "ENT006"), "random_part",
        cause="A part of the sampler's weights is random, since the sync does not name it.",
        words="the sampler has other weights, sampler and learner disagree, or samples are random",
    ),
    "response-is-its-own-group": Case(
        (), ("GRP005", "CFG015", "CFG006", "GRP008", "GRP010"), "own_groups",
        cause="Responses to one prompt have different group ids, so no baseline is subtracted.",
        words="the advantage is the reward, no baseline, or groups of one",
    ),
    "healthy-lora-int8-sampler": Case((*_LORA, "engine.precision=int8")),
}  # fmt: skip
"""In the order of their numbers, from 0."""
