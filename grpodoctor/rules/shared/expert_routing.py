"""How the run routes, as far as its settings and readings tell: what rules on experts ask."""

from __future__ import annotations

from itertools import count

from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.losses import traits_of


def replay_of(chart: Chart) -> str | None:
    """Which routing is replayed, `R2` or `R3`; None if none is, or it is not known."""
    replay = chart.knobs.get("routing_replay")
    return replay if isinstance(replay, str) and replay != "none" else None


def borne_by(chart: Chart) -> str | None:
    """The replay or the loss that makes changed experts harmless to the ratio; None if none."""
    replay, loss = replay_of(chart), chart.knobs.get("loss")
    if replay:
        return f"routing replay {replay}"
    traits = traits_of(loss)
    if traits.ratio_per_response or traits.handles_router_shift:
        return str(loss)
    return None


def remedies_of_flips(chart: Chart, *, between_engines: bool) -> tuple[str, ...]:
    """What is left to do about experts that change, best first.

    A ratio of whole responses bears what an update changes. It does not correct a sampler that
    sends tokens elsewhere than the learner does.
    """
    replay = replay_of(chart)
    if replay == "R3":
        return ("check-routing-replay",) if between_engines else ()
    if between_engines:
        return ("routing-replay", "higher-precision-sampler", "gspo")[: 2 if borne_by(chart) else 3]
    return () if borne_by(chart) else ("gspo", "routing-replay", "lower-learning-rate")


def extreme_layer(chart: Chart, metric: str, readings: int, *, lowest: bool = False) -> str | None:
    """The name of the layer's own reading whose recent level is highest, or lowest.

    Returns:
        None where layers are not recorded one by one.
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


def layer_of(name: str) -> str:
    """The layer's number in a reading's name."""
    return name.rpartition("/")[2]
