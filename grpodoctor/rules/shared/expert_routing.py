"""Routing replay, remedies and layers of a mixture of experts, shared by the MOE rules."""

from __future__ import annotations

from itertools import count

from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.losses import traits_of


def replay_of(chart: Chart) -> str | None:
    """The routing that is replayed, `R2` or `R3`; None if there is no replay or it is unknown."""
    replay = chart.knobs.get("routing_replay")
    return replay if isinstance(replay, str) and replay != "none" else None


def tolerated_by(chart: Chart) -> str | None:
    """The replay or loss that keeps changed experts out of the ratio; None if there is none."""
    replay, loss = replay_of(chart), chart.knobs.get("loss")
    if replay:
        return f"routing replay {replay}"
    traits = traits_of(loss)
    return str(loss) if traits.ratio_per_response or traits.handles_router_shift else None


def flip_remedies(chart: Chart, *, between_engines: bool) -> tuple[str, ...]:
    """Remedies for changed experts that are not in force yet, best first.

    A ratio of whole responses tolerates experts that an update changes. It does not correct a
    sampler that routes tokens differently from the learner.
    """
    replay = replay_of(chart)
    if replay == "R3":
        return ("check-routing-replay",) if between_engines else ()
    if between_engines:
        remedies = ("routing-replay", "higher-precision-sampler", "gspo")
        return remedies[:2] if tolerated_by(chart) else remedies
    return () if tolerated_by(chart) else ("gspo", "routing-replay", "lower-learning-rate")


def extreme_layer(chart: Chart, metric: str, readings: int, *, lowest: bool = False) -> str | None:
    """Name of the per-layer metric whose recent level is highest, or lowest.

    Returns:
        None where layers are not logged separately.
    """
    names = []
    for layer in count():
        name = f"{metric}/layer/{layer}"
        if not len(chart.series(name)):
            break
        names.append(name)
    if not names:
        return None
    choose = min if lowest else max
    return choose(names, key=lambda name: chart.series(name).level(readings))


def layer_number(name: str) -> str:
    """The layer's number in the name of a per-layer metric."""
    return name.rpartition("/")[2]
