"""The sampler's experts for the learner."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch
from grpodoctor.vocabulary.knobs import Setting


class RoutingReplay(Remedy):
    """Restart with the learner held to the experts that the sampler used: R3.

    What it does:
        The engine that samples writes down which experts each token went to, and the learner sends
        it to the same ones, when it scores and when it is updated. The gate weights are taken anew
        from its own logits, so that the router still learns. What is left between the engines is
        the arithmetic inside the experts, as in a dense model.

    What it costs:
        The ids of all tokens, layers and experts travel with the responses. The engine must tell
        them, and prefix caches, preempted requests and turns that are put together lose some of
        them silently: watch that coverage and agreement are 1. Where the batches are learnt from at
        once, by one update, it was found to bring nothing.

    What it overlaps:
        R2, which replays the learner's own experts over several updates and needs nothing of the
        engine; GSPO and RSPO, which live with the flips. Take one of them.

    How it is judged:
        By a person, after the restart: the engines agree about the experts, and their
        probabilities differ by about half as much.

    References:
        Stabilizing MoE Reinforcement Learning by Aligning Training and Inference Routers (R3),
        arXiv 2510.11370; arXiv 2512.01374 (R2 where little is off-policy, R3 where much is).
    """

    id = "routing-replay"
    title = "Restart with the sampler's routing replayed in the learner (R3)"
    applicability = "suggest"
    in_flight = False
    slots = ("expert-routing",)
    target = Watch("experts/churn_engine", "down")
    also = (Watch("mismatch/prob_diff_mean", "down"),)
    paper = "R3, arXiv 2510.11370"
    how = (
        "Let the engine return the routed experts (vLLM: enable_return_routed_experts; SGLang: "
        "--enable-return-routed-experts), restart the trainer with its routing replay switched on, "
        "and look at the first step: replay coverage and agreement must both be 1."
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `routing_replay` to R3, where it is known that nothing is replayed."""
        return {"routing_replay": "R3"} if knobs.get("routing_replay") == "none" else {}
