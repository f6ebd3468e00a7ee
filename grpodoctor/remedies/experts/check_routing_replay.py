"""Why replayed routes are missing or not obeyed."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch
from grpodoctor.vocabulary.knobs import Setting


class CheckRoutingReplay(Remedy):
    """Find out where replayed routes get lost, or why the layers do not take them.

    What it does:
        A replay that works has a route for every token and layer, and the layers use it. Missing
        routes come from where responses are cut or joined: turns, preempted requests, prefix
        caches. Routes that are there and not used belong to another layer (a model with extra
        prediction layers counts differently), to another order of tokens, or were forced on a
        router whose choice is made elsewhere.

    What it costs:
        An hour of a person. A replay that does not act costs its traffic and brings nothing.

    What it overlaps:
        Nothing.

    How it is judged:
        By a person: coverage and agreement are 1 from the next start on.

    References:
        Stabilizing MoE Reinforcement Learning by Aligning Training and Inference Routers (R3),
        arXiv 2510.11370; vLLM pull request 39917 and NeMo-RL pull request 3903 for two of the ways
        to lose routes.
    """

    id = "check-routing-replay"
    title = "Find out where replayed routes get lost"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Watch("experts/replay_agreement", "up")
    also = (Watch("experts/replay_coverage", "up"),)
    paper = "R3, arXiv 2510.11370"
    how = (
        "Take one response of one turn without a prefix cache, and compare the engine's ids with "
        "those that each layer was sent, by layer and position: a constant shift is an alignment, "
        "one bad layer a numbering, missing rows at the ends of turns a merge. Drop responses "
        "without routes from the loss until it is mended."
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:  # noqa: ARG002 - a person acts
        """Nothing: no knob stands for it."""
        return {}
