"""Checkpoints of common model families: sampling, learning, resuming, precision."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.trainer.data.loading import build_task
from grpodoctor.trainer.engines.sampler import sample
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.checkpoint import checkpoints, saved_config
from grpodoctor.trainer.model.policy import load_policy
from grpodoctor.trainer.model.saved_weights import checkpoint_weights
from grpodoctor.trainer.model.scoring import score
from grpodoctor.vocabulary.values import Max, Mean, Rate
from tests.samples import sampled
from tests.trainer.families import DENSE, FAMILIES, build, save
from tests.trainer.model.training_state import weights_and_moments

SMALL = (
    *("threads=1", "steps=4", "evaluation.every=0", "rollout.max_length=12"),
    *("rollout.prompts_per_batch=4", "rollout.group_size=4", "optimizer.learning_rate=1e-3"),
    # A reward for short responses gives a gradient even if no answer is right.
    *("overlong.kind=soft-punishment", "overlong.buffer=12", "optimizer.updates_per_batch=2"),
)


def small(folder: Path, *assignments: str) -> TrainConfig:
    return load_config(assignments=[*SMALL, f"model.name={folder}", *assignments])


def assert_identical(left: Trainer, right: Trainer) -> None:
    for one, other in zip(weights_and_moments(left), weights_and_moments(right), strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


def assert_resumes_exactly(config: TrainConfig, tmp_path: Path) -> Trainer:
    """Train once without and once with an interruption; returns the trainer that resumed."""
    whole, part = Trainer(config, tmp_path / "whole"), Trainer(config, tmp_path / "part")
    whole.run()
    part.run(lambda report: part.stop() if report.step == 2 else None)
    resumed = Trainer(saved_config(tmp_path / "part"), tmp_path / "part", resume=True)
    assert resumed.done == 2
    resumed.run()
    assert_identical(whole, resumed)
    return resumed


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(family, marks=() if family == "qwen3" else pytest.mark.slow)
        for family in FAMILIES
    ],
)
def test_a_family_trains_and_resumes_bit_for_bit(family: str, tmp_path: Path) -> None:
    folder = save(family, tmp_path / "model", template=family == "qwen3")
    before = build(family).state_dict()
    trainer = assert_resumes_exactly(small(folder), tmp_path)
    assert trainer.policy.name == str(folder)
    after = trainer.policy.model.state_dict()
    moved = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert len(moved) == len(before)
    steps = list(read_run(tmp_path / "whole").steps)
    assert len(steps) == 4
    for step in steps:
        loss, gap = step.values["optimizer/loss"], step.values["mismatch/logprob_diff_max"]
        changed = step.values["optimizer/changed_weight_rate"]
        assert isinstance(loss, Mean)
        assert loss.nonfinite == 0
        assert isinstance(gap, Mean)
        assert gap.value < 5e-6
        assert isinstance(changed, Rate)
        assert changed.hits > 0.5 * changed.count


@pytest.mark.parametrize("family", FAMILIES)
def test_neither_padding_nor_cache_nor_neighbours_change_a_log_probability(
    family: str, tmp_path: Path
) -> None:
    config = small(save(family, tmp_path / "model"))
    policy = load_policy(config, build_task(config.task))
    texts = ["7=", "1+2=", "7*3+8-2+5*6="] * 4
    samples = sample(
        policy.model,
        [policy.tokenizer.encode(text) for text in texts],
        max_length=20,
        temperature=1.0,
        tokenizer=policy.tokenizer,
        generator=torch.Generator().manual_seed(0),
    )
    lengths = samples.mask_BT.sum(dim=1)
    assert lengths.unique().numel() > 3
    scored = score(policy.model, samples, 1.0)
    for row, text in enumerate(texts):  # one row at a time, without padding or cache
        prompt = policy.tokenizer.encode(text)
        response = samples.response_BT[row, : lengths[row]]
        tokens = torch.cat([torch.tensor(prompt), response])[None]
        with torch.no_grad():
            logits = policy.model(input_ids=tokens).logits[0, len(prompt) - 1 : -1]
        alone = logits.log_softmax(-1).gather(1, response[:, None])[:, 0]
        for batched in (samples.logprobs_BT, scored.logprobs_BT):
            torch.testing.assert_close(batched[row, : lengths[row]], alone, atol=5e-6, rtol=0)


@pytest.mark.parametrize("family", sampled(FAMILIES, {"qwen3", "mixtral"}))
def test_a_checkpoint_and_the_full_weights_are_what_transformers_reads(
    family: str, tmp_path: Path
) -> None:
    from safetensors.torch import save_file

    trainer = Trainer(small(save(family, tmp_path / "model"), "steps=1"), tmp_path / "run")
    trainer.run()
    newest = checkpoints(tmp_path / "run")[-1]
    assert not list(newest.rglob("*.bin"))
    exported = tmp_path / "exported"
    trainer.policy.model.config.save_pretrained(exported)
    weights = {
        name: tensor.contiguous() for name, tensor in checkpoint_weights(trainer.policy.model)
    }
    save_file(weights, exported / "model.safetensors", metadata={"format": "pt"})
    for folder in (newest, exported):
        loaded, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        assert not info["missing_keys"]
        assert not info["unexpected_keys"]
        for name, tensor in trainer.policy.model.state_dict().items():
            assert torch.equal(loaded.state_dict()[name], tensor)


def gradients(config: TrainConfig, run_dir: Path) -> tuple[list[torch.Tensor], float]:
    """The weights after a step of gradient descent, and the learner's report."""
    trainer = Trainer(config, run_dir)
    trainer.run()
    values = next(iter(read_run(run_dir).steps)).values["optimizer/grad_norm"]
    assert isinstance(values, Mean)
    return list(trainer.policy.model.state_dict().values()), values.value


@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_gradient_checkpointing_gives_the_same_gradients_and_forgets_activations(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(family, tmp_path / "model")
    passes = []
    count = torch.nn.functional.scaled_dot_product_attention

    def counting(*args: object, **kwargs: object) -> torch.Tensor:
        passes[-1] += torch.is_grad_enabled()
        return count(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counting)
    results = []
    for enabled in ("false", "true"):
        passes.append(0)
        config = small(folder, "steps=1", f"model.gradient_checkpointing={enabled}")
        results.append(gradients(config, tmp_path / enabled))
    (plain, norm), (recomputed, same_norm) = results
    assert norm == same_norm > 0
    assert all(torch.equal(*pair) for pair in zip(plain, recomputed, strict=True))
    assert passes[1] == 2 * passes[0] > 0  # each layer's forward pass again in the backward pass


@pytest.mark.parametrize(
    "micro_batch", [3, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 16))]
)
def test_gradient_accumulation_changes_nothing(micro_batch: int, tmp_path: Path) -> None:
    folder = save("qwen3", tmp_path / "model")
    whole, norm = gradients(small(folder, "steps=1"), tmp_path / "whole")
    parts = small(folder, "steps=1", f"optimizer.micro_batch={micro_batch}")
    split, same_norm = gradients(parts, tmp_path / "split")
    assert norm == pytest.approx(same_norm, rel=1e-5)
    for one, other in zip(whole, split, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=0)


BF16 = {
    "weights": ("model.dtype=bfloat16",),
    "autocast": ("model.compute=bfloat16",),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", sampled(BF16, {"autocast"}))
def test_bfloat16_trains_and_resumes_bit_for_bit(kind: str, tmp_path: Path) -> None:
    folder = save("qwen3", tmp_path / "model")
    trainer = assert_resumes_exactly(small(folder, *BF16[kind]), tmp_path)
    dtype = torch.bfloat16 if kind == "weights" else torch.float32
    moments = trainer.learner.optimizer.state_dict()["state"].values()
    assert {each["exp_avg"].dtype for each in moments} == {dtype}
    assert {each.dtype for each in trainer.policy.model.parameters()} == {dtype}
    for step in read_run(tmp_path / "whole").steps:
        gap = step.values["mismatch/logprob_diff_mean"]
        assert isinstance(gap, Mean)
        # bfloat16 rounds at 1/256; only this rounding differs.
        assert 0 < gap.value < 0.1


@pytest.mark.slow
def test_small_updates_survive_in_float32_weights_and_vanish_in_bfloat16(tmp_path: Path) -> None:
    """At a learning rate usual for reinforcement learning; the reason for `model.compute`."""
    folder = save("qwen3", tmp_path / "model")
    changed = {}
    for kind, settings in BF16.items():
        config = small(folder, "steps=1", "optimizer.learning_rate=1e-6", *settings)
        Trainer(config, tmp_path / kind).run()
        rate = next(iter(read_run(tmp_path / kind).steps)).values["optimizer/changed_weight_rate"]
        assert isinstance(rate, Rate)
        changed[kind] = rate.value
    assert changed["weights"] < 0.02
    assert changed["autocast"] > 0.9


def test_matrix_products_use_the_configured_dtype(tmp_path: Path) -> None:
    config = small(save("llama", tmp_path / "model"), "model.compute=bfloat16")
    model = load_policy(config, build_task(config.task)).model
    seen = []
    layer = model.get_submodule("model.layers.0.mlp.up_proj")
    layer.register_forward_hook(lambda *parts: seen.append(parts[2].dtype))
    trainer = Trainer(config, tmp_path / "run")
    samples = trainer.engine.generate([[5, 6]], torch.Generator())
    trainer.recording.close(finished=False)
    score(model, samples, 1.0)
    assert seen == [torch.bfloat16]


@pytest.mark.parametrize("family", DENSE)
def test_dropout_stays_off(family: str, tmp_path: Path) -> None:
    folder = save(family, tmp_path / "model", attention_dropout=0.5)
    settings = ("steps=1", "optimizer.updates_per_batch=1", "model.gradient_checkpointing=true")
    Trainer(small(folder, *settings), tmp_path / "run").run()
    ratio = next(iter(read_run(tmp_path / "run").steps)).values["ratio/sequence_max"]
    assert isinstance(ratio, Max)
    assert ratio.value == pytest.approx(1, abs=1e-5)
