"""Real vLLM on a CPU: it scores its own samples alike, and planted faults are visible.

A load takes at least ten seconds, so the tests share one; tests of further loads are marked slow.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from grpodoctor.probe.engines.shards import read_shards
from tests.probes.adapter_files import write_adapter
from tests.probes.conftest import engine
from tests.probes.models import messages, prompts_file, tokenizer, variant
from tests.probes.programs import Ran, run, run_vllm, sample, score
from tests.probes.quantised import int8

PROMPTS = 12
TRUNCATED = {"temperature": 0.7, "top_k": 8, "top_p": 0.95, "min_p": 0.01}
ARRIVED = 1e-5
"""Most that float32 engines with the same weights differ in a log-probability here."""


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prompts_file(tmp_path_factory.mktemp("prompts") / "prompts.json", PROMPTS)


@pytest.fixture(scope="module")
def mixture(moe_model: Path, prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A mixture of experts in float32; the prompt of its last task is too long."""
    folder = tmp_path_factory.mktemp("mixture")
    spoken = folder / "spoken.json"
    spoken.write_text(json.dumps([{"messages": each} for each in messages(3)] + [{"text": "1+1="}]))
    long = folder / "long.json"
    long.write_text(json.dumps([{"ids": [7] * 600}]))
    drawn = folder / "sample"
    tasks = [
        {"kind": "tokenise", "name": "ids", "prompts": str(spoken)},
        sample(prompts, want=("experts", "ranks")),
        score(drawn, want=["experts", "ranks"]),
        score(drawn, name="backwards", order="reversed"),
        score(drawn, name="cooler", processing={"temperature": 0.7}),
        sample(long, name="long"),
    ]
    return run_vllm(folder, moe_model, tasks, dtype="float32")


@pytest.fixture(scope="module")
def stale(dense_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A later checkpoint of the dense model."""
    return variant(tmp_path_factory.mktemp("stale") / "model", dense_model, perturb=0.05)


@pytest.fixture(scope="module")
def synced(
    dense_model: Path, stale: Path, prompts: Path, tmp_path_factory: pytest.TempPathFactory
) -> Ran:
    """Started with one checkpoint and synced to another, without emptying the prefix cache."""
    folder = tmp_path_factory.mktemp("synced")
    tasks = [
        sample(prompts, **TRUNCATED),
        score(folder / "sample", processing=TRUNCATED),
        score(folder / "sample", name="raw"),
    ]
    return run_vllm(
        folder,
        dense_model,
        tasks,
        dtype="float32",
        logprobs_mode="processed_logprobs",
        sync=str(stale),
        sync_reset_cache=False,
        block_size=32,
    )


def by_transformers(model: Path, ran: Ran, temperature: float = 1.0) -> np.ndarray:
    """Log-probabilities of the sampled tokens, in float32, one response at a time."""
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    found = []
    for shard in read_shards(ran.folder / "sample"):
        rows = zip(
            np.split(shard.prompt_ids_P, shard.prompt_offsets[1:-1]),
            np.split(shard.response_ids_N, shard.response_offsets[1:-1]),
            strict=True,
        )
        for before, own in rows:
            ids = torch.tensor(np.concatenate([before, own]).astype(np.int64))[None]
            with torch.no_grad():
                logits_TV = network(ids).logits[0, len(before) - 1 : -1]
            logprobs_TV = (logits_TV / temperature).log_softmax(-1)
            found.append(logprobs_TV[torch.arange(len(own)), ids[0, len(before) :]].numpy())
    return np.concatenate(found)


def lengths(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Tokens of each response of all shards; each shard's offsets begin at 0."""
    steps = np.diff(arrays["response_offsets"])
    return steps[steps >= 0]


def test_it_scores_its_own_tokens_like_it_sampled_them(mixture: Ran) -> None:
    drawn, scored = mixture.arrays("sample"), mixture.arrays("score")
    assert len(drawn["prompt_B"]) == 4 * PROMPTS
    assert len(drawn["logprobs_N"]) > 1000
    backwards = mixture.arrays("backwards")
    for again in (scored, backwards):
        gaps = np.abs(drawn["logprobs_N"] - again["logprobs_N"])
        # A float32 matrix product may add in another order if the batch has another size.
        assert (gaps == 0).mean() > 0.9
        assert gaps.max() < ARRIVED


def test_it_describes_itself(mixture: Ran, moe_model: Path) -> None:
    engine = mixture.engine
    assert engine["name"] == "vllm"
    assert (engine["dtype"], engine["device"], engine["context"]) == ("float32", "cpu", 512)
    assert (engine["vocab_size"], engine["end_ids"], engine["begin_id"]) == (64, [1], None)
    assert engine["logprobs"] == "raw"
    assert engine["layout"]["tensor_parallel"] == 1
    elements, total, norm = engine["settings"]["weight_digests"]["model.norm.weight"]
    assert elements == 128
    assert abs(total - 128) < 64
    assert norm > 0


def test_prompts_are_tokenized_like_by_the_tokenizer(mixture: Ran) -> None:
    own = tokenizer()
    *spoken, plain = mixture.ids("ids")
    for ids, talk in zip(spoken, messages(3), strict=True):
        written = own.apply_chat_template(talk, add_generation_prompt=True, tokenize=False)
        assert ids == own.encode(written)
    assert plain == own.encode("1+1=")


def test_the_experts_are_the_same_in_decoding_and_in_scoring(mixture: Ran) -> None:
    drawn, scored = mixture.arrays("sample"), mixture.arrays("score")
    experts = drawn["experts_NLK"]
    assert experts.shape[1:] == (4, 2)
    assert ((experts >= 0) & (experts < 8)).all()
    assert np.array_equal(np.sort(experts), np.sort(scored["experts_NLK"]))
    assert len(np.unique(experts)) == 8
    assert (drawn["router_margin_NL"] > 0).all()
    assert np.allclose(drawn["router_margin_NL"], scored["router_margin_NL"], atol=1e-4)


def test_its_experts_can_be_replayed_in_transformers(mixture: Ran, moe_model: Path) -> None:
    """In a 16-bit model, whose routers sometimes choose other experts."""
    from contract import Processing, read_responses

    learner, ways = engine(moe_model, dtype="bfloat16"), ("score", "replay")
    paths = sorted((mixture.folder / "sample").glob("shard-*.npz"))
    drawn = [each for path in paths for each in read_responses(path, with_experts=True)]
    own, free, held = (
        np.concatenate([np.sort(each.extras["experts"]) for each in responses])
        for responses in (
            drawn,
            *(getattr(learner, way)(drawn, Processing(), ("experts",)) for way in ways),
        )
    )
    assert 0 < (free != own).any(axis=(1, 2)).mean() < 0.1
    assert np.array_equal(held, own)


def test_ranks_count_more_probable_tokens(mixture: Ran) -> None:
    drawn = mixture.arrays("sample")
    first = drawn["rank_N"] == 0
    assert 0.2 < first.mean() < 1
    assert np.array_equal(first, drawn["logprobs_N"] == drawn["top_logprob_N"])


def test_scores_at_a_temperature_equal_those_of_transformers(mixture: Ran, moe_model: Path) -> None:
    cooler, raw = (mixture.arrays(name)["logprobs_N"] for name in ("cooler", "score"))
    assert np.abs(cooler - raw).mean() > 0.02
    for scored, temperature in ((raw, 1.0), (cooler, 0.7)):
        plain = by_transformers(moe_model, mixture, temperature)
        # If two experts are almost equal, another one may be chosen.
        assert (np.abs(plain - scored) < ARRIVED).mean() > 0.99


def test_a_prompt_beyond_the_context_is_refused_and_finished_tasks_are_kept(mixture: Ran) -> None:
    assert "600 tokens does not fit into vLLM's context of 512" in mixture.error["what"]
    assert "max_model_len" in mixture.error["remedy"]
    assert mixture.answer["tasks"]["score"]["responses"] == 4 * PROMPTS


@pytest.mark.slow
def test_processed_logprobs_are_scored_with_the_same_processing(synced: Ran) -> None:
    drawn, scored = synced.arrays("sample"), synced.arrays("score")
    fresh_N = np.repeat(drawn["cached_B"] == 0, lengths(drawn))
    assert synced.engine["logprobs"] == "processed"
    assert fresh_N.sum() > 300
    assert np.abs(drawn["logprobs_N"] - scored["logprobs_N"])[fresh_N].max() < ARRIVED
    assert np.abs(drawn["logprobs_N"] - synced.arrays("raw")["logprobs_N"])[fresh_N].mean() > 0.05


@pytest.mark.slow
def test_a_stale_prefix_cache_affects_only_cached_prompts(synced: Ran) -> None:
    drawn, scored = synced.arrays("sample"), synced.arrays("score")
    gaps_N = np.abs(drawn["logprobs_N"] - scored["logprobs_N"])
    cached_N = np.repeat(drawn["cached_B"], lengths(drawn))
    assert set(np.unique(cached_N)) == {0, 32}
    assert gaps_N[cached_N > 0].mean() > 100 * gaps_N[cached_N == 0].mean()


@pytest.mark.slow
def test_a_sync_replaces_all_weights(synced: Ran, stale: Path) -> None:
    loaded = by_transformers(stale, synced)
    assert np.abs(synced.arrays("raw")["logprobs_N"] - loaded).max() < 10 * ARRIVED


@pytest.mark.slow
def test_vllms_own_sync_omits_the_output_head(
    synced: Ran, dense_model: Path, stale: Path, tmp_path: Path
) -> None:
    stock = run_vllm(
        tmp_path,
        dense_model,
        [score(synced.folder / "sample")],
        dtype="float32",
        sync=str(stale),
        sync_stock=True,
    )
    partial = stock.arrays("score")["logprobs_N"]
    assert np.abs(partial - by_transformers(stale, synced)).max() > 0.02
    assert np.abs(partial - by_transformers(dense_model, synced)).max() > 0.02


@pytest.mark.slow
def test_perturb_affects_every_kind_of_weight(
    mixture: Ran, moe_model: Path, tmp_path: Path
) -> None:
    """As much as in transformers, packed experts and linear layers included."""
    work = [score(mixture.folder / "sample")]
    noisy = run_vllm(tmp_path, moe_model, work, dtype="float32", perturb=0.05)
    told = noisy.arrays("score")["logprobs_N"]
    gap = np.abs(told - mixture.arrays("sample")["logprobs_N"]).mean()
    like = by_transformers(variant(tmp_path / "like", moe_model, perturb=0.05), mixture)
    wanted = np.abs(like - mixture.arrays("sample")["logprobs_N"]).mean()
    assert wanted / 2 < gap < 2 * wanted
    assert noisy.engine["settings"]["perturb"] == 0.05
    assert "weight_digests" not in noisy.engine["settings"]


@pytest.mark.slow
@pytest.mark.timeout(550)  # two ranks load one after the other where there are few cores
def test_int8_on_two_ranks_scores_its_own_tokens_exactly(
    dense_model: Path, prompts: Path, tmp_path: Path
) -> None:
    model = int8(tmp_path / "int8", dense_model)
    tasks = [sample(prompts), score(tmp_path / "ran/sample")]
    ran = run_vllm(tmp_path / "ran", model, tasks, dtype="bfloat16", tensor_parallel_size=2)
    drawn = ran.arrays("sample")["logprobs_N"]
    assert ran.engine["layout"]["tensor_parallel"] == 2
    assert ran.engine["settings"]["quantization"] == "compressed-tensors"
    assert np.array_equal(drawn, ran.arrays("score")["logprobs_N"])
    gaps = np.abs(np.exp(drawn) - np.exp(by_transformers(dense_model, ran)))
    assert 2e-4 < gaps.mean() < 1e-2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "what", "remedy"),
    [
        ({"attnetion": "x"}, "vLLM has no option 'attnetion'", "did you mean attention"),
        ({"dtype": "float99"}, "vLLM does not start: ", "its log"),
    ],
)
def test_a_vllm_error_is_one_line(
    options: dict[str, Any], what: str, remedy: str, dense_model: Path, tmp_path: Path
) -> None:
    error = run_vllm(tmp_path, dense_model, [], **options).error
    assert what in error["what"]
    assert "\n" not in error["what"]
    assert remedy in error["remedy"]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"worker_extension_cls": "x"}, "worker_extension_cls= cannot be set"),
        ({"skip_tokenizer_init": True}, "skip_tokenizer_init= cannot be set"),
        ({"logprobs_mode": "raw_logits"}, "does not give log-probabilities"),
        ({"speculative_config": "{method: ngram}"}, "is not JSON"),
        ({"enable_lora": True}, "without an adapter would sample from the base model"),
        ({"adapter": "/nowhere"}, "the adapter /nowhere cannot be read"),
        ({"adapter": "/nowhere", "sync": "/other"}, "sync= and adapter= cannot be combined"),
        ({"adapter": "/nowhere", "perturb": 0.1}, "perturb= and adapter= cannot be combined"),
    ],
)
def test_unsupported_options_are_refused_before_vllm_is_imported(
    options: dict[str, Any], what: str
) -> None:
    from contract import RefusalError
    from engine_vllm import load

    with pytest.raises(RefusalError, match=what):
        load("anywhere", options)


@pytest.mark.parametrize(("ranks", "largest"), [({}, 8), ({"v_proj": 12}, 16)])
def test_an_adapter_sets_vllms_largest_rank(
    ranks: dict[str, int],
    largest: int,
    dense_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import vllm_options

    known = {"adapter", "enable_lora", "max_lora_rank", "max_loras", "gpu_memory_utilization"}
    monkeypatch.setattr(vllm_options, "_known_options", lambda: known)
    adapter = str(write_adapter(dense_model, tmp_path, ranks=ranks))
    given = vllm_options.checked_options({"adapter": adapter})
    made = vllm_options.engine_arguments("anywhere", given, on_cpu=True)
    assert (made["enable_lora"], made["max_lora_rank"]) == (True, largest)
    assert "adapter" not in made
    wide = given | {"max_lora_rank": 64}
    assert vllm_options.engine_arguments("anywhere", wide, on_cpu=True)["max_lora_rank"] == 64


def test_an_adapter_beyond_vllms_ranks_is_refused(dense_model: Path, tmp_path: Path) -> None:
    import vllm_options
    from contract import RefusalError

    adapter = str(write_adapter(dense_model, tmp_path, r=600))
    with pytest.raises(RefusalError, match="rank of 600 exceeds vLLM's largest, 512"):
        vllm_options._lora_arguments(adapter)


def test_a_vllm_that_is_not_installed_names_the_python(dense_model: Path, tmp_path: Path) -> None:
    error = run("vllm", tmp_path, dense_model, []).error
    assert sys.executable in error["what"]
    assert "python=" in error["remedy"]
