"""Rewards, verifiers and data that break a run."""

from __future__ import annotations

from random import Random

import numpy as np

from tests.benchmarks.planted_mechanisms.plants import (
    FALL,
    FLAT,
    HELDOUT,
    Change,
    accepted,
    by_difficulty,
    compliance,
    from_step,
    mechanism,
    onset,
    relative_length,
    with_evaluation,
    with_parts,
)
from tests.benchmarks.planted_mechanisms.run import Run, Sizes
from tests.benchmarks.planted_mechanisms.world import FILLER, REFLECT, Floats, Responses


@mechanism("verifier-times-out", (*FALL, "LEN001", "LEN005", "REW005", "REW013", "REW015"))
def _times_out(draw: Random, run: Run) -> Change:
    """A slower verifier gives 0 to responses longer than the median of the moment."""
    most = 0

    def score(run: Run, responses: Responses) -> dict[str, Floats]:
        nonlocal most
        most = most or int(np.median(responses.decisions))
        return {"correct": accepted(run, responses) * (responses.decisions <= most)}

    return from_step(onset(draw, run), lambda: setattr(run, "score", score))


@mechanism(
    "judge-drifts",
    (*HELDOUT, "REW005", "REW009", "REW010", "REW013", "REW016", "LEN004"),
    with_evaluation,
    ("heldout", "accuracy"),
)
def _drifts(draw: Random, run: Run) -> Change:
    """A learned judge is retrained on the policy's outputs and comes to prefer filler."""
    share, rise = 0.0, 2.5 / run.sizes.steps * draw.uniform(0.8, 1.5)

    def score(run: Run, responses: Responses) -> dict[str, Floats]:
        padded = ((responses.token == FILLER) & responses.exists).sum(axis=1)
        right = (1 - share) * accepted(run, responses)
        return {"judge": right + share * np.minimum(padded / 6, 1.0)}

    def change(_: int) -> None:
        nonlocal share
        share = min(share + rise, 1.0)

    run.score = score
    return change


@mechanism(
    "format-sign", (*FALL, "REW003", "REW004", "REW005", "REW007", "REW010", "REW016"), with_parts
)
def _format_sign(draw: Random, run: Run) -> Change:
    """After a change of the code, the format is punished, and answers without it are not found."""
    weight = draw.uniform(1.0, 1.5)
    sign = 1.0

    def score(run: Run, responses: Responses) -> dict[str, Floats]:
        form = compliance(responses)
        return {"correct": accepted(run, responses) * form, "format": sign * weight * form}

    def flip() -> None:
        nonlocal sign
        sign = -1.0

    run.score = score
    return from_step(onset(draw, run), flip)


@mechanism("reward-rescaled", ("REW016",))
def _rescaled(draw: Random, run: Run) -> Change:
    """The reward is multiplied from one step on; standardized advantages do not change."""
    factor = draw.choice((0.1, 0.2, 5.0, 10.0))
    return from_step(onset(draw, run), lambda: setattr(run, "scale", factor))


@mechanism("hard-at-the-end", ("GRP002", *FALL, "REW001"))
def _hard_at_the_end(draw: Random, run: Run) -> None:
    """Prompts come from easy to hard, and the last ones are far beyond the policy."""
    order = by_difficulty(run)
    hard = order[-round(0.35 * len(order)) :]
    run.problems.slips[hard] = 0.95
    steps = run.sizes.steps * run.sizes.prompts
    run.in_order = np.repeat(order, -(-steps // len(order)))[
        np.linspace(0, len(order) * -(-steps // len(order)) - 1, steps).astype(np.int64)
    ]


def _tiny_pool(draw: Random, sizes: Sizes) -> None:
    sizes.prompts, sizes.group = draw.choice(((16, 8), (24, 8)))
    sizes.pool = sizes.prompts
    sizes.rate = draw.uniform(0.03, 0.05)
    sizes.level = 0.6
    sizes.steps = draw.randint(200, 300)
    sizes.every = 5


@mechanism("memorised", (*HELDOUT, "REW006", "GRP001", "DAT107"), _tiny_pool, ("heldout",))
def _memorised(draw: Random, run: Run) -> None:
    """Each batch has the same few prompts; the policy learns their answers by heart."""
    run.weights.memory[:] = 0.0


@mechanism(
    "length-punished",
    (*FALL, *HELDOUT, "LEN005", "REW005", "REW010", "REW013", "REW015"),
    with_evaluation,
)
def _length_punished(draw: Random, run: Run) -> None:
    """The penalty for each token outweighs the answer, so the policy guesses at once."""
    weight = draw.uniform(8.0, 12.0)
    run.score = lambda run, responses: {
        "correct": accepted(run, responses),
        "length": -weight * relative_length(run, responses),
    }


def _easy(_: Random, sizes: Sizes) -> None:
    sizes.level, sizes.deepest = 6.0, 2


@mechanism("all-solved", ("GRP001", "REW006", "OPT001", "GRP004"), _easy)
def _all_solved(draw: Random, run: Run) -> None:
    """The policy solves the prompts before training."""
    run.problems.slips *= 0.02
    run.weights.skill[:, :, FILLER] -= 1.0


@mechanism("dead-shard", ("GRP002", "GRP004", "REW019", *FALL))
def _dead_shard(draw: Random, run: Run) -> None:
    """A third of the prompts has labels that no response can equal."""
    dead = run.random.random(run.problems.count) < draw.uniform(0.3, 0.45)
    run.problems.labels[dead] = -9


@mechanism("dead-shard-in-order", ("REW019", "GRP002", *FALL))
def _dead_shard_in_order(draw: Random, run: Run) -> None:
    """The data are read in order, and one shard of them has labels that nothing equals."""
    total = run.sizes.steps * run.sizes.prompts
    run.in_order = np.resize(run.random.permutation(run.problems.count), total)
    first = draw.randint(3, 6)
    every = draw.randint(10, 16)
    steps = np.arange(run.sizes.steps)
    dead_steps = (steps % every) == first
    alive, dead = run.problems.count // 2, run.problems.count // 2
    order = np.where(
        np.repeat(dead_steps, run.sizes.prompts),
        alive + np.arange(total) % dead,
        np.arange(total) % alive,
    )
    run.in_order = order
    run.problems.labels[alive:] = -9


def _wordy(draw: Random, sizes: Sizes) -> None:
    sizes.level = draw.uniform(1.4, 1.8)
    sizes.deepest = 5


@mechanism("limit-lowered", ("LEN002", "LEN003", *FALL), _wordy)
def _limit_lowered(draw: Random, run: Run) -> Change:
    """A restart lowers the limit below what most solutions need."""
    return from_step(onset(draw, run), lambda: setattr(run.sampling, "most", 6))


def _with_form(_: Random, sizes: Sizes) -> None:
    sizes.reward_parts = True


@mechanism(
    "format-dominates",
    ("REW009", "REW010", "REW004", "REW007", "GRP002", "GRP004", "REW006", *HELDOUT, *FLAT),
    _with_form,
)
def _format_dominates(draw: Random, run: Run) -> None:
    """The verifier cannot read nearly all answers, so only the format is learned."""
    unread = run.random.random(run.problems.count) < 0.97
    run.problems.labels[unread] = -9
    run.score = lambda run, responses: {
        "correct": accepted(run, responses),
        "format": 2.0 * compliance(responses),
    }


@mechanism(
    "judge-likes-length",
    (*HELDOUT, "REW005", "REW010", "REW013", "LEN002", "LEN003", "LEN004", "LEN006"),
    with_evaluation,
)
def _likes_length(draw: Random, run: Run) -> None:
    """The judge gives most of its score for length."""
    weight = draw.uniform(2.0, 4.0)
    run.score = lambda run, responses: {
        "judge": accepted(run, responses) + weight * relative_length(run, responses)
    }


@mechanism("one-task-dies", (*FALL, "GRP002", "GRP004", "REW004"))
def _one_task_dies(draw: Random, run: Run) -> Change:
    """In a mixture of two tasks, the verifier of one returns 0 after an update of its server."""
    task = run.problems.classes % 2 == 0

    def change() -> None:
        run.problems.labels[task] = -9

    return from_step(onset(draw, run), change)


@mechanism(
    "reflection-paid",
    (*HELDOUT, "LEN002", "LEN003", "LEN004", "LEN006", "LEN008", "REW005", "REW010", "REW013"),
    with_evaluation,
)
def _reflection_paid(draw: Random, run: Run) -> None:
    """A bonus counts words of reflection; the policy repeats them instead of answering."""
    weight = draw.uniform(0.3, 0.6)

    def score(run: Run, responses: Responses) -> dict[str, Floats]:
        words = ((responses.token == REFLECT) & responses.exists).sum(axis=1)
        return {"correct": accepted(run, responses), "reflection": weight * np.minimum(words, 8)}

    run.score = score


@mechanism("labels-shuffled", ("REW018", "DAT113", "GRP002", "REW011", *FLAT, *HELDOUT))
def _labels_shuffled(draw: Random, run: Run) -> None:
    """The labels belong to other prompts."""
    run.problems.labels = run.random.permutation(run.problems.labels)


@mechanism("answers-accepted-anyhow", (*HELDOUT, "REW005", "REW006", "REW012", "LEN005"),
           with_evaluation, ("heldout",))  # fmt: skip
def _accepted_anyhow(draw: Random, run: Run) -> None:
    """The verifier takes any answer for right that stands behind a format tag."""
    run.score = lambda run, responses: {
        "correct": np.maximum(accepted(run, responses), compliance(responses))
    }


@mechanism("judge-outages", ("REW019", "REW011", "REW017", *FALL))
def _judge_outages(draw: Random, run: Run) -> Change:
    """The judge's server restarts now and then; batches in between get 0."""
    steps = set(draw.sample(range(15, run.sizes.steps - 5), draw.randint(4, 8)))

    def score(run: Run, responses: Responses) -> dict[str, Floats]:
        return {"correct": accepted(run, responses) * works}

    works = 1.0

    def change(number: int) -> None:
        nonlocal works
        works = 0.0 if number in steps else 1.0

    run.score = score
    return change


@mechanism("judge-answers-from-cache", ("REW004", "REW007", "REW016", "GRP004", "OPT001", *FALL))
def _cached_judge(draw: Random, run: Run) -> Change:
    """From some step on a broken cache of the judge returns one score for all responses."""
    constant = draw.choice((0.5, 1.0))

    def score(run: Run, responses: Responses) -> dict[str, Floats]:
        return {"judge": np.full(len(responses.prompts), constant)}

    return from_step(onset(draw, run), lambda: setattr(run, "score", score))


@mechanism("rewards-misplaced", ("REW018", "GRP008", "REW011", "REW004", *FALL, *FLAT, *HELDOUT))
def _misplaced(draw: Random, run: Run) -> Change:
    """From some step on a gather of ranks returns rewards in another order than responses."""

    def score(run: Run, responses: Responses) -> dict[str, Floats]:
        return {"correct": run.random.permutation(accepted(run, responses))}

    return from_step(onset(draw, run), lambda: setattr(run, "score", score))


@mechanism(
    "truncated-is-correct",
    (*HELDOUT, "LEN002", "LEN003", "LEN004", "LEN006", "LEN007", "REW005", "REW013"),
)
def _truncated_is_correct(draw: Random, run: Run) -> None:
    """A verifier that fails to parse an unfinished response returns the highest score."""
    run.weights.skill[:, :, FILLER] += 0.8
    run.score = lambda run, responses: {
        "correct": np.maximum(accepted(run, responses), responses.truncated)
    }
