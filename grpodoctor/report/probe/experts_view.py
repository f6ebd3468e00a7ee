"""The routing of experts in two engines, or in two checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from grpodoctor.probe.results.results import ExpertComparison, Replayed
from grpodoctor.report.probe.phrases import format_percent, format_small, replay_line
from grpodoctor.report.view import Block, Column, Detail, Heading, Inline, Paragraph, Table


def experts(
    comparison: ExpertComparison | None,
    replayed: Replayed | None = None,
    title: str = "Experts",
    *,
    is_brief: bool = False,
) -> Iterator[Block]:
    """How routing differs; nothing if it was not compared.

    Args:
        comparison: routing on both sides.
        replayed: the result of replaying the sampler's routing in the learner.
        title: heading of the tables.
        is_brief: whether a page has a sentence instead of the tables, as text has.
    """
    if comparison is None:
        return
    replay = [Paragraph(replay_line(replayed))] if replayed else []
    sentence = Paragraph(_sentence(comparison))
    full = [sentence, *replay] if is_brief else [Heading(title), *replay, *_tables(comparison)]
    yield Detail(lambda: full, (sentence, *replay))


def churn(comparison: ExpertComparison) -> Paragraph:
    """How routing changed since an older checkpoint, in one sentence."""
    return Paragraph(
        f"Since the older checkpoint, {comparison.churn:.3%} of expert assignments changed for the "
        f"same tokens; {comparison.any_flip_rate:.2%} of {comparison.tokens:,} tokens have a "
        "different expert in some layer."
    )


def _sentence(comparison: ExpertComparison) -> str:
    worst = max(comparison.layers, key=lambda layer: layer.flipped_rate, default=None)
    text = (
        f"Experts: {comparison.any_flip_rate:.2%} of {comparison.tokens:,} tokens are routed to a "
        f"different expert in some layer; {comparison.churn:.3%} of expert assignments differ"
    )
    if worst is not None and worst.flipped_rate:
        text += f"; most affected is layer {worst.layer} ({worst.flipped_rate:.2%} of tokens)"
    if comparison.logprob_diff_flipped is not None and comparison.logprob_diff_kept is not None:
        text += (
            f"; mean |Δlogp| is {format_small(comparison.logprob_diff_flipped)} for tokens with a "
            f"flip, {format_small(comparison.logprob_diff_kept)} for tokens without"
        )
    return f"{text}."


def _tables(comparison: ExpertComparison) -> Iterator[Block]:
    rows: tuple[tuple[Inline, ...], ...] = (
        ("tokens with routing on both sides", f"{comparison.tokens:,} ({comparison.coverage:.1%})"),
        ("tokens with a different expert in any layer", f"{comparison.any_flip_rate:.2%}"),
        ("expert assignments that differ", f"{comparison.churn:.3%}"),
        (
            "(token, layer) pairs with identical experts; 100 % under a replay",
            format_percent(comparison.agreement),
        ),
        ("mean |Δlogp| of tokens with a flip", format_small(comparison.logprob_diff_flipped)),
        ("mean |Δlogp| of tokens without a flip", format_small(comparison.logprob_diff_kept)),
        (
            "rank correlation of flipped layers and |Δlogp|",
            format_small(comparison.flips_to_gap),
        ),
    )
    yield Table((Column("metric"), Column("value", numeric=True)), rows)
    layers = tuple(
        (
            str(layer.layer),
            f"{layer.overlap:.2%}",
            f"{layer.flipped_rate:.2%}",
            format_small(layer.margin_flipped),
            format_small(layer.margin_kept),
        )
        for layer in comparison.layers
    )
    yield Table(_numeric("layer", "overlap", "flipped", "margin, flipped", "margin, kept"), layers)
    if comparison.by_margin:
        margins = tuple(
            (f"{format_small(low)} to {format_small(high)}", f"{rate:.2%}", f"{count:,}")
            for low, high, rate, count in comparison.by_margin
        )
        yield Table(_numeric("router margin", "flipped", "(token, layer) pairs"), margins)


def _numeric(*titles: str) -> tuple[Column, ...]:
    return tuple(Column(title, numeric=True) for title in titles)
