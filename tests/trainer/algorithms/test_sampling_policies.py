"""Sampling policies: dynamic sampling, filters, masks and shaping of the reward."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from grpodoctor.errors import ConfigError, DataError
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.trainer.algorithms.advantages.base import AdvantageInputs, of_kept
from grpodoctor.trainer.algorithms.advantages.settings import AdvantageConfig
from grpodoctor.trainer.algorithms.aggregation import AGGREGATIONS
from grpodoctor.trainer.algorithms.batches import LearnBatch, mini_batches
from grpodoctor.trainer.algorithms.filters.duplicates import duplicates
from grpodoctor.trainer.algorithms.registry import advantage_of
from grpodoctor.trainer.algorithms.shaping.repetition import repetition
from grpodoctor.trainer.algorithms.shaping.soft_overlong import OverlongConfig
from grpodoctor.trainer.config.presets import preset_of
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.trainer.learner import Learner
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.checkpoint import saved_config
from grpodoctor.trainer.model.scoring import score
from grpodoctor.trainer.rollout import RolloutGroups, _shaped, collect, loss_mask
from grpodoctor.trainer.samples import Samples
from grpodoctor.trainer.task import Problem, Rewards
from grpodoctor.vocabulary.values import NotApplicable, Reading, scalar

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "kl_vectors.json").read_text())
SMALL = (
    *("threads=1", "model.warm_start_steps=30", "steps=3", "evaluation.every=0"),
    *("rollout.prompts_per_batch=6", "rollout.group_size=2", "optimizer.learning_rate=1e-3"),
)
FILTER, DYNAMIC = "rollout.filter_groups=true", "rollout.dynamic_sampling=true"


def small(*assignments: str, preset: str | None = None) -> TrainConfig:
    layers = [preset_of(preset).settings] if preset else []
    return load_config(*layers, assignments=[*SMALL, *assignments])


@pytest.fixture
def parity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A reward of 1 for responses of odd length: about half of the groups of two lack variance."""
    (tmp_path / "parities.py").write_text(
        "def reward(prompts, completions, answers):\n"
        "    return {'correct': [bool(len(text) % 2) for text in completions]}\n"
        "def bare(prompts, completions, answers):\n"
        "    return [float(len(text) % 2) for text in completions]\n"
        "def flat(prompts, completions, answers):\n"
        "    return [1.0 for text in completions]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return "task.reward=parities:reward"


def values(run_dir: Path) -> list[dict[str, Reading]]:
    return [dict(step.values) for step in read_run(run_dir).steps]


def trained(config: TrainConfig, run_dir: Path) -> Trainer:
    trainer = Trainer(config, run_dir)
    trainer.run()
    return trainer


def drawn(trainer: Trainer) -> tuple[RolloutGroups, LearnBatch]:
    rollouts = trainer._collect(1)
    batch = trainer._learn_batch(rollouts, score(trainer.policy.model, rollouts.samples, 1.0))
    trainer.recording.close(finished=False)
    return rollouts, batch


def gradient(learner: Learner, batch: LearnBatch, rows: Tensor, config: TrainConfig) -> Tensor:
    """Of one update, read back from the first moment of a fresh AdamW."""
    fresh = Learner(learner.model, config.optimizer)
    fresh.update(batch, rows, config, 0.0, torch.Generator())
    moments = fresh.optimizer.state_dict()["state"]
    return torch.cat([moments[index]["exp_avg"].flatten() for index in sorted(moments)])


def alone(batch: LearnBatch, rows: Tensor) -> LearnBatch:
    """Some responses of a batch as a batch of their own."""
    return replace(
        batch,
        samples=batch.samples.rows(rows),
        group_ids_B=batch.group_ids_B[rows],
        kept_B=batch.kept_B[rows],
        advantages_BT=batch.advantages_BT[rows],
        loss_mask_BT=batch.loss_mask_BT[rows],
        old_logprobs_BT=batch.old_logprobs_BT[rows],
        correct_B=None,
    )


def test_filtered_groups_do_not_count_in_denominators(parity: str, tmp_path: Path) -> None:
    settings = (parity, FILTER, "optimizer.updates_per_batch=1", "optimizer.max_grad_norm=1e9")
    trainer = Trainer(small(*settings), tmp_path / "run")
    rollouts, batch = drawn(trainer)
    kept = batch.kept_B.nonzero().flatten()
    assert 0 < len(kept) < len(batch.kept_B)
    totals_G = torch.tensor(rollouts.rewards.total).view(-1, 2)
    assert torch.equal(batch.kept_B.view(-1, 2)[:, 0], totals_G[:, 0] != totals_G[:, 1])
    parts = list(mini_batches(batch.group_ids_B, batch.kept_B, 1, 1, torch.Generator()))
    assert [part.tolist() for part in parts] == [kept.tolist()]
    smaller, rows = alone(batch, kept), torch.arange(len(kept))
    for aggregation in AGGREGATIONS:
        config = small(*settings, f"loss.aggregation={aggregation}")
        filtered = gradient(trainer.learner, batch, parts[0], config)
        torch.testing.assert_close(filtered, gradient(trainer.learner, smaller, rows, config))
        assert filtered.abs().max() > 0


@pytest.mark.parametrize("kind", ["scalerl", "batch_std", "gdpo", "group", "leave_one_out"])
def test_advantages_of_kept_responses_ignore_the_others(kind: str) -> None:
    rewards_B = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.5, 2.0, 0.0, 0.0], dtype=torch.float64)
    ids_B = torch.arange(4).repeat_interleave(2)
    kept_B = torch.tensor([1, 1, 0, 0, 1, 1, 0, 0]).bool()
    inputs = AdvantageInputs(rewards_B, ids_B, AdvantageConfig(), {"correct": rewards_B})
    advantages_B = of_kept(advantage_of(kind), inputs, kept_B)
    fewer_B, fewer_ids_B = rewards_B[kept_B], torch.tensor([0, 0, 1, 1])
    fewer = AdvantageInputs(fewer_B, fewer_ids_B, AdvantageConfig(), {"correct": fewer_B})
    assert torch.equal(advantages_B[kept_B], advantage_of(kind)(fewer))
    assert (advantages_B[~kept_B] == 0).all()
    if kind in ("scalerl", "batch_std", "gdpo"):
        assert not torch.allclose(advantages_B[kept_B], advantage_of(kind)(inputs)[kept_B])


@pytest.mark.slow
def test_readings_of_a_filtered_batch_cover_everything_generated(
    parity: str, tmp_path: Path
) -> None:
    trained(small(parity, FILTER, "steps=4"), tmp_path / "run")
    steps = values(tmp_path / "run")
    flat = [scalar(step["groups/zero_variance_rate"]) or 0.0 for step in steps]
    assert any(0 < rate < 1 for rate in flat)
    for step, rate in zip(steps, flat, strict=True):
        assert scalar(step["optimizer/left_out_rate"]) == pytest.approx(rate)
        if rate < 1:
            assert scalar(step["groups/generated_per_kept"]) == pytest.approx(1 / (1 - rate))
            assert scalar(step["advantage/zero_rate"]) == 0
            assert scalar(step["updates_per_batch"]) == min(4, round(6 * (1 - rate)))


@pytest.mark.slow
def test_an_empty_filtered_batch_takes_no_update_and_records_it(
    parity: str, tmp_path: Path
) -> None:
    # The first steps move, so that AdamW's momentum would go on moving the weights.
    part = Trainer(small(parity, FILTER, "steps=4"), tmp_path / "run")
    part.run(lambda report: part.stop() if report.step == 2 else None)
    before = {name: each.clone() for name, each in part.policy.model.state_dict().items()}
    config = saved_config(tmp_path / "run", ["task.reward=parities:flat"])
    resumed = Trainer(config, tmp_path / "run", resume=True)
    resumed.run()
    assert resumed.done == 4
    after = resumed.policy.model.state_dict()
    assert all(torch.equal(before[name], each) for name, each in after.items())
    step = values(tmp_path / "run")[-1]
    assert scalar(step["updates_per_batch"]) == 0
    assert scalar(step["groups/zero_variance_rate"]) == 1
    assert isinstance(step["groups/generated_per_kept"], NotApplicable)
    assert "optimizer/loss" not in step
    told = [each.step for each in read_run(tmp_path / "run").events if each.kind == "warning"]
    assert told == [3, 4]


class Counting:
    """A task that remembers how many problems each call asked for."""

    def __init__(self, trainer: Trainer) -> None:
        self._task, self.asked = trainer.task, list[int]()

    def problems(self, rng: random.Random, count: int) -> list[Problem]:
        self.asked.append(count)
        return self._task.problems(rng, count)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)


@pytest.mark.parametrize("refill", ["rounds", "missing"])
def test_active_sampling_draws_what_is_missing_and_dynamic_sampling_whole_rounds(
    refill: str, parity: str, tmp_path: Path
) -> None:
    config = small(parity, DYNAMIC, f"rollout.refill={refill}", "rollout.resample_limit=30")
    trainer = Trainer(config, tmp_path / "run")
    counting = Counting(trainer)
    generator = torch.Generator().manual_seed(4)
    rng, tokenizer = random.Random(4), trainer.policy.tokenizer
    batch = collect(config, trainer.engine, counting, tokenizer, rng, generator)  # type: ignore[arg-type]  # counts
    trainer.recording.close(finished=False)
    assert batch.varied().tolist() == [True] * 6
    assert batch.generated_groups == sum(counting.asked)
    assert len(counting.asked) > 1
    assert batch.limit_hit is False
    if refill == "rounds":
        assert set(counting.asked) == {6}
    else:
        assert counting.asked[0] == 6
        assert sorted(counting.asked, reverse=True) == counting.asked
        assert counting.asked[1] < 6
        # Only groups without variance were replaced.
        flat = batch.generated_groups - 6
        assert flat == sum(counting.asked[1:])


@pytest.mark.slow
def test_variance_of_correctness_differs_from_variance_of_reward(
    parity: str, tmp_path: Path
) -> None:
    # The rewards of every group differ, at least by the length of the responses.
    soft = ("overlong.kind=soft-punishment", "overlong.buffer=28", FILTER)
    trainer = Trainer(small(parity, *soft, "rollout.variance_of=correct"), tmp_path / "run")
    rollouts, _ = drawn(trainer)
    right_G = torch.tensor(rollouts.rewards.correct).view(-1, 2)
    wanted_G = right_G[:, 0] != right_G[:, 1]
    assert torch.equal(rollouts.kept_B.view(-1, 2)[:, 0], wanted_G)
    assert wanted_G.sum() < rollouts.varied().sum()
    blind = Trainer(
        small("task.reward=parities:bare", FILTER, "rollout.variance_of=correct"),
        tmp_path / "blind",
    )
    with pytest.raises(DataError, match=r"the correctness of responses.*variance_of=reward"):
        blind.run()


@pytest.mark.slow
@pytest.mark.parametrize("refill", ["rounds", "missing"])
def test_reaching_the_resample_limit_is_recorded(refill: str, parity: str, tmp_path: Path) -> None:
    hopeless = ("task.reward=parities:flat", DYNAMIC, f"rollout.refill={refill}", "steps=2")
    trained(small(*hopeless, "rollout.resample_limit=3"), tmp_path / "hopeless")
    for step in values(tmp_path / "hopeless"):
        assert scalar(step["groups/limit_hit_rate"]) == 1
        assert scalar(step["groups/generated_per_kept"]) == 3


@pytest.mark.slow
def test_the_resample_limit_is_not_reported_as_reached_otherwise(
    parity: str, tmp_path: Path
) -> None:
    trained(small(parity, DYNAMIC, "rollout.resample_limit=60", "steps=1"), tmp_path / "filled")
    assert scalar(values(tmp_path / "filled")[0]["groups/limit_hit_rate"]) == 0
    trained(small(parity, "steps=1"), tmp_path / "plain")
    assert "groups/limit_hit_rate" not in values(tmp_path / "plain")[0]


def test_repeated_responses_of_a_group_are_found_token_by_token() -> None:
    tokens_BT = torch.tensor([[5, 6, 9], [5, 6, 8], [5, 6, 7], [5, 6, 9], [5, 6, 9], [5, 6, 9]])
    mask_BT = torch.tensor([[1, 1, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1], [1, 1, 0], [1, 1, 1]])
    ids_B = torch.tensor([0, 0, 0, 0, 1, 0])
    found = duplicates(tokens_BT, mask_BT.bool(), ids_B)
    assert found.tolist() == [False, True, False, False, False, True]


def test_duplicates_and_truncated_responses_are_masked_and_stay_in_the_batch(
    tmp_path: Path,
) -> None:
    # A short limit and a low temperature give repeated and truncated responses.
    often = ("rollout.max_length=3", "rollout.group_size=8", "rollout.temperature=0.3")
    trainer = Trainer(small(*often, "rollout.drop_duplicates=true"), tmp_path / "run")
    rollouts, batch = drawn(trainer)
    samples = rollouts.samples
    repeated_B = duplicates(samples.response_BT, samples.mask_BT, rollouts.group_ids_B)
    assert 0 < repeated_B.sum() < len(repeated_B)
    assert torch.equal(batch.loss_mask_BT.any(dim=1), ~repeated_B)
    masked_too = loss_mask(rollouts, small(*often, "overlong.kind=mask"))
    assert torch.equal(masked_too.any(dim=1), ~samples.truncated_B)
    # The advantages are those of the whole group.
    plain = Trainer(small(*often), tmp_path / "plain")
    _, undropped = drawn(plain)
    assert torch.equal(batch.advantages_BT[:, 0], undropped.advantages_BT[:, 0])


def test_the_share_of_left_out_responses_is_recorded(tmp_path: Path) -> None:
    often = ("rollout.max_length=3", "rollout.group_size=8", "rollout.temperature=0.3", "steps=2")
    trained(small(*often, "rollout.drop_duplicates=true"), tmp_path / "duplicates")
    for step in values(tmp_path / "duplicates"):
        rate = scalar(step["optimizer/left_out_rate"])
        assert rate == scalar(step["groups/duplicate_rate"])
        assert rate
    trained(small(*often, "overlong.kind=mask"), tmp_path / "mask")
    for step in values(tmp_path / "mask"):
        assert scalar(step["optimizer/left_out_rate"]) == scalar(step["length/truncated_rate"])
    trained(small(*often), tmp_path / "plain")
    assert all(scalar(step["optimizer/left_out_rate"]) == 0 for step in values(tmp_path / "plain"))


def test_the_repetition_penalty_is_the_published_one() -> None:
    vector = VECTORS["repetition"]
    ids = [ord(token) for token in vector["tokens"]]
    assert repetition(ids, 3) == pytest.approx(vector["penalty"])
    assert repetition([1, 2], 3) == 0
    assert repetition([], 3) == 0
    assert repetition([1, 2, 3, 4], 3) == 0


@pytest.mark.filterwarnings("ignore")  # TRL's own warnings
@pytest.mark.parametrize("ngram", [1, 2, 3, 5])
def test_the_repetition_penalty_is_that_of_trl(ngram: int) -> None:
    from trl.rewards import get_repetition_penalty_reward

    rng = random.Random(ngram)
    batch = [[rng.randrange(4) for _ in range(rng.randrange(12))] for _ in range(40)]
    theirs = get_repetition_penalty_reward(ngram_size=ngram, max_penalty=-1.0)(
        completions=[""] * len(batch), completion_ids=batch
    )
    assert [repetition(ids, ngram) for ids in batch] == pytest.approx(theirs)


def components(run_dir: Path) -> Sequence[dict[str, float]]:
    prefix, suffix = "reward/component/", "/mean"
    return [
        {
            name.removeprefix(prefix).removesuffix(suffix): value
            for name, each in step.items()
            if name.startswith(prefix) and name.endswith(suffix)
            if (value := scalar(each)) is not None
        }
        for step in values(run_dir)
    ]


def test_each_part_of_the_reward_is_a_component_of_its_own(parity: str, tmp_path: Path) -> None:
    parts = ("repetition.penalty=0.5", "repetition.ngram=1", "overlong.kind=soft-punishment")
    bare = "task.reward=parities:bare"
    trained(small(bare, *parts, "overlong.buffer=28", "steps=1"), tmp_path / "run")
    (found,) = components(tmp_path / "run")
    assert set(found) == {"task", "overlong", "repetition"}
    assert found["repetition"] < 0
    total = found["task"] + found["overlong"] + 0.5 * found["repetition"]
    assert scalar(values(tmp_path / "run")[0]["reward/mean"]) == pytest.approx(total)


def test_only_correct_punishment_spares_incorrect_responses(parity: str, tmp_path: Path) -> None:
    soft = ("overlong.kind=soft-punishment", "overlong.buffer=28", "overlong.only_correct=true")
    trainer = Trainer(small(parity, *soft), tmp_path / "run")
    rewards = drawn(trainer)[0].rewards
    assert rewards.correct is not None
    punished = [each < 0 for each in rewards.components["overlong"]]
    assert punished == rewards.correct
    assert any(punished)
    blind = Trainer(small("task.reward=parities:bare", *soft), tmp_path / "blind")
    with pytest.raises(DataError, match=r"correctness of responses.*overlong\.only_correct=false"):
        blind.run()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ((FILTER, DYNAMIC), "both solve the same problem"),
        ((FILTER, "advantage.kind=dcpo_sas"), "learns from groups without variance"),
        ((DYNAMIC, "advantage.kind=dcpo_sas"), "learns from groups without variance"),
    ],
)
def test_two_settings_for_the_same_purpose_are_refused(
    settings: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        small(*settings)


def test_a_setting_without_effect_gives_a_warning() -> None:
    assert "dynamic_sampling is off" in small("rollout.refill=missing").warnings()[0]
    assert "only_correct" in small("overlong.only_correct=true").warnings()[0]
    assert small("rollout.refill=missing", DYNAMIC).warnings() == []


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("scalerl", {"filter_groups": True, "dynamic_sampling": False}),
        ("reinforce_rej", {"filter_groups": True, "group_size": 2}),
        ("olmo3", {"dynamic_sampling": True, "refill": "missing"}),
        ("dapo", {"dynamic_sampling": True, "refill": "rounds", "variance_of": "correct"}),
    ],
)
def test_presets_draw_as_their_papers_do(preset: str, expected: dict[str, object]) -> None:
    rollout = small(preset=preset).rollout
    assert {key: getattr(rollout, key) for key in expected} == expected
    assert small(preset="scalerl").difficulty.retire_at == 0.9


def test_fewer_groups_than_updates_give_fewer_updates() -> None:
    ids_B = torch.arange(5).repeat_interleave(2)
    kept_B = torch.isin(ids_B, torch.tensor([1, 4]))
    parts = list(mini_batches(ids_B, kept_B, 8, 2, torch.Generator().manual_seed(0)))
    assert sorted(part.tolist() for part in parts) == [[2, 3], [2, 3], [8, 9], [8, 9]]
    none = torch.zeros_like(kept_B)
    assert list(mini_batches(ids_B, none, 8, 2, torch.Generator())) == []


def shaped(
    rewards: list[float], lengths: list[int], *assignments: str
) -> tuple[Rewards, OverlongConfig]:
    """Rewards of responses of given lengths under a limit of 10 tokens, with its configuration."""
    config = small("rollout.max_length=10", "overlong.buffer=4", *assignments)
    mask_BT = torch.arange(10) < torch.tensor(lengths)[:, None]
    samples = Samples(
        tokens_BL=mask_BT.long(),
        attention_BL=mask_BT,
        prompt_width=0,
        logprobs_BT=torch.zeros(mask_BT.shape),
        truncated_B=torch.tensor(lengths) == 10,
        pad_id=0,
    )
    return _shaped(Rewards(rewards), samples, config), config.overlong


def test_a_weight_of_one_half_suits_rewards_of_zero_and_one() -> None:
    """Half the spread of the rewards and half the punishment: the same standardized advantages."""
    lengths = [5, 8, 10, 9]
    signed, _ = shaped([1.0, -1.0, 1.0, -1.0], lengths, "overlong.kind=soft-punishment")
    half = ("overlong.kind=soft-punishment", "overlong.weight=0.5")
    binary, _ = shaped([1.0, 0.0, 1.0, 0.0], lengths, *half)
    assert signed.total == [1.0, -1.5, 0.0, -1.75]
    assert [2 * reward - 1 for reward in binary.total] == signed.total
    assert binary.components["overlong"] == signed.components["overlong"] == [0, -0.5, -1, -0.75]
    assert small(preset="dapo").overlong.weight == 0.5


def test_the_mask_and_the_soft_punishment_can_be_combined(parity: str, tmp_path: Path) -> None:
    both = ("overlong.kind=mask-and-soft-punishment", "overlong.buffer=4", "rollout.max_length=6")
    trainer = Trainer(small(parity, *both), tmp_path / "run")
    rollouts, batch = drawn(trainer)
    truncated_B = rollouts.samples.truncated_B
    punished_B = torch.tensor(rollouts.rewards.components["overlong"]) < 0
    assert truncated_B.any()
    assert (punished_B & ~truncated_B).any()
    assert torch.equal(batch.loss_mask_BT.any(dim=1), ~truncated_B)
    assert (punished_B & truncated_B).sum() == truncated_B.sum()


def test_stop_properly_scales_the_reward_of_truncated_responses() -> None:
    rewards, lengths = [1.0, 1.0, 0.5], [9, 10, 10]
    for factor, expected in ((0.0, [1, 0, 0]), (0.25, [1, 0.25, 0.125]), (1.0, [1, 1, 0.5])):
        settings = ("overlong.kind=stop-properly", f"overlong.truncated_factor={factor}")
        found, overlong = shaped(rewards, lengths, *settings)
        assert found.total == pytest.approx(expected)
        assert found.components["task"] == rewards
        assert not overlong.masks
        assert not overlong.punishes
