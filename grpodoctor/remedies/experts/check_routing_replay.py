"""Check of routing replay."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class CheckRoutingReplay(Remedy):
    """Find out where replayed routes get lost, or why the layers do not use them.

    What it does:
        A working replay has a route for every token and layer, and the layers use it. Routes get
        lost where responses are cut or joined: turns, preempted requests, prefix caches. Layers
        ignore routes if these belong to another layer (a model with extra prediction layers numbers
        them differently), follow another token order, or are passed to a module that does not
        choose the experts.

    When it applies:
        Routing replay is on, and its coverage or agreement is below 1.

    What it costs:
        An hour of your time. A replay that does not work costs bandwidth without any benefit.

    What it overlaps:
        Nothing.

    How it is judged:
        By a person: coverage and agreement are 1 after the next start.

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
    target = Criterion("experts/replay_agreement", "up")
    more_targets = (Criterion("experts/replay_coverage", "up"),)
    paper = "R3, arXiv 2510.11370"
    how = (
        "Take one response of one turn without a prefix cache. Compare the engine's expert ids "
        "with those that each layer received, by layer and position. A constant shift is an "
        "alignment error, one bad layer a numbering error, and missing rows at the ends of turns a "
        "merge error. Drop responses without routes from the loss until the cause is fixed."
    )
