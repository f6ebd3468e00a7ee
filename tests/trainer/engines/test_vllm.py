"""vLLM samples for the trainer: every weight sync arrives, and every failure is one line.

vLLM is real and has its own environment (`make venv-vllm`). Responses that no vLLM
gives are tested in `test_vllm_bad_responses`.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from grpodoctor.errors import DataError, EngineError
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.engines import vllm_server
from grpodoctor.trainer.engines.distribution import Distribution
from grpodoctor.trainer.engines.vllm_engine import _requests, _requests_for, open_vllm
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.checkpoint import checkpoints, saved_config
from grpodoctor.trainer.model.forward import response_logits
from grpodoctor.trainer.model.saved_weights import checkpoint_weights
from grpodoctor.trainer.model.scoring import score
from tests.trainer.engines.vllm_helpers import (
    ENVIRONMENT,
    SMALL,
    VOCABULARY,
    drawn,
    gap,
    move,
    opened,
    policy_and,
    prompts_of,
    reading,
    save_model,
    served,
    small,
    trained,
    vllm_python,
)
from tests.trainer.families import FAMILIES

TWO_STEPS = ("steps=2", "rollout.prompts_per_batch=5")
"""Rows that two ranks divide in the midst of a group."""
ARRIVED = 1e-5
"""Most that float32 engines with the same weights differ in a probability; 4e-7 is usual here."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(model, tmp_path_factory.mktemp("server")) as url:
        yield url


def train(program: Sequence[str | Path], run_dir: Path, *assignments: str) -> None:
    """`grpodoctor train`, with a Python or a launcher."""
    settings = [part for each in (*SMALL, *assignments) for part in ("--set", each)]
    done = subprocess.run(
        [*program, "-m", "grpodoctor", "train", "--run-dir", run_dir, *settings],
        env={**ENVIRONMENT, "VLLM_LOGGING_LEVEL": "ERROR"},
        cwd=run_dir.parent,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


# What arrives


def test_every_sync_arrives_over_http(model: Path, server: str, tmp_path: Path) -> None:
    fresh = trained(small(model, server, "steps=5"), tmp_path / "fresh")
    assert [step.step for step in fresh] == [1, 2, 3, 4, 5]
    for step in fresh:
        assert reading(step, "optimizer/update_norm_ratio") > 0.01, "the weights hardly move"
        assert 0 < reading(step, "mismatch/prob_diff_max") < ARRIVED
        assert reading(step, "mismatch/kl_k3") < 1e-9


def test_without_a_sync_the_mismatch_grows(model: Path, server: str, tmp_path: Path) -> None:
    """The control: without a sync, the readings of the previous test are not small."""
    stale = trained(small(model, server, "steps=4", "engine.sync_every=100"), tmp_path / "stale")
    gaps = [reading(step, "mismatch/prob_diff_max") for step in stale]
    assert gaps[0] < ARRIVED
    assert 0.05 < gaps[1] < gaps[3]
    assert [reading(step, "staleness/mean") for step in stale] == [0, 4, 8, 12]


def test_a_periodic_sync_arrives_when_it_is_due(model: Path, server: str, tmp_path: Path) -> None:
    steps = trained(small(model, server, "steps=4", "engine.sync_every=2"), tmp_path / "run")
    fresh = [reading(step, "mismatch/prob_diff_max") < ARRIVED for step in steps]
    assert fresh == [True, False, True, False]


def test_a_sync_empties_the_prefix_cache(model: Path, server: str) -> None:
    """The prompt fills a block of vLLM's prefix cache, which would keep the old weights' keys."""
    with opened(model, server) as (engine, policy):
        prompts = prompts_of(policy, "1+2*3-4=" * 24)
        assert len(prompts[0]) == 192
        assert gap(policy, drawn(engine, prompts)) < ARRIVED
        move(policy)
        assert gap(policy, drawn(engine, prompts)) > 0.01
        engine.sync(2)
        assert gap(policy, drawn(engine, prompts)) < ARRIVED


def test_an_incomplete_sync_is_an_error(model: Path, server: str) -> None:
    with opened(model, server) as (engine, policy):
        partial = [
            (name, tensor)
            for name, tensor in checkpoint_weights(policy.model)
            if "layers.1.mlp" not in name
        ]
        with pytest.raises(EngineError, match=r"the sync did not set all weights.*layers\.1\.mlp"):
            engine._transfer(iter(partial), 2)
        assert engine.synced_step == 1
        engine.sync(3)
        assert gap(policy, drawn(engine, prompts_of(policy, "1+2="))) < ARRIVED


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_transferred_under_checkpoint_names(family: str, tmp_path: Path) -> None:
    folder = save_model(tmp_path, family)
    _, policy = policy_and(load_config(assignments=[f"model.name={folder}"]))
    handed = dict(checkpoint_weights(policy.model))
    saved = load_file(folder / "model.safetensors")
    assert handed.keys() == saved.keys()
    assert all(torch.equal(handed[name], saved[name]) for name in saved)


def test_adapters_are_merged_into_the_transferred_weights(model: Path, server: str) -> None:
    with opened(model, server, "model.lora_rank=4") as (engine, policy):
        prompts = prompts_of(policy, "1+2=", "7*3=")
        with torch.no_grad():
            for name, parameter in policy.model.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(std=0.1)
        assert gap(policy, drawn(engine, prompts)) > 0.01
        engine.sync(2)
        assert gap(policy, drawn(engine, prompts)) < ARRIVED


# What is sampled


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
def test_log_probabilities_are_those_of_the_distribution_sampled_from(
    temperature: float, model: Path, server: str
) -> None:
    with opened(model, server, f"rollout.temperature={temperature}") as (engine, policy):
        samples = drawn(engine, prompts_of(policy, *(f"{n}+{n}=" for n in range(8)), each=16))
    assert gap(policy, samples, temperature) < ARRIVED
    scores = score(policy.model, samples, temperature)
    # E[log p + entropy] = 0 for tokens drawn from p.
    surprise = (scores.logprobs_BT + scores.entropy_BT)[samples.mask_BT]
    assert abs(surprise.mean()) < 4 * surprise.std() / len(surprise) ** 0.5


@pytest.mark.parametrize(("top_p", "top_k"), [(0.4, 0), (1.0, 5), (0.6, 30)])
def test_vllm_truncates_the_distribution_as_the_built_in_engine_does(
    top_p: float, top_k: int, model: Path, server: str
) -> None:
    """Every sampled token is one that stays, with its probability among those that stay."""
    settings = (f"rollout.top_p={top_p}", f"rollout.top_k={top_k}", "rollout.temperature=1.5")
    with opened(model, server, *settings) as (engine, policy):
        samples = drawn(engine, prompts_of(policy, "1+2=", "7*3=", each=8))
    with torch.no_grad():
        logits_BTV = response_logits(
            policy.model, samples.tokens_BL, samples.attention_BL, samples.prompt_width
        )
    mask_BT = samples.mask_BT
    left_NV = Distribution(1.5, top_p, top_k).truncated(logits_BTV[mask_BT])
    shares_NV = torch.softmax(left_NV / 1.5, dim=-1)
    assert (shares_NV == 0).any()
    sampled_N = shares_NV.gather(1, samples.response_BT[mask_BT][:, None])[:, 0]
    assert (sampled_N > 0).all()
    torch.testing.assert_close(samples.logprobs_BT[mask_BT].exp(), sampled_N, rtol=0, atol=1e-4)


def test_a_seed_gives_the_same_responses_again(model: Path, server: str) -> None:
    with opened(model, server) as (engine, policy):
        prompts = prompts_of(policy, "1+2=", "7*3=")
        first, again, other = (drawn(engine, prompts, seed) for seed in (1, 1, 2))
    assert torch.equal(first.tokens_BL, again.tokens_BL)
    assert first.tokens_BL.tolist() != other.tokens_BL.tolist()
    assert len({tuple(row) for row in first.response_ids()}) == len(prompts)


def test_rows_sampled_in_parts_equal_the_whole_batch(model: Path, server: str) -> None:
    """Ranks that share a batch sample what one process samples, even within a group."""
    with opened(model, server) as (engine, policy):
        prompts = prompts_of(policy, "1+2=", "7*3=")
        whole = drawn(engine, prompts).response_ids()
        requests = list(_requests(prompts, torch.Generator().manual_seed(0)))
        settings = engine._sampling_settings(0)
        parts = [
            engine._responses(list(_requests_for(rows, requests)), settings)
            for rows in (range(3), range(3, 8))
        ]
    assert [list(each.ids) for part in parts for each in part] == whole


@pytest.mark.slow
def test_two_ranks_draw_from_a_server_what_one_process_draws(
    model: Path, server: str, tmp_path: Path
) -> None:
    trained(small(model, server, *TWO_STEPS), tmp_path / "one")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    settings = [f"model.name={model}", "engine.kind=server", f"engine.url={server}"]
    train([sys.executable, *launch], tmp_path / "two", *settings, *TWO_STEPS)
    one, two = (list(read_run(tmp_path / each).steps) for each in ("one", "two"))
    assert len(two) == 2
    for left, right in zip(one, two, strict=True):
        assert reading(right, "mismatch/prob_diff_max") < ARRIVED
        for name in ("length/mean", "reward/mean"):
            assert reading(left, name) == reading(right, name)


def test_a_response_without_end_token_is_truncated(model: Path, server: str) -> None:
    with opened(model, server, "rollout.max_length=24") as (engine, policy):
        with torch.no_grad():
            policy.model.get_input_embeddings().weight[1].mul_(2)  # writes the end token more often
        engine.sync(2)
        samples = drawn(engine, prompts_of(policy, "1+2=", "7*3=", each=32))
    ids, lengths = samples.response_ids(), samples.mask_BT.sum(dim=1)
    ended = torch.tensor([row[-1] == 1 for row in ids])
    assert 0 < int(ended.sum()) < len(ids)
    assert torch.equal(samples.truncated_B, ~ended)
    assert set(lengths[~ended].tolist()) == {24}
    assert all(1 not in row[:-1] for row in ids)


def test_vllm_reports_the_most_likely_tokens(model: Path, server: str) -> None:
    with opened(model, server, "rollout.temperature=0.7") as (engine, policy):
        samples = drawn(engine, prompts_of(policy, "1+2=", "7*3="), top_tokens=5)
    assert samples.top is not None
    with torch.no_grad():
        logits_BTV = response_logits(
            policy.model, samples.tokens_BL, samples.attention_BL, samples.prompt_width
        )
    expected = (logits_BTV / 0.7).log_softmax(-1).topk(5)
    mask_BT = samples.mask_BT
    torch.testing.assert_close(
        samples.top.logprobs_BTK[mask_BT], expected.values[mask_BT], atol=1e-4, rtol=0
    )
    assert torch.equal(samples.top.ids_BTK[mask_BT], expected.indices[mask_BT])


def test_a_stale_engine_survives_a_resume(model: Path, server: str) -> None:
    with opened(model, server, "engine.sync_every=10") as (engine, policy):
        engine.sync(4)
        prompts = prompts_of(policy, "1+2=", "7*3=")
        before = drawn(engine, prompts)
        state = engine.state_dict()
        move(policy)
    with opened(model, server, "engine.sync_every=10") as (resumed, other):
        move(other)
        resumed.sync(9)
        assert gap(other, drawn(resumed, prompts)) < ARRIVED
        resumed.load_state_dict(state)
        assert resumed.synced_step == 4
        after = drawn(resumed, prompts)
    assert torch.equal(before.tokens_BL, after.tokens_BL)
    assert torch.equal(before.logprobs_BT, after.logprobs_BT)


# In process


@pytest.mark.slow
def test_every_sync_arrives_in_process_and_in_a_mixture_of_experts(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", "qwen3_moe", head_dim=32, tie_word_embeddings=True)
    settings = ("engine.kind=vllm", "engine.memory_share=0.05", "engine.max_model_len=64")
    train([vllm_python()], tmp_path / "run", f"model.name={model}", *settings, "steps=4")
    steps = list(read_run(tmp_path / "run").steps)
    assert [step.step for step in steps] == [1, 2, 3, 4]
    assert sum(reading(step, "optimizer/update_norm_ratio") > 0.01 for step in steps) >= 3
    for step in steps:
        assert 0 < reading(step, "mismatch/prob_diff_max") < ARRIVED


# What fails


def test_a_server_that_is_lost_leaves_the_checkpoint_and_the_run_goes_on(
    model: Path, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    with relay(server) as (url, cut):
        config = small(model, url, "steps=5", "checkpoint.every=1")
        trainer = Trainer(config, tmp_path / "run")
        monkeypatch.setattr(vllm_server, "time", SimpleNamespace(sleep=pauses.append))
        with pytest.raises(EngineError, match=r"no longer responds.*--resume") as caught:
            trainer.run(lambda report: cut() if report.step == 3 else None)
    monkeypatch.undo()
    retries = 2
    assert len(pauses) <= retries * config.rollout.prompts_per_batch, "it gives up soon"
    assert "\n" not in str(caught.value)
    assert trainer.done == 3
    assert checkpoints(tmp_path / "run")[-1].name == "step-000003"
    config = saved_config(tmp_path / "run", [f"engine.url={server}"])
    resumed = Trainer(config, tmp_path / "run", resume=True)
    resumed.run()
    steps = list(read_run(tmp_path / "run").steps)
    assert [step.step for step in steps] == [1, 2, 3, 4, 5]
    assert all(reading(step, "mismatch/prob_diff_max") < ARRIVED for step in steps)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"vocab_size": VOCABULARY + 1}, "its vocab_size is 24, the learner's is 25"),
        ({"num_hidden_layers": 3}, "its num_hidden_layers is 2, the learner's is 3"),
        ({"tie_word_embeddings": False}, "its tie_word_embeddings is True"),
        ({"family": "llama"}, "its model_type is qwen2, the learner's is llama"),
    ],
    ids=lambda case: next(iter(case)) if isinstance(case, dict) else "",
)
def test_a_server_with_another_model_is_refused(
    sizes: dict[str, object], message: str, server: str, tmp_path: Path
) -> None:
    other = save_model(tmp_path / "other", **sizes)
    with pytest.raises(EngineError, match=message):
        Trainer(small(other, server), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_under_another_name_is_refused(model: Path, server: str, tmp_path: Path) -> None:
    with pytest.raises(
        EngineError, match=r"it serves policy, not actor .*; set engine.served_model"
    ):
        Trainer(small(model, server, "engine.served_model=actor"), tmp_path)


def test_a_prompt_beyond_the_servers_room_is_refused(model: Path, server: str) -> None:
    with (
        opened(model, server) as (engine, policy),
        pytest.raises(DataError, match="exceed vLLM's max_model_len of 256"),
    ):
        drawn(engine, prompts_of(policy, "1+" * 130))


def test_weights_that_the_server_cannot_read_are_an_error(
    model: Path, server: str, tmp_path: Path
) -> None:
    with opened(model, server) as (engine, _):
        engine._files._latest = None
        original = engine._backend.load
        engine._backend.load = lambda path: original(f"{path}.elsewhere")  # type: ignore[method-assign]
        with pytest.raises(EngineError, match=r"could not be loaded.*engine.sync_dir"):
            engine.sync(2)
    with pytest.raises(EngineError, match=r"cannot be written.*engine.sync_dir"):
        open_vllm(*policy_and(small(model, server, f"engine.sync_dir={tmp_path / 'nowhere'}")))


def test_transferred_weight_files_are_removed_at_the_end(
    model: Path, server: str, tmp_path: Path
) -> None:
    with opened(model, server, f"engine.sync_dir={tmp_path}") as (engine, _):
        for step in (2, 3):
            engine.sync(step)
            (folder,) = tmp_path.iterdir()
            assert [each.name for each in folder.iterdir()] == [f"weights-{step:06d}.safetensors"]
    assert not list(tmp_path.iterdir())


@contextmanager
def relay(url: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """Another address of a server, and a function that closes it."""
    host, port = url.removeprefix("http://").split(":")
    listener = socket.create_server(("127.0.0.1", 0))
    pairs: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
        for each in (source, sink):
            each.close()

    def accept() -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection((host, int(port)))
                pairs.extend((near, far))
                for ends in ((near, far), (far, near)):
                    threads.append(threading.Thread(target=pump, args=ends))
                    threads[-1].start()

    def cut() -> None:
        for each in (listener, *pairs):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    threads.append(threading.Thread(target=accept))
    threads[0].start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", cut
    finally:
        cut()
        for thread in threads:
            thread.join(10)
