"""Routing replay (R3): the sampler's experts for the learner."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class RoutingReplay(Remedy):
    """Restart with the learner using the experts that the sampler used: R3.

    What it does:
        The sampler records the experts of each token, and the learner routes the token to the same
        ones, in scoring and in updates. The gate weights are still computed from its own logits, so
        the router keeps learning. The engines then differ only by the arithmetic inside the
        experts, as in a dense model.

    When it applies:
        A mixture of experts whose engines route tokens to different experts, with an engine that
        returns its routes.

    What it costs:
        The expert ids of all tokens and layers are sent with the responses. The engine must return
        them. Prefix caches, preempted requests and merged turns silently lose some of them: check
        that coverage and agreement are 1. With one update per batch, published runs found no
        benefit.

    What it overlaps:
        R2, which replays the learner's own experts over several updates and needs nothing from the
        engine; GSPO and RSPO, which tolerate the flips. Use one of them.

    How it is judged:
        By a person, after the restart: expert assignments agree between the engines, and their
        probabilities differ by about half as much.

    References:
        Stabilizing MoE Reinforcement Learning by Aligning Training and Inference Routers (R3),
        arXiv 2510.11370; arXiv 2512.01374 (R2 for nearly on-policy training, R3 for off-policy
        training).
    """

    id = "routing-replay"
    title = "Restart with the sampler's routing replayed in the learner (R3)"
    applicability = "suggest"
    in_flight = False
    slots = ("expert-routing",)
    target = Criterion("experts/churn_engine", "down")
    more_targets = (Criterion("mismatch/prob_diff_mean", "down"),)
    paper = "R3, arXiv 2510.11370"
    alternatives = ("gspo", "rspo", "icepop")
    how = (
        "Let the engine return the routed experts (vLLM: enable_return_routed_experts; SGLang: "
        "--enable-return-routed-experts), restart the trainer with its routing replay switched on, "
        "and check the first step: replay coverage and agreement must both be 1."
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `routing_replay` to R3 if it is known that nothing is replayed."""
        return {"routing_replay": "R3"} if knobs.get("routing_replay") == "none" else {}
