import json
import random
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from grpodoctor.errors import ConfigError, ModelError
from grpodoctor.support.files.locks import Lock
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.trainer.data.loading import build_task
from grpodoctor.trainer.engines.sampler import sample
from grpodoctor.trainer.model.forward import response_logits
from grpodoctor.trainer.model.policy import Policy, load_policy
from grpodoctor.trainer.model.tokenizer import CharTokenizer
from grpodoctor.trainer.model.warm_start import (
    cache_folder,
    temporary_cache_folder,
    warm_start,
)

WORDS = ["<pad>", "<eos>", "<stop>", "<unk>", *"0123456789+-*=#."]
TEMPLATE = (
    "#{% for m in messages %}{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}.{% endif %}"
)


def save_tokenizer(folder: Path, *, template: str | None = None) -> None:
    """A tokenizer with a token per character, in the format that model repositories use."""
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    special = dict(
        zip(("pad_token", "eos_token", "unk_token"), WORDS[:2] + WORDS[3:4], strict=True)
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE(vocabulary, [], unk_token=WORDS[3])), **special
    )
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)


def build(family: str, vocab_size: int = len(WORDS)) -> PreTrainedModel:
    configs = {"qwen2": (Qwen2Config, Qwen2ForCausalLM), "llama": (LlamaConfig, LlamaForCausalLM)}
    config, model = configs[family]
    torch.manual_seed(0)
    return model(
        config(
            vocab_size=vocab_size,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            initializer_range=0.3,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=1,
        )
    )


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    build("qwen2").save_pretrained(tmp_path / "model")
    save_tokenizer(tmp_path / "model")
    return tmp_path / "model"


def load(path: Path | str, **settings: object) -> Policy:
    config = load_config({"model": {"name": str(path), **settings}})
    return load_policy(config, build_task(config.task))


@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_a_saved_checkpoint_loads_samples_and_scores(family: str, tmp_path: Path) -> None:
    original = build(family)
    original.save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    policy = load(tmp_path)
    assert not policy.model.training
    for name, tensor in original.state_dict().items():
        assert torch.equal(policy.model.state_dict()[name], tensor)
    prompts = [policy.tokenizer.encode(text) for text in ["1+2=", "7*3+8-2="] * 16]
    samples = sample(
        policy.model,
        prompts,
        max_length=20,
        temperature=1.0,
        tokenizer=policy.tokenizer,
        generator=torch.Generator().manual_seed(0),
    )
    with torch.no_grad():
        logits = response_logits(
            policy.model, samples.tokens_BL, samples.attention_BL, samples.prompt_width
        )
    expected = logits.log_softmax(-1).gather(2, samples.response_BT.unsqueeze(2)).squeeze(2)
    torch.testing.assert_close(
        samples.logprobs_BT[samples.mask_BT], expected[samples.mask_BT], atol=1e-4, rtol=0
    )
    assert "<eos>" not in "".join(map(policy.tokenizer.decode, samples.response_ids()))


def test_the_learner_may_be_bfloat16(checkpoint: Path) -> None:
    policy = load(checkpoint, dtype="bfloat16")
    assert {parameter.dtype for parameter in policy.model.parameters()} == {torch.bfloat16}


def test_every_declared_end_token_counts(checkpoint: Path) -> None:
    generation = checkpoint / "generation_config.json"
    generation.write_text(json.dumps({"eos_token_id": [1, 2]}))
    assert load(checkpoint).tokenizer.end_ids == {1, 2}


def test_the_chat_template_is_applied_and_hashed(checkpoint: Path) -> None:
    plain = load(checkpoint).tokenizer
    save_tokenizer(checkpoint, template=TEMPLATE)
    templated = load(checkpoint).tokenizer
    ids = [WORDS.index(word) for word in "1+2="]
    assert plain.encode("1+2=") == ids
    assert templated.encode("1+2=") == [WORDS.index("#"), *ids, WORDS.index(".")]
    assert plain.template_hash != templated.template_hash


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    build("llama", vocab_size=len(WORDS) - 1).save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    with pytest.raises(ModelError, match=f"{len(WORDS)} ids and the model {len(WORDS) - 1}"):
        load(tmp_path)


def change_config(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        settings = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**settings, **changes}))

    return change


def overwrite(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def cut_weights(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:2000])


def pickle_weights(folder: Path) -> None:
    torch.save(build("qwen2").state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def remove_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "pickle": (pickle_weights, "no safetensors weights"),
    "half the weights": (cut_weights, "does not load"),
    "empty weights": (overwrite("model.safetensors", b""), "does not load"),
    "config is not json": (overwrite("config.json", b"{ not json"), "does not load"),
    "config is a list": (overwrite("config.json", b"[1]"), "does not load"),
    "config is empty": (overwrite("config.json", b"{}"), "does not load"),
    "config is binary": (overwrite("config.json", b"\xff\x00"), "does not load"),
    "unknown type": (change_config(model_type="martian"), "does not load"),
    "nonsense size": (change_config(hidden_size="wide"), "does not load"),
    "negative size": (change_config(intermediate_size=-4), "does not load"),
    "another size": (change_config(hidden_size=64), "do not have the size in config.json"),
    "missing layer": (
        change_config(num_hidden_layers=3, layer_types=["full_attention"] * 3),
        "lacks .* of its weights",
    ),
    "no config": (lambda folder: (folder / "config.json").unlink(), "contains no model"),
    "no tokenizer": (remove_tokenizer, "the tokenizer has 1 ids"),
    "damaged tokenizer": (overwrite("tokenizer.json", b"{}"), "tokenizer does not load"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_checkpoint_is_one_line(checkpoint: Path, case: str) -> None:
    damage, message = DAMAGE[case]
    damage(checkpoint)
    with pytest.raises(ModelError, match=message) as caught:
        load(checkpoint)
    assert "\n" not in str(caught.value)
    assert str(checkpoint) in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./nowhere", "no such directory"),
        ("/nowhere/at/all", "no such directory"),
        ("some-owner/some-model-that-is-not-cached", "does not load"),
    ],
)
def test_a_missing_model_is_one_line(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        load(name)
    assert "\n" not in str(caught.value)


def test_a_file_and_an_empty_directory_are_refused_as_models(tmp_path: Path) -> None:
    (tmp_path / "weights.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match="this is a file"):
        load(tmp_path / "weights.safetensors")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="contains no model"):
        load(tmp_path / "empty")


def test_the_built_in_model_has_its_announced_size() -> None:
    policy = load("builtin", warm_start_steps=0)
    assert 100_000 < policy.model.num_parameters() < 120_000
    large = load("builtin", warm_start_steps=0, width=256, layers=4, heads=8)
    assert 2_500_000 < large.model.num_parameters() < 3_500_000


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ConfigError, match="3 heads"):
        load("builtin", warm_start_steps=0, heads=3)


def builtin(steps: int, task: str = "sorting") -> dict[str, torch.Tensor]:
    config = load_config(
        {"model": {"warm_start_steps": steps, "width": 32}, "task": {"name": task, "difficulty": 1}}
    )
    return load_policy(config, build_task(config.task)).model.state_dict()


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(left[name], right[name]) for name in left)


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "grpodoctor"


def test_the_warm_start_is_deterministic_and_leaves_the_global_seed_alone(
    fresh_cache: Path,
) -> None:
    torch.manual_seed(7)
    state = torch.get_rng_state()
    first = builtin(5)
    assert torch.equal(torch.get_rng_state(), state)
    (cached,) = fresh_cache.glob("*.bin")
    cached.unlink()
    torch.manual_seed(8)
    assert same(first, builtin(5))


def test_a_cached_warm_start_is_used(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = builtin(5)
    with monkeypatch.context() as patch:
        patch.setattr("torch.optim.AdamW.step", lambda *_: pytest.fail("it trains again"))
        assert same(first, builtin(5))
    assert not same(first, builtin(6))
    assert not same(first, builtin(5, "counting"))
    assert len(list(fresh_cache.glob("*.bin"))) == 3


def test_of_two_processes_one_trains_the_warm_start(
    fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    untrained = load_config({"model": {"warm_start_steps": 0, "width": 32}})
    models = [load_policy(untrained, build_task(untrained.task)).model for _ in range(2)]
    begun, trained = threading.Barrier(2, timeout=60), []

    def train(model: PreTrainedModel, *_: object) -> None:
        trained.append(model)
        time.sleep(0.2)  # long enough for the other one to find no cache
        for weight in model.parameters():
            weight.data.fill_(0.25)

    def start(model: PreTrainedModel) -> None:
        task = build_task(load_config().task)
        begun.wait()
        warm_start(model, CharTokenizer(), task, 5)

    monkeypatch.setattr("grpodoctor.trainer.model.warm_start._train", train)
    with ThreadPoolExecutor() as threads:
        list(threads.map(start, models))
    assert len(trained) == 1 == len(list(fresh_cache.glob("*.bin")))
    assert all(weight.eq(0.25).all() for model in models for weight in model.parameters())


def test_a_warm_start_that_another_process_never_ends_is_trained_here_too(
    fresh_cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = builtin(5)
    (cached,) = fresh_cache.glob("*.bin")
    cached.unlink()
    monkeypatch.setattr("grpodoctor.trainer.model.warm_start._LONGEST_WAIT_SECONDS", 0.05)
    lock = Lock.take(cached.with_name(f"{cached.name}.lock"))
    assert same(first, builtin(5))
    lock.release()
    assert "training it here too" in caplog.text


def test_the_stream_of_problems_does_not_depend_on_the_cache(fresh_cache: Path) -> None:
    data = fresh_cache.parent / "data.jsonl"
    rows = [{"prompt": f"{index}+1=", "answer": str(index + 1)} for index in range(40)]
    data.write_text("\n".join(map(json.dumps, rows)))
    config = load_config({"model": {"warm_start_steps": 2}, "task": {"data": str(data)}})
    streams = []
    for _ in range(2):
        task = build_task(config.task)
        load_policy(config, task)
        streams.append(task.problems(random.Random(5), 50))
    assert streams[0] == streams[1]
    assert len(list(fresh_cache.glob("*.bin"))) == 1


@pytest.mark.parametrize("keep", [0, 10, 32, 5000, -1])
def test_a_damaged_cache_is_rebuilt(fresh_cache: Path, keep: int) -> None:
    first = builtin(5)
    (cached,) = fresh_cache.glob("*.bin")
    whole = cached.read_bytes()
    cached.write_bytes(whole[:keep])
    assert same(first, builtin(5))
    assert cached.read_bytes() == whole
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    cached.write_bytes(flipped)
    assert same(first, builtin(5))
    assert cached.read_bytes() == whole


@pytest.fixture
def unusable_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No folder can be created below `$XDG_CACHE_HOME`; returns the temporary folder."""
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_an_unusable_cache_is_replaced_by_a_temporary_one(
    unusable_cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = builtin(3)
    (notice,) = caplog.messages
    assert str(temporary_cache_folder()) in notice
    assert temporary_cache_folder().parent == unusable_cache
    monkeypatch.setattr("torch.optim.AdamW.step", lambda *_: pytest.fail("it trains again"))
    assert same(first, builtin(3))
    assert len(caplog.messages) == 1


def test_a_temporary_cache_that_others_can_write_is_not_used(
    unusable_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    temporary_cache_folder().mkdir()
    temporary_cache_folder().chmod(0o777)
    assert builtin(3)
    assert "not cached" in caplog.text
    assert list(temporary_cache_folder().iterdir()) == []


def test_without_a_home_the_temporary_cache_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert builtin(3)
    assert len(list(temporary_cache_folder().iterdir())) == 1


def test_the_cache_folder_follows_the_standard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/grpodoctor")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "grpodoctor"


def test_the_warm_start_reaches_the_band(warm_policy: Policy) -> None:
    task = build_task(TrainConfig().task)
    problems = [each for each in task.heldout(200) for _ in range(4)]
    prompts = [warm_policy.tokenizer.encode(each.prompt) for each in problems]

    def accuracy(temperature: float) -> tuple[float, float]:
        samples = sample(
            warm_policy.model,
            prompts,
            max_length=28,
            temperature=temperature,
            tokenizer=warm_policy.tokenizer,
            generator=torch.Generator().manual_seed(0),
        )
        texts = [warm_policy.tokenizer.decode(ids) for ids in samples.response_ids()]
        logits = response_logits(
            warm_policy.model, samples.tokens_BL, samples.attention_BL, samples.prompt_width
        )
        logprobs = logits.detach().log_softmax(-1)
        entropy = -(logprobs.exp() * logprobs).sum(-1)[samples.mask_BT].mean()
        return sum(task.score(problems, texts).total) / len(problems), float(entropy)

    sampled, entropy = accuracy(1.0)
    greedy, _ = accuracy(0)
    assert 0.3 < sampled < 0.7
    assert greedy > sampled + 0.1
    assert 0.3 < entropy < 0.8
