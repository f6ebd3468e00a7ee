"""Low-rank adapters: training, reference, checkpoints and export."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from grpodoctor.cli.main import app
from grpodoctor.errors import ConfigError, MissingExtraError, ModelError, RunError
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.trainer.data.loading import build_task
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model import lora as adapters
from grpodoctor.trainer.model.checkpoint import checkpoints, saved_config
from grpodoctor.trainer.model.export import export
from grpodoctor.trainer.model.policy import Policy, load_policy
from grpodoctor.trainer.model.saved_weights import checkpoint_weights
from grpodoctor.trainer.model.scoring import score
from grpodoctor.vocabulary.values import Mean, Rate
from tests.samples import sampled
from tests.trainer.families import FAMILIES, build, save

SMALL = (
    *("threads=1", "steps=4", "evaluation.every=0", "rollout.max_length=12"),
    *("rollout.prompts_per_batch=4", "rollout.group_size=4", "optimizer.learning_rate=1e-2"),
    # A reward for short responses gives a gradient even if no answer is right.
    *("overlong.kind=soft-punishment", "overlong.buffer=12", "optimizer.updates_per_batch=2"),
    *("model.lora_rank=4", "model.lora_alpha=8"),
)
STALE = ("engine.precision=int8", "engine.sync_every=3", "loss.kl_coefficient=0.1")


def small(folder: Path | str, *assignments: str) -> TrainConfig:
    return load_config(assignments=[*SMALL, f"model.name={folder}", *assignments])


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save("qwen3", tmp_path_factory.mktemp("models") / "qwen3")


def load(config: TrainConfig) -> Policy:
    return load_policy(config, build_task(config.task))


def stir(policy: Policy) -> None:
    """Give the adapters an effect: they start with a factor of zeros."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=0.2, generator=generator)


@pytest.mark.parametrize("family", sampled(FAMILIES, {"qwen3", "mixtral"}))
def test_the_adapters_alone_are_trained(family: str, tmp_path: Path) -> None:
    trainer = Trainer(small(save(family, tmp_path / "model"), "steps=2"), tmp_path / "run")
    names = {name for name, each in trainer.policy.model.named_parameters() if each.requires_grad}
    assert names
    assert all(".lora_" in name for name in names)
    assert not any("lm_head" in name for name in names)
    trainer.run()
    base = {
        name.replace(".base_layer", ""): tensor
        for name, tensor in trainer.policy.model.state_dict().items()
        if ".lora_" not in name
    }
    before = build(family).state_dict()
    assert base.keys() == before.keys()
    assert all(torch.equal(base[name], before[name]) for name in before)
    moved = [each for name, each in trainer.policy.model.named_parameters() if "lora_B" in name]
    assert all(each.abs().max() > 0 for each in moved)
    for step in read_run(tmp_path / "run").steps:
        rate, gap = (
            step.values["optimizer/changed_weight_rate"],
            step.values["mismatch/logprob_diff_max"],
        )
        assert isinstance(rate, Rate)
        assert rate.count == sum(each.numel() for each in trainer.learner.parameters)
        assert rate.hits > 0
        assert isinstance(gap, Mean)
        assert gap.value < 5e-6


def test_the_seed_decides_the_first_adapters_and_nothing_else_is_random(qwen: Path) -> None:
    state = torch.get_rng_state()
    first, again, other = (load(small(qwen, f"seed={seed}")) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), state)
    left, right, third = (each.model.state_dict() for each in (first, again, other))
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert [name for name in left if not torch.equal(left[name], third[name])] == [
        name for name in left if "lora_A" in name
    ]


def test_the_reference_is_the_model_without_its_adapters(qwen: Path, tmp_path: Path) -> None:
    trainer = Trainer(small(qwen, "loss.kl_coefficient=0.1"), tmp_path / "run")
    assert trainer.reference.loaded is None
    stir(trainer.policy)
    samples = trainer.engine.generate([[5, 6], [7]] * 4, torch.Generator().manual_seed(0))
    adapted = score(trainer.policy.model, samples, 1.0).logprobs_BT
    plain = score(build("qwen3"), samples, 1.0).logprobs_BT
    assert torch.equal(trainer.reference.logprobs(samples, 1.0, 0), plain)
    assert (adapted - plain).abs().max() > 0.01
    assert torch.equal(score(trainer.policy.model, samples, 1.0).logprobs_BT, adapted)
    trainer.run()
    first, *_, last = [step.values["kl/reference/k3"] for step in read_run(tmp_path / "run").steps]
    assert isinstance(first, Mean)
    assert isinstance(last, Mean)
    assert last.value > 0


@pytest.mark.parametrize(
    "extra",
    sampled([(), STALE, ("model.dtype=bfloat16",)], {STALE}),
    ids=str,
)
def test_it_resumes_bit_for_bit(extra: tuple[str, ...], qwen: Path, tmp_path: Path) -> None:
    whole, part = (Trainer(small(qwen, *extra), tmp_path / name) for name in ("whole", "part"))
    whole.run()
    part.run(lambda report: part.stop() if report.step == 2 else None)
    resumed = Trainer(saved_config(tmp_path / "part"), tmp_path / "part", resume=True)
    resumed.run()
    left, right = (each.policy.model.state_dict() for each in (whole, resumed))
    assert all(torch.equal(left[name], right[name]) for name in left)
    moments, same = (each.learner.optimizer.state_dict()["state"] for each in (whole, resumed))
    for index, entry in moments.items():
        assert all(torch.equal(entry[name], same[index][name]) for name in entry)
    assert {each.dtype for each in whole.learner.parameters} == {torch.float32}


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_a_checkpoint_is_the_adapters_as_peft_reads_them(qwen: Path, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    trainer = Trainer(small(qwen), tmp_path / "run")
    trainer.run()
    newest = checkpoints(tmp_path / "run")[-1]
    assert not (newest / "model.safetensors").exists()
    assert not list(newest.rglob("*.bin"))
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(qwen), newest).eval()
    tokens = torch.randint(4, 20, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(loaded(tokens).logits, trainer.policy.model(tokens).logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_full_weights_are_the_model_with_its_adapters_merged(family: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    policy = load(small(save(family, tmp_path / "model")))
    stir(policy)
    before = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    weights = {name: tensor.contiguous() for name, tensor in checkpoint_weights(policy.model)}
    assert all(torch.equal(before[name], each) for name, each in policy.model.state_dict().items())
    policy.model.config.save_pretrained(tmp_path / "merged")
    save_file(weights, tmp_path / "merged" / "model.safetensors", metadata={"format": "pt"})
    merged, info = AutoModelForCausalLM.from_pretrained(
        tmp_path / "merged", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    tokens = torch.randint(4, 20, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        adapted = policy.model(tokens).logits
        torch.testing.assert_close(merged.eval()(tokens).logits, adapted, atol=1e-4, rtol=1e-4)
        with adapters.adapters_off(policy.model):
            assert (policy.model(tokens).logits - adapted).abs().max() > 0.01


@pytest.mark.slow
def test_a_stale_or_rounded_engine_serves_the_merged_weights_of_its_sync(
    qwen: Path, tmp_path: Path
) -> None:
    trainer = Trainer(small(qwen, "engine.sync_every=3"), tmp_path / "run")
    stir(trainer.policy)
    trainer.engine.sync(1)
    synced = dict(checkpoint_weights(trainer.policy.model))
    held = trainer.engine.model.state_dict()
    assert {name for name in held if "lora" in name or "base_layer" in name} == set()
    for name, tensor in synced.items():
        torch.testing.assert_close(held[name], tensor, atol=1e-6, rtol=0)
    trainer.run()
    for name, tensor in trainer.engine.model.state_dict().items():
        assert not tensor.requires_grad, name
    gaps = [step.values["mismatch/logprob_diff_mean"] for step in read_run(tmp_path / "run").steps]
    means = [gap.value for gap in gaps if isinstance(gap, Mean)]
    assert means[0] < 1e-5 < min(means[1:3])


def test_layers_are_chosen_by_name(qwen: Path) -> None:
    layers = adapters.adapter_layers(load(small(qwen, "model.lora_targets=q_proj,v_proj")).model)
    assert {name.rpartition(".")[2] for name in layers} == {"q_proj", "v_proj"}
    assert len(layers) == 4
    with pytest.raises(ModelError, match=r"no_such.*model\.lora_targets.*down_proj, .*q_proj"):
        load(small(qwen, "model.lora_targets=no_such"))


def test_without_peft_it_is_one_line(qwen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'grpodoctor\[train\]'"):
        load(small(qwen))


@pytest.mark.slow
def test_other_adapters_do_not_resume(qwen: Path, tmp_path: Path) -> None:
    Trainer(small(qwen, "steps=1"), tmp_path / "run").run()
    for setting in ("model.lora_rank=8", "model.lora_rank=0", "model.lora_targets=q_proj"):
        with pytest.raises(RunError, match="does not fit this run"):
            Trainer(small(qwen, "steps=2", setting), tmp_path / "run", resume=True)
    newest = checkpoints(tmp_path / "run")[-1]
    weights = newest / "adapter_model.safetensors"
    torch.save(load_file(weights), newest / "adapter_model.bin")
    weights.unlink()
    with pytest.raises(RunError, match="damaged"):
        Trainer(small(qwen, "steps=2"), tmp_path / "run", resume=True)


def test_the_built_in_model_takes_adapters_too(tmp_path: Path) -> None:
    config = small("builtin", "model.warm_start_steps=5", "steps=2")
    trainer = Trainer(config, tmp_path / "run")
    trainer.run()
    assert len(adapters.adapter_layers(trainer.policy.model)) == 14


def test_a_missing_device_is_one_line(qwen: Path) -> None:
    with pytest.raises(ConfigError, match=r"CUDA devices.*model\.device=cuda:99"):
        load(small(qwen, "model.device=cuda:99"))


def test_a_directory_without_a_checkpoint_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no checkpoint to export") as raised:
        export(tmp_path, tmp_path / "merged")
    assert "--resume" not in str(raised.value)


@pytest.mark.parametrize(
    ("family", "rank"), [("qwen3", 4), ("qwen3", 0), ("qwen3_moe", 4)], ids=str
)
def test_an_exported_model_is_what_was_trained(
    family: str,
    rank: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    monkeypatch.chdir(tmp_path)
    model = save(family, tmp_path / "model", template=True)
    trainer = Trainer(small(model, "steps=2", f"model.lora_rank={rank}"), tmp_path / "run")
    trainer.run()
    with pytest.raises(SystemExit) as ended:
        app(["export", "run", "merged"])
    assert not ended.value.code
    output = capsys.readouterr().out
    assert output.startswith("exported step-000002 to ")
    assert output.rstrip().endswith("merged")
    loaded, info = AutoModelForCausalLM.from_pretrained("merged", output_loading_info=True)
    assert not info["missing_keys"]
    tokens = torch.randint(4, 20, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = trainer.policy.model(tokens).logits
        torch.testing.assert_close(loaded.eval()(tokens).logits, expected, atol=1e-4, rtol=1e-4)
    assert AutoTokenizer.from_pretrained("merged").chat_template
    assert load(small("merged")).tokenizer.encode("1+2=") == trainer.policy.tokenizer.encode("1+2=")
    with pytest.raises(SystemExit) as refused:
        app(["export", "run", "merged"])
    assert refused.value.code == 2
    assert "already exists" in capsys.readouterr().err
