"""Reweightings and the advantage with memory: published values, passes, exact resume."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from grpodoctor.errors import ConfigError
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.trainer.algorithms.advantages.base import AdvantageInputs
from grpodoctor.trainer.algorithms.advantages.settings import AdvantageConfig
from grpodoctor.trainer.algorithms.batches import LearnBatch
from grpodoctor.trainer.algorithms.corrections.base import CorrectionInputs
from grpodoctor.trainer.algorithms.losses.base import LossInputs
from grpodoctor.trainer.algorithms.passes import passes_over
from grpodoctor.trainer.algorithms.prompt_history import PromptHistory
from grpodoctor.trainer.algorithms.registry import (
    advantage_of,
    correction_of,
    loss_of,
    reweighting_of,
)
from grpodoctor.trainer.algorithms.reweightings.base import ReweightingInputs
from grpodoctor.trainer.algorithms.reweightings.settings import ReweightingConfig
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.trainer.learner import Learner
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.samples import Samples
from grpodoctor.vocabulary.values import scalar

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors.json").read_text())
CORE = VECTORS["core"]
SMALL = (
    *("threads=1", "model.warm_start_steps=30", "steps=4", "evaluation.every=0"),
    *("rollout.prompts_per_batch=4", "rollout.group_size=4"),
    # A reward for short responses gives a gradient even if no answer is right.
    *("overlong.kind=soft-punishment", "overlong.buffer=28"),
)


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def core_batch() -> LearnBatch:
    """The core fixture as a batch for the learner."""
    mask_BT = torch.tensor(CORE["mask"]).bool()
    samples = Samples(
        tokens_BL=torch.zeros(2, 4, dtype=torch.long),
        attention_BL=torch.nn.functional.pad(mask_BT, (1, 0), value=True),
        prompt_width=1,
        logprobs_BT=tensor(CORE["p_mu"]).log(),
        truncated_B=torch.zeros(2, dtype=torch.bool),
        pad_id=0,
    )
    return LearnBatch(
        samples=samples,
        group_ids_B=torch.tensor([0, 0]),
        kept_B=torch.ones(2, dtype=torch.bool),
        advantages_BT=tensor(CORE["advantages"])[:, None].expand(2, 3),
        loss_mask_BT=mask_BT,
        old_logprobs_BT=tensor(CORE["p_old"]).log(),
        corrected=None,
        reference_logprobs_BT=None,
    )


def loss_of_core(batch: LearnBatch, config: TrainConfig) -> tuple[Tensor, Tensor]:
    """Value and gradient with the learner's own token weights."""
    new_BT = tensor(CORE["p_new"]).log().requires_grad_()
    inputs = LossInputs(
        new_BT,
        batch.old_logprobs_BT,
        batch.samples.logprobs_BT,
        batch.advantages_BT,
        batch.loss_mask_BT,
        config.loss,
    )
    loss_BT = loss_of(config.loss.kind)(inputs).loss_BT
    if batch.corrected is not None:
        loss_BT = loss_BT * batch.corrected.weights_BT
    weights_BT = Learner._token_weights(batch, torch.arange(2), config)
    loss = (torch.where(batch.loss_mask_BT, loss_BT, 0.0) * weights_BT).sum()
    (gradient_BT,) = torch.autograd.grad(loss, new_BT)
    return loss.detach(), gradient_BT


def assert_published(name: str, found: tuple[Tensor, Tensor]) -> None:
    expected, (loss, gradient_BT) = VECTORS["losses"][name], found
    wanted_BT = tensor(expected["grad_wrt_new_logp"])
    assert loss.item() == pytest.approx(expected["loss"], rel=1e-6, abs=1e-9)
    torch.testing.assert_close(gradient_BT, wanted_BT, rtol=1e-6, atol=1e-9)
    assert ((gradient_BT == 0) == (wanted_BT == 0)).all()


TOKEN_MEAN = ("loss.aggregation=token-mean",)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("alpha=0.3", ["advantage_reweighting_alpha0.3_token_mean"]),
        (
            "lopti_threshold=0.45",
            ["lopti_eta0.45_low_first_pass", "lopti_eta0.45_high_second_pass"],
        ),
    ],
)
def test_reweighted_losses_are_the_published_ones(setting: str, expected: list[str]) -> None:
    config = load_config(assignments=[*TOKEN_MEAN, f"reweighting.{setting}"])
    passes = passes_over(core_batch(), torch.zeros(2, 3), config.reweighting)
    assert len(passes.batches) == len(expected) == config.reweighting.passes
    for batch, name in zip(passes.batches, expected, strict=True):
        assert_published(name, loss_of_core(batch, config))


def test_reweighted_advantages_are_the_published_ones() -> None:
    batch = core_batch()
    (weighed,) = passes_over(batch, torch.zeros(2, 3), ReweightingConfig(alpha=0.3)).batches
    wanted_BT = tensor(
        VECTORS["losses"]["advantage_reweighting_alpha0.3_token_mean"]["A_reweighted"]
    )
    mask_BT = batch.loss_mask_BT
    torch.testing.assert_close(
        weighed.advantages_BT[mask_BT], wanted_BT[mask_BT], rtol=1e-6, atol=1e-9
    )


def test_each_pass_of_lopti_has_the_tokens_of_its_turn() -> None:
    batch = core_batch()
    both = passes_over(batch, torch.zeros(2, 3), ReweightingConfig(lopti_threshold=0.45))
    for turn, name in zip(both.batches, ("low_first", "high_second"), strict=True):
        wanted = tensor(VECTORS["losses"][f"lopti_eta0.45_{name}_pass"]["token_mask"]).bool()
        assert turn.pass_mask_BT is not None
        assert torch.equal(turn.pass_mask_BT & batch.loss_mask_BT, wanted)
    assert scalar(both.readings["advantage/token_weight"]) == 1


def test_rejected_tokens_may_leave_the_denominator() -> None:
    config = load_config(
        assignments=[
            *(*TOKEN_MEAN, "correction.kind=icepop", "correction.cap=5", "correction.floor=0.5"),
            "correction.denominator=kept",
        ]
    )
    batch = core_batch()
    corrected = correction_of("icepop")(
        CorrectionInputs(
            *(batch.old_logprobs_BT, batch.samples.logprobs_BT, batch.loss_mask_BT),
            config.correction,
        )
    )
    found = loss_of_core(replace(batch, corrected=corrected), config)
    assert_published("icepop_0.5_5_tokenmean_denominator_of_kept_tokens", found)


def forks(entropies: Tensor, share: float, mask_BT: Tensor) -> Tensor:
    settings = ReweightingConfig(forking_share=share)
    inputs = ReweightingInputs(torch.zeros_like(entropies), entropies, mask_BT, settings)
    return reweighting_of("forking_tokens")(inputs)[0]


def test_forking_tokens_are_the_published_ones() -> None:
    fixture = VECTORS["forking_tokens"]
    mask_BT = torch.tensor(CORE["mask"]).bool()
    factor_BT = forks(tensor(fixture["entropy"]), fixture["rho"], mask_BT)
    assert torch.equal(factor_BT, tensor(fixture["keep_mask"]))


def test_ties_at_the_threshold_all_learn_and_padding_counts_for_nothing() -> None:
    mask_BT = torch.tensor([[True] * 5 + [False] * 95])
    entropies = torch.full((1, 100), 9.0)
    entropies[0, :5] = torch.tensor([0.1, 0.5, 0.5, 0.5, 0.2])
    assert forks(entropies, 0.2, mask_BT)[0, :5].tolist() == [0, 1, 1, 1, 0]
    assert forks(entropies, 1.0, mask_BT)[mask_BT].all()
    assert not forks(entropies, 0.2, torch.zeros_like(mask_BT)).any()


@pytest.mark.parametrize(
    ("assignments", "match"),
    [
        (("reweighting.alpha=0.2", "loss.kind=gspo"), "cannot weight single tokens"),
        (
            ("reweighting.forking_share=0.2", "loss.kind=sequence_clip"),
            "cannot weight single tokens",
        ),
        (("reweighting.forking_share=0.2", "reweighting.alpha=0.2"), "likely tokens"),
        (("reweighting.forking_share=0.2", "loss.entropy_coefficient=0.01"), "forking tokens"),
        (("reweighting.forking_share=0.2", "loss.kind=kl_cov"), "forking tokens"),
        (("loss.kind=clip_cov", "loss.entropy_coefficient=0.01"), "both raise the entropy"),
        (("advantage.kind=dcpo_sas", "rollout.dynamic_sampling=true"), "without variance"),
    ],
)
def test_mutually_exclusive_settings_are_refused(assignments: tuple[str, ...], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        load_config(assignments=assignments)


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        (("loss.clip_high=0.28", "loss.entropy_coefficient=0.01"), "an entropy bonus"),
        (("loss.clip_high=0.28", "reweighting.alpha=0.2"), "favor likely tokens"),
        (("loss.clip_high=0.28",), None),
        (("loss.clip_high=0.28", "reweighting.forking_share=0.2"), None),  # as its paper runs it
    ],
)
def test_settings_that_act_on_the_same_entropy_give_a_warning(
    assignments: tuple[str, ...], words: str | None
) -> None:
    doubts = load_config(assignments=assignments).warnings()
    assert [words in each for each in doubts if words] == ([True] if words else [])
    assert bool(doubts) == bool(words)


def trained(run_dir: Path, *assignments: str) -> Trainer:
    trainer = Trainer(load_config(assignments=[*SMALL, *assignments]), run_dir)
    trainer.run()
    return trainer


def weights(trainer: Trainer) -> Tensor:
    return torch.cat([each.flatten() for each in trainer.policy.model.state_dict().values()])


def test_lopti_takes_its_updates_twice_and_says_so(tmp_path: Path) -> None:
    few = ("optimizer.updates_per_batch=1", "engine.sync_every=2", "reweighting.alpha=0.3")
    trained(tmp_path / "run", *few, "reweighting.lopti_threshold=0.5")
    steps = [step.values for step in read_run(tmp_path / "run").steps]
    assert [scalar(values["updates_per_batch"]) for values in steps] == [2] * 4
    assert [scalar(values["staleness/mean"]) for values in steps] == [0, 2, 0, 2]
    for values in steps:
        assert scalar(values["clip/low_rate"]) is not None  # the second pass is off-policy
        tokens = scalar(values["length/mean"]) * 16
        assert scalar(values["optimizer/loss_tokens"]) * 2 == pytest.approx(tokens)
        assert 0.7 < scalar(values["advantage/token_weight"]) < 1


def test_each_reweighting_changes_what_is_learnt(tmp_path: Path) -> None:
    settings = ("alpha=0.3", "lopti_threshold=0.5", "forking_share=0.2")
    short = ("steps=1", "record.enabled=false")
    plain = weights(trained(tmp_path / "plain", *short))
    for setting in settings:
        other = weights(trained(tmp_path / setting, *short, f"reweighting.{setting}"))
        assert not torch.equal(plain, other)


@pytest.mark.parametrize(
    "extras",
    [
        ("loss.kind=clip_cov", "loss.share=0.05", "loss.covariance_low=0.01"),
        ("reweighting.lopti_threshold=0.5",),
        ("advantage.kind=dcpo_sas", "advantage.prompts_remembered=3"),
    ],
    ids=["by chance", "two passes", "a memory"],
)
def test_a_resumed_run_is_the_run_that_was_not_interrupted(
    extras: tuple[str, ...], tmp_path: Path
) -> None:
    data = tmp_path / "data.jsonl"
    rows = [{"prompt": f"{n}+{n}=", "answer": str(2 * n)} for n in range(5)]
    data.write_text("\n".join(map(json.dumps, rows)))
    given = (*extras, f"task.data={data}", "model.warm_start_steps=0", "record.enabled=false")
    whole = trained(tmp_path / "whole", *given)
    config = load_config(assignments=[*SMALL, *given])
    part = Trainer(config, tmp_path / "part")
    part.run(lambda report: part.stop() if report.step == 2 else None)
    resumed = Trainer(config, tmp_path / "part", resume=True)
    resumed.run()
    assert torch.equal(weights(whole), weights(resumed))
    assert whole.history.state() == resumed.history.state()
    assert len(whole.history.state()) == (3 if "advantage.kind=dcpo_sas" in extras else 0)


def visit(history: PromptHistory, rewards: list[float], **settings: Any) -> Tensor:
    """The advantages of a prompt's group, which is then added to the history."""
    config = AdvantageConfig(kind="dcpo_sas", **{"epsilon": 0.0, **settings})
    ids_B = torch.zeros(len(rewards), dtype=torch.long)
    advantages_B = advantage_of("dcpo_sas")(
        AdvantageInputs(tensor(rewards), ids_B, config, visits=history.before(["prompt"]))
    )
    history.add(["prompt"], tensor(rewards), ids_B, limit=10)
    return advantages_B


def test_smoothed_advantages_are_the_published_ones() -> None:
    history = PromptHistory()
    for step in VECTORS["advantages"]["dcpo_sas"]:
        found_B = visit(history, step["rewards"])
        torch.testing.assert_close(found_B, tensor(step["A_final"]), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("std", ["population", "unbiased"])
def test_pooled_statistics_are_those_of_all_rewards_together(std: str) -> None:
    history, every = PromptHistory(), []
    generator = torch.Generator().manual_seed(0)
    for number in range(1, 5):
        rewards = torch.rand(2 + number, generator=generator, dtype=torch.float64).tolist()
        every += rewards
        found_B = visit(history, rewards, std=std)
        fewer, own = int(std == "unbiased"), tensor(rewards)
        total_B = (own - tensor(every).mean()) / tensor(every).std(correction=fewer)
        new_B = (own - own.mean()) / own.std(correction=fewer)
        mixed = [share * new_B + (1 - share) * total_B for share in (1 / number, 1 - 1 / number)]
        wanted_B = torch.where(mixed[0].abs() < mixed[1].abs(), *mixed)
        torch.testing.assert_close(found_B, wanted_B, rtol=1e-9, atol=1e-12)


def test_a_prompt_with_constant_rewards_has_no_advantage() -> None:
    history = PromptHistory()
    for _ in range(3):  # the mean of three times 0.1 is not 0.1
        assert (visit(history, [0.1, 0.1, 0.1]) == 0).all()


def test_prompts_not_seen_for_longest_are_forgotten() -> None:
    history, ids_B = PromptHistory(), torch.tensor([0, 0, 1, 1])
    for pair in (["a", "b"], ["c", "a"], ["d", "d"]):
        history.add(pair, tensor([0.0, 1.0, 1.0, 1.0]), ids_B, limit=3)
    assert list(history.state()) == ["c", "a", "d"]
    assert history.before(["a", "b", "d"]).number_G.tolist() == [2, 0, 2]
    copy = PromptHistory()
    copy.restore(json.loads(json.dumps(history.state())))
    assert copy.state() == history.state()


def test_groups_that_are_not_kept_leave_the_others_their_own_history() -> None:
    history, ids_B = PromptHistory(), torch.tensor([0, 0, 1, 1, 2, 2])
    rewards_B = tensor([0.0, 1.0, 1.0, 1.0, 0.5, 1.0])
    history.add(["a", "b", "c"], tensor([1.0, 1.0, 0.0, 1.0, 0.0, 0.0]), ids_B, limit=9)
    config = AdvantageConfig(kind="dcpo_sas")
    inputs = AdvantageInputs(rewards_B, ids_B, config, visits=history.before(["a", "b", "c"]))
    whole_B = advantage_of("dcpo_sas")(inputs)
    kept_B = torch.tensor([True, True, False, False, True, True])
    assert torch.equal(advantage_of("dcpo_sas")(inputs.rows(kept_B)), whole_B[kept_B])
