"""Several ranks' parts of a step against the same step on one rank."""

import time
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import permutations

import numpy as np
import pytest

from grpodoctor.hooks.ranks.exchange import RankExchange
from grpodoctor.hooks.ranks.joined_steps import MAX_WAITING, JoinedStep, RankSteps
from grpodoctor.hooks.ranks.merging import RankPart, merge_parts, part_of
from grpodoctor.measure.batch import RolloutBatch, UpdateBatch
from grpodoctor.measure.step import StepBatch, step_readings
from grpodoctor.vocabulary.values import Mean, Rate, scalar

COUNT, WIDTH = 24, 9


def batch(step: int = 3) -> RolloutBatch:
    """Groups of four with neighbors on different ranks."""
    random = np.random.default_rng(1)
    learner_BT = -random.random((COUNT, WIDTH)).astype(np.float32)
    rewards_B = random.integers(0, 3, COUNT).astype(float)
    return RolloutBatch(
        step=step,
        sequence_ids=[f"{step}-{row:02}" for row in range(COUNT)],
        group_ids_B=np.arange(COUNT) // 4,
        prompt_ids=[f"p{row // 4}" for row in range(COUNT)],
        prompts=[f"prompt {row // 4}" for row in range(COUNT)],
        texts=[f"response {row % 5} " * 12 for row in range(COUNT)],
        references=[""] * COUNT,
        tokens_BT=random.integers(0, 9, (COUNT, WIDTH)),
        mask_BT=np.arange(WIDTH) < random.integers(1, WIDTH + 1, COUNT)[:, None],
        rewards_B=rewards_B,
        components={"format": random.random(COUNT), "right/or wrong": rewards_B},
        correct_B=rewards_B > 0,
        truncated_B=random.random(COUNT) > 0.7,
        advantages_B=random.standard_normal(COUNT),
        learner_logprobs_BT=learner_BT,
        sampler_logprobs_BT=learner_BT + random.normal(0, 0.05, learner_BT.shape),
        entropy_BT=random.random((COUNT, WIDTH)),
        staleness_B=np.zeros(COUNT, np.int64),
    )


def rows_of(whole: RolloutBatch, rows: np.ndarray) -> RolloutBatch:
    changes = {}
    for each in fields(whole):
        value = getattr(whole, each.name)
        if isinstance(value, list):
            changes[each.name] = [value[row] for row in rows]
        elif isinstance(value, np.ndarray):
            changes[each.name] = value[rows]
    components = {name: values[rows] for name, values in whole.components.items()}
    return replace(whole, components=components, **changes)


def update_of(rollouts: RolloutBatch) -> UpdateBatch:
    learner_BT = rollouts.learner_logprobs_BT
    return UpdateBatch(
        sequence_ids=rollouts.sequence_ids,
        new_logprobs_BT=learner_BT * 1.3,
        old_logprobs_BT=learner_BT,
        advantages_BT=np.broadcast_to(rollouts.advantages_B[:, None], learner_BT.shape),
        loss_mask_BT=rollouts.mask_BT,
        loss=0.5,
        grad_norm=2.0,
        learning_rate=1e-4,
        clip_low=0.2,
        clip_high=0.2,
    )


def step_of(rollouts: RolloutBatch) -> StepBatch:
    updates = [update_of(rollouts)]
    return StepBatch(rollouts=rollouts, updates=updates, readings={"time/step": Mean.of([2.0])})


def parts(world: int, whole: RolloutBatch) -> list[RankPart]:
    rows = np.random.default_rng(2).permutation(COUNT)  # groups are spread over the ranks
    shares = np.array_split(rows, world)
    return [
        RankPart.from_bytes(part_of(step_of(rows_of(whole, share)), rank).to_bytes())
        for rank, share in enumerate(shares)
    ]


_BY_RANK = {"entropy/fork_tokens", "groups/reward_by_place", "groups/length_by_place"}
"""The tokens of highest entropy are chosen on each rank, and the place of a response is that among
the responses of its group on its rank."""


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_together_have_the_readings_of_one_rank(world: int) -> None:
    whole = batch()
    expected = step_readings(step_of(whole))
    merged = merge_parts(parts(world, whole))
    assert merged.keys() == expected.keys()
    for name in merged.keys() - _BY_RANK:
        ours, theirs = scalar(merged[name]), scalar(expected[name])
        assert ours == (None if theirs is None else pytest.approx(theirs, rel=1e-6)), name
    # Counts too: a rate over groups that were cut in two would have twice as many of them.
    assert merged["groups/zero_variance_rate"] == expected["groups/zero_variance_rate"]
    assert merged["accuracy/train"] == expected["accuracy/train"]


def test_a_group_that_ranks_share_is_judged_as_a_whole() -> None:
    """The parts of a group have means other than zero, and fewer responses to repeat."""
    whole = batch()
    means_G = whole.advantages_B.reshape(-1, 4).mean(axis=1)
    whole = replace(whole, advantages_B=whole.advantages_B - np.repeat(means_G, 4))
    expected, merged = step_readings(step_of(whole)), merge_parts(parts(2, whole))
    assert scalar(expected["groups/uncentred_rate"]) == 0
    assert merged["groups/uncentred_rate"] == expected["groups/uncentred_rate"]


def test_a_rank_without_log_probabilities_leaves_shared_groups_unjudged() -> None:
    whole = batch()
    bare = replace(whole, learner_logprobs_BT=None, sampler_logprobs_BT=None)
    halves = [
        part_of(StepBatch(rollouts=rows_of(rows, np.arange(rank, COUNT, 2))), rank)
        for rank, rows in enumerate((whole, bare))
    ]
    assert "groups/expected_duplicate_rate" in halves[0].measured
    assert "groups/expected_duplicate_rate" not in merge_parts(halves)


def test_a_rank_whose_prompts_are_not_the_whole_task_hides_repeated_prompts() -> None:
    whole = batch()
    groups = np.arange(COUNT) // 4
    halves = [
        part_of(StepBatch(rollouts=rows_of(rows, np.flatnonzero(groups % 2 == rank))), rank)
        for rank, rows in enumerate((whole, replace(whole, prompts_are_whole=False)))
    ]
    assert "groups/repeated_prompt_rate" in halves[0].measured
    assert "groups/repeated_prompt_rate" not in merge_parts(halves)


def test_the_order_of_the_ranks_does_not_matter() -> None:
    results = [merge_parts(list(each)) for each in permutations(parts(3, batch()))]
    assert all(each == results[0] for each in results)


def test_what_no_rank_measured_stays_unknown() -> None:
    whole = replace(batch(), correct_B=None, truncated_B=None, texts=None)
    whole = replace(whole, rewards_B=(whole.rewards_B > 0).astype(float))
    merged = merge_parts(parts(2, whole))
    absent = {
        "accuracy/train",
        "length/truncated_rate",
        "length/correct",
        "groups/all_correct_rate",
    }
    assert not absent & merged.keys()


def test_readings_of_the_trainer_take_precedence() -> None:
    part = part_of({"groups/zero_variance_rate": Rate(1, 2)}, 0)
    ranks = [part, *parts(2, batch())]
    assert merge_parts(ranks)["groups/zero_variance_rate"] == Rate(1, 2)


def test_a_rank_without_responses_adds_nothing() -> None:
    whole = batch()
    empty = part_of(StepBatch(rollouts=rows_of(whole, np.arange(0))), 1)
    both = [part_of(step_of(whole), 0), RankPart.from_bytes(empty.to_bytes())]
    assert merge_parts(both)["reward/mean"] == step_readings(step_of(whole))["reward/mean"]


def join(
    world: int, exchanges: Callable[[int], list[RankExchange]]
) -> tuple[list[RankSteps], list[JoinedStep]]:
    joined: list[JoinedStep] = []
    run = lambda action: action()  # noqa: E731
    return [RankSteps(each, joined.append, run) for each in exchanges(world)], joined


def test_steps_are_joined_in_order(exchanges: Callable[[int], list[RankExchange]]) -> None:
    ranks, joined = join(3, exchanges)
    for step in range(4):
        for rank, each in enumerate(ranks):
            each.end_step(step, {"reward/mean": Mean.of([float(rank)])}, {})
    for each in reversed(ranks):
        each.finish(30, close=True)
    assert [each.step for each in joined] == [0, 1, 2, 3]
    assert all(each.readings["reward/mean"] == Mean.of([0.0, 1.0, 2.0]) for each in joined)
    assert all(each.missing == () for each in joined)


def test_steps_are_recorded_while_the_training_runs(
    exchanges: Callable[[int], list[RankExchange]],
) -> None:
    ranks, joined = join(2, exchanges)
    for each in reversed(ranks):
        each.end_step(0, {"reward/mean": Mean.of([1.0])}, {})
    deadline = time.monotonic() + 30
    while not joined and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [each.missing for each in joined] == [()]
    for each in ranks:
        each.finish(1, close=True)


def test_a_lost_rank_delays_nothing(exchanges: Callable[[int], list[RankExchange]]) -> None:
    (first, second), joined = join(2, exchanges)
    for step in range(MAX_WAITING + 2):
        first.end_step(step, {"reward/mean": Mean.of([1.0])}, {})
        while first._jobs:  # not faster than it is measured, so that nothing is dropped
            time.sleep(0.001)
    first.finish(0.1, close=True)
    assert [(each.step, each.missing) for each in joined] == [
        (step, (1,)) for step in range(MAX_WAITING + 2)
    ]
    second.finish(0, close=True)


def test_parts_that_come_too_late_do_not_stay_in_the_store(
    exchanges: Callable[[int], list[RankExchange]],
) -> None:
    (first, second), joined = join(2, exchanges)
    part = {"reward/mean": Mean.of([1.0])}
    first.end_step(0, part, {})
    first.finish(0.1)
    assert [each.missing for each in joined] == [(1,)]
    second.end_step(0, part, {})
    second.finish(30)
    assert first._exchange.peek("step/1/1") is not None
    for each in (second, first):
        each.end_step(1, part, {})
        each.finish(30, close=True)
    assert [each.missing for each in joined] == [(1,), ()]
    assert first._exchange.peek("step/1/1") is None


def test_a_failure_in_the_thread_does_not_end_it(
    exchanges: Callable[[int], list[RankExchange]],
) -> None:
    failures = []

    def run(action: Callable[[], None]) -> None:
        try:
            action()
        except ZeroDivisionError as error:
            failures.append(error)

    first, second = (RankSteps(each, lambda _: 1 / 0, run) for each in exchanges(2))
    for each in (second, first):
        each.end_step(0, {}, {})
        each.finish(30, close=True)
    assert len(failures) == 1


def test_a_large_message_arrives_whole(exchanges: Callable[[int], list[RankExchange]]) -> None:
    first, second = exchanges(2)
    data = bytes(range(256)) * 40_000
    second.post("big", data)
    second.post("empty", b"")
    assert first.take("big") == data
    assert first.take("big") is None
    assert first.take("empty") == b""
