"""Micro-batches, ranks and padding change no gradient, for every variant.

The model is float64, so that differences come from the arithmetic and not from rounding.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from grpodoctor.errors import ConfigError
from grpodoctor.trainer.algorithms.aggregation import AGGREGATIONS
from grpodoctor.trainer.algorithms.batches import LearnBatch
from grpodoctor.trainer.algorithms.corrections.base import CorrectionInputs
from grpodoctor.trainer.algorithms.names import names
from grpodoctor.trainer.algorithms.passes import passes_over
from grpodoctor.trainer.algorithms.registry import correction_of
from grpodoctor.trainer.config.loss import loss_settings
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.trainer.distributed.ranks import Ranks
from grpodoctor.trainer.learner import Learner
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.scoring import Scores, score
from grpodoctor.trainer.samples import Samples, TopK

SMALL = (
    *("threads=1", "model.warm_start_steps=30", "record.enabled=false", "rollout.max_length=9"),
    *("rollout.prompts_per_batch=4", "rollout.group_size=3", "optimizer.max_grad_norm=1e9"),
    *("model.layers=1", "model.width=32"),
)
RANKS = 5
"""So many that twelve rows cannot be shared out evenly."""
EXTRAS = ("loss.kl_coefficient=0.1",)
REWEIGHTINGS = {
    "none": (),
    "advantage_reweighting": ("reweighting.alpha=0.5",),
    "lopti": ("reweighting.alpha=0.3", "reweighting.lopti_threshold=0.08"),
    "forking_tokens": ("reweighting.forking_share=0.3",),
}
CORRECTIONS = {
    **{name: (f"correction.kind={name}",) for name in names("corrections")},
    "icepop": ("correction.kind=icepop", "correction.floor=0.7", "correction.cap=1.4"),
    "geo_mask": ("correction.kind=geo_mask", "correction.floor=0.9", "correction.cap=1.1"),
    "mis of kept tokens": (
        *("correction.kind=mis_token", "correction.cap=1.3", "correction.denominator=kept"),
    ),
    "tis by the geometric mean": (
        *("correction.kind=tis_sequence", "correction.of_response=geometric-mean"),
    ),
}
CHANGES = {**REWEIGHTINGS, **CORRECTIONS, "none": ()}
# RSPO needs a mixture of experts; it has its own test below.
LOSSES = [name for name, settings in loss_settings().items() if not settings.needs_router_shift]
CHOOSING = {
    "clip_cov": ("loss.share=0.1", "loss.covariance_low=0.02"),
    "kl_cov": ("loss.share=0.1",),
}


def config_of(*assignments: str) -> TrainConfig:
    return load_config(assignments=[*SMALL, *assignments])


SAMPLED = 8
"""`make test` tries one of so many pairs of settings, `make test-slow` the others."""


def variants() -> Iterator[tuple[tuple[str, ...], bool]]:
    """Every loss with every reweighting and correction, and both together with PPO's clip.

    Each comes with whether `make test` tries it: every loss alone, and of the pairs a diagonal
    pattern that contains each partner.
    """
    for (row, loss), (column, name) in product(enumerate(LOSSES), enumerate(CHANGES)):
        extras = ("loss.off_policy_limit=0.05",) if name == "none" else ()
        settings = (f"loss.kind={loss}", *CHOOSING.get(loss, ()), *CHANGES[name], *extras)
        yield settings, name == "none" or (row + column) % SAMPLED == 0
    pairs = product(enumerate(list(REWEIGHTINGS)[1:]), enumerate(CORRECTIONS))
    for (row, more), (column, correction) in pairs:
        settings = (*REWEIGHTINGS[more], *CORRECTIONS[correction])
        yield settings, (row + column) % len(REWEIGHTINGS) == 0
    for aggregation, more in product(AGGREGATIONS, ("none", "lopti")):
        bonus = "loss.entropy_coefficient=0.01"
        yield (f"loss.aggregation={aggregation}", bonus, *REWEIGHTINGS[more]), True


def consistent(assignments: tuple[str, ...]) -> bool:
    try:
        config_of(*assignments)
    except ConfigError:
        return False
    return True


VARIANTS = {each: quick for each, quick in dict(variants()).items() if consistent(each)}
"""Whether `make test` tries a variant, by its settings."""
each_variant = pytest.mark.parametrize(
    "variant",
    [
        pytest.param(each, marks=() if quick else pytest.mark.slow, id=" ".join(each))
        for each, quick in VARIANTS.items()
    ],
)


@dataclass(frozen=True)
class Bench:
    """A model and a batch on which all policies differ."""

    models: Sequence[PreTrainedModel]
    """As many as there are ranks, all the same."""
    batch: LearnBatch
    scores: Scores

    def passes(self, config: TrainConfig, batch: LearnBatch | None = None) -> Sequence[LearnBatch]:
        """The passes over the batch under this configuration."""
        batch = batch or self.batch
        mask_BT, sampler_BT = batch.loss_mask_BT, batch.samples.logprobs_BT
        corrected = correction_of(config.correction.kind)(
            CorrectionInputs(batch.old_logprobs_BT, sampler_BT, mask_BT, config.correction)
        )
        entropy_BT = torch.nn.functional.pad(
            self.scores.entropy_BT, (0, mask_BT.shape[1] - self.scores.entropy_BT.shape[1])
        )
        whole = replace(batch, corrected=corrected)
        return passes_over(whole, entropy_BT, config.reweighting).batches

    def gradient(self, batch: LearnBatch, config: TrainConfig) -> Tensor:
        """Of one update."""
        return _gradient(Learner(self.models[0], config.optimizer), batch, config)

    def gradient_of_ranks(self, batch: LearnBatch, config: TrainConfig) -> Tensor:
        """The sum over ranks, each with a share of the rows and its own model."""
        meeting = Meeting(RANKS)

        def of_rank(rank: int) -> Tensor:
            ranks = ThreadRanks(rank, RANKS, meeting)
            return _gradient(Learner(self.models[rank], config.optimizer, ranks), batch, config)

        with ThreadPoolExecutor(RANKS) as pool:
            parts = list(pool.map(of_rank, range(RANKS)))
        return torch.stack(parts).sum(dim=0)


def _gradient(fresh: Learner, batch: LearnBatch, config: TrainConfig) -> Tensor:
    """Of one update, read back from the first moment of a fresh AdamW."""
    fresh.update(batch, torch.arange(12), config, 0.0, chance())
    moments = fresh.optimizer.state_dict()["state"]
    flat = [moments[index]["exp_avg"].flatten() for index in sorted(moments)]
    return torch.cat(flat) / (1 - config.optimizer.beta1)


class Meeting:
    """Exchanges values between the threads that stand for ranks."""

    def __init__(self, world: int) -> None:
        self._barrier, self._table = Barrier(world, timeout=60), [None] * world

    def exchange(self, rank: int, mine: Any) -> list[Any]:
        self._table[rank] = mine
        self._barrier.wait()
        everyone = list(self._table)
        self._barrier.wait()
        return everyone


@dataclass(frozen=True)
class ThreadRanks(Ranks):
    """Ranks that are threads of this process; gradients are not summed."""

    meeting: Meeting = field(default_factory=lambda: Meeting(1))

    def sum(self, numbers: Tensor) -> Tensor:
        return torch.stack(self.meeting.exchange(self.rank, numbers)).sum(dim=0)

    def gather_rows(self, part: Tensor, count: int) -> Tensor:
        parts = self.meeting.exchange(self.rank, part)
        sizes = [len(Ranks(rank, self.world).rows(count)) for rank in range(self.world)]
        return torch.cat([each[:size] for each, size in zip(parts, sizes, strict=True)])


def chance() -> torch.Generator:
    return torch.Generator().manual_seed(7)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    config = config_of("loss.kind=dppo_topk_tv", "loss.top_tokens=4")
    trainer = Trainer(config, tmp_path_factory.mktemp("run"))
    rollouts = trainer._collect(1)
    model = trainer.learner.model.double()
    scores = score(model, rollouts.samples, 1.0)
    mask_BT = rollouts.samples.mask_BT
    generator = torch.Generator().manual_seed(0)

    def noise(scale: float) -> Tensor:
        return torch.where(mask_BT, torch.randn(mask_BT.shape, generator=generator) * scale, 0.0)

    old_BT = (scores.logprobs_BT + noise(0.3)).clamp(max=0)
    sampler_BT = (old_BT + noise(0.3)).clamp(max=0)
    advantages_B1 = torch.randn(12, 1, generator=generator)
    batch = replace(
        trainer._learn_batch(rollouts, scores),
        samples=replace(rollouts.samples, logprobs_BT=sampler_BT),
        advantages_BT=advantages_B1.expand(mask_BT.shape),
        loss_mask_BT=mask_BT.index_fill(0, torch.tensor([4]), value=False),
        old_logprobs_BT=old_BT,
        reference_logprobs_BT=(scores.logprobs_BT + noise(0.3)).clamp(max=0),
    )
    assert len(set(mask_BT.sum(dim=1).tolist())) > 2  # there is padding, of several widths
    return Bench([model, *(copy.deepcopy(model) for _ in range(RANKS - 1))], batch, scores)


def assert_same(left: Tensor, right: Tensor) -> None:
    """Compares whole gradients: that of one weight may be a small difference of large terms."""
    assert (left - right).norm() <= 1e-6 * right.norm()


@each_variant
def test_any_split_over_micro_batches_and_ranks_has_the_gradient_of_the_whole(
    variant: tuple[str, ...], bench: Bench
) -> None:
    config = config_of(*EXTRAS, *variant)
    total = torch.zeros(())
    for batch in bench.passes(config):
        whole = bench.gradient(batch, config)
        total = total + whole.norm()
        for size in (1, 5):
            split = config_of(*EXTRAS, *variant, f"optimizer.micro_batch={size}")
            assert_same(bench.gradient(batch, split), whole)
        assert_same(bench.gradient_of_ranks(batch, config), whole)
    assert total > 0


def padded(batch: LearnBatch, columns: int, garbage: float) -> LearnBatch:
    """The same responses with more padding on the right, and garbage wherever there is padding."""
    samples, mask_BT = batch.samples, batch.samples.mask_BT

    def widened(values_BT: Tensor) -> Tensor:
        filled_BT = torch.where(mask_BT, values_BT, garbage)
        return torch.nn.functional.pad(filled_BT, (0, columns), value=garbage)

    top = samples.top
    assert top is not None
    assert batch.reference_logprobs_BT is not None
    blank_BT1 = ~torch.nn.functional.pad(mask_BT, (0, columns))[..., None]
    tokens_BL = torch.where(samples.attention_BL, samples.tokens_BL, 17)
    wide = Samples(
        tokens_BL=torch.nn.functional.pad(tokens_BL, (0, columns), value=17),
        attention_BL=torch.nn.functional.pad(samples.attention_BL, (0, columns), value=False),
        prompt_width=samples.prompt_width,
        logprobs_BT=widened(samples.logprobs_BT),
        truncated_B=samples.truncated_B,
        pad_id=samples.pad_id,
        top=TopK(
            top.widened(columns).ids_BTK,
            top.widened(columns).logprobs_BTK.masked_fill(blank_BT1, garbage),
        ),
    )
    return replace(
        batch,
        samples=wide,
        loss_mask_BT=torch.nn.functional.pad(batch.loss_mask_BT, (0, columns), value=False),
        advantages_BT=widened(batch.advantages_BT),
        old_logprobs_BT=widened(batch.old_logprobs_BT),
        reference_logprobs_BT=widened(batch.reference_logprobs_BT),
    )


@each_variant
def test_nothing_at_padding_reaches_the_gradient(variant: tuple[str, ...], bench: Bench) -> None:
    garbage = (float("nan"), float("inf"))[len(" ".join(variant)) % 2]  # either in half of them
    config = config_of(*EXTRAS, *variant)
    plain = [bench.gradient(batch, config) for batch in bench.passes(config)]
    wider = bench.passes(config, padded(bench.batch, 3, garbage))
    for batch, wanted in zip(wider, plain, strict=True):
        assert_same(bench.gradient(batch, config), wanted)


@pytest.mark.parametrize("quick", [True, False])
def test_the_invariance_variants_cover_every_family(quick: bool) -> None:
    tried = [" ".join(each) for each in VARIANTS if VARIANTS[each] or not quick]
    told = " ".join(tried)
    assert all(f"loss.kind={name}" in told for name in LOSSES)
    assert all(f"correction.kind={name}" in told for name in {*names("corrections")} - {"none"})
    for change in CHANGES.values():
        assert any(" ".join(change) in each for each in tried), change
    assert all(f"reweighting.{key}=" in told for key in ("alpha", "lopti_threshold"))
    assert len(tried) > (50 if quick else 100)


def test_two_passes_together_have_the_gradient_of_one(bench: Bench) -> None:
    """Lopti divides the tokens among two passes; no token is lost or counted twice."""
    split = config_of(*EXTRAS, "reweighting.lopti_threshold=0.08")
    parts = [bench.gradient(batch, split) for batch in bench.passes(split)]
    whole = config_of(*EXTRAS)
    assert all(part.norm() > 0 for part in parts)
    gap = torch.stack(parts).sum(dim=0) - bench.gradient(bench.batch, whole)
    assert gap.norm() <= 1e-6 * sum(part.norm() for part in parts)


def test_a_loss_that_watches_routers_has_one_gradient_however_a_step_is_split(
    tmp_path: Path,
) -> None:
    rspo = ("loss.kind=rspo", "model.experts=4", *EXTRAS)
    trainer = Trainer(config_of(*rspo), tmp_path / "run")
    rollouts = trainer._collect(1)
    model = trainer.learner.model.double()
    model.set_experts_implementation("eager")  # the grouped kernel does not support float64
    batch = trainer._learn_batch(rollouts, trainer._score(rollouts.samples, None))
    with torch.no_grad():  # routers and policy differ from the old ones
        for each in model.parameters():
            each.add_(0.05 * torch.randn(each.shape, generator=chance()))
    noise_B1 = torch.randn(12, 1, generator=chance())
    batch = replace(batch, advantages_BT=noise_B1.expand(batch.loss_mask_BT.shape))
    assert batch.old_gates is not None

    def gradient(*assignments: str) -> Tensor:
        learner = Learner(model, trainer.config.optimizer)
        learner.routers = trainer.learner.routers
        return _gradient(learner, batch, config_of(*rspo, *assignments))

    whole = gradient()
    assert whole.norm() > 0
    for size in (1, 5):
        assert_same(gradient(f"optimizer.micro_batch={size}"), whole)
