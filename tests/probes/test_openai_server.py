"""Servers by address: a real vLLM server, and fake ones with the faults of servers."""

from __future__ import annotations

import json
import math
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.probes.models import messages, prompts_file, tokenizer
from tests.probes.programs import VLLM_ENVIRONMENT, run, sample, score, vllm_python
from tests.probes.servers import MODELS, QUICK, standing_in
from tests.trainer.engines.vllm_helpers import end, free_port, wait_for

PROMPTS = 6


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prompts_file(tmp_path_factory.mktemp("prompts") / "prompts.json", PROMPTS)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs in this process ask again at once."""
    from server import client

    monkeypatch.setattr(client, "_PAUSE_SECONDS", 0.01)


# A real server


@pytest.fixture(scope="module")
def vllm_server(dense_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A vLLM server in float32, with its settings."""
    folder = tmp_path_factory.mktemp("server")
    port = free_port()
    arguments = f"--host 127.0.0.1 --port {port} --served-model-name tiny --dtype float32"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [vllm_python(), "-m", "vllm.entrypoints.openai.api_server", "--model", dense_model,
             *arguments.split(), "--max-model-len", "512", "--enforce-eager"],
            env={**os.environ, **VLLM_ENVIRONMENT, "VLLM_SERVER_DEV_MODE": "1",
                 "VLLM_NO_USAGE_STATS": "1"},
            cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(url, process, folder / "log")
        yield url
    finally:
        end(process)


@pytest.mark.slow
def test_a_real_vllm_server_samples_scores_and_tokenises(
    vllm_server: str, prompts: Path, tmp_path: Path
) -> None:
    spoken = tmp_path / "spoken.json"
    talks = messages(2)
    spoken.write_text(json.dumps([{"messages": each} for each in talks] + [{"text": "1+1="}]))
    tasks = [
        {"kind": "tokenise", "name": "ids", "prompts": str(spoken)},
        sample(prompts, temperature=0.8),
        score(tmp_path / "ran/sample", want=["ranks"]),
    ]
    ran = run("openai_server", tmp_path / "ran", vllm_server, tasks)
    own, ids = tokenizer(), ran.ids("ids")
    written = own.apply_chat_template(talks[0], add_generation_prompt=True, tokenize=False)
    assert (ids[0], ids[2]) == (own.encode(written), own.encode("1+1="))
    drawn, scored = ran.arrays("sample"), ran.arrays("score")
    assert len(drawn["prompt_B"]) == 4 * PROMPTS
    assert np.abs(drawn["logprobs_N"] - scored["logprobs_N"]).max() < 1e-5
    assert (scored["rank_N"] == 0).mean() > 0.2
    engine = ran.engine
    assert engine["name"] == "openai_server (vllm)"
    assert (engine["model"], engine["dtype"], engine["context"]) == ("tiny", "float32", 512)
    assert (engine["logprobs"], engine["vocab_size"], engine["end_ids"]) == ("raw", 64, [1])


@pytest.mark.slow
def test_a_completions_server_scores_by_echo(
    vllm_server: str, prompts: Path, tmp_path: Path
) -> None:
    tasks = [sample(prompts), score(tmp_path / "sample")]
    options = {"server": "completions", "model": "tiny"}
    ran = run("openai_server", tmp_path, vllm_server, tasks, options)
    drawn, scored = ran.arrays("sample"), ran.arrays("score")
    assert len(drawn["logprobs_N"]) > 100
    assert np.abs(drawn["logprobs_N"] - scored["logprobs_N"]).max() < 1e-5


@pytest.mark.slow
def test_another_model_is_refused_with_the_names_of_those_served(
    vllm_server: str, tmp_path: Path
) -> None:
    error = run("openai_server", tmp_path, vllm_server, [], {"model": "huge"}).error
    assert "serves tiny, not 'huge'" in error["what"]
    assert "model=" in error["remedy"]


@pytest.mark.slow
def test_a_prompt_beyond_the_context_quotes_the_server(vllm_server: str, tmp_path: Path) -> None:
    long = tmp_path / "long.json"
    long.write_text(json.dumps([{"ids": [7] * 600}]))
    error = run("openai_server", tmp_path, vllm_server, [sample(long)]).error
    assert "512" in error["what"]


@pytest.mark.slow
def test_responses_that_fill_the_context_are_sampled_and_scored(
    vllm_server: str, tmp_path: Path
) -> None:
    short = tmp_path / "short.json"
    short.write_text(json.dumps([{"ids": [7] * 20}]))
    tasks = [sample(short, max_tokens=1000, ignore_end=True), score(tmp_path / "sample")]
    ran = run("openai_server", tmp_path, vllm_server, tasks)
    assert set(np.diff(ran.arrays("score")["response_offsets"])) == {512 - 20 - 1}


@pytest.mark.slow
def test_unsupported_features_are_not_requested(
    vllm_server: str, prompts: Path, tmp_path: Path
) -> None:
    tasks = [sample(prompts), score(tmp_path / "sample", processing={"temperature": 0.5})]
    ran = run("openai_server", tmp_path, vllm_server, tasks)
    assert "temperature 1" in ran.error["what"]
    assert ran.answer["tasks"]["sample"]["responses"] == 4 * PROMPTS


# Fake servers


def choice(**changes: Any) -> dict[str, Any]:
    logprobs = {"token_logprobs": [-1.0, -2.0], "tokens": ["a", "b"]}
    whole = {"index": 0, "token_ids": [5, 6], "logprobs": logprobs, "finish_reason": "length"}
    return {"choices": [whole | changes]}


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (choice(logprobs=None), "returned no log-probabilities"),
        (choice(token_ids=[5]), "returned 2 log-probabilities for 1 tokens"),
        (choice(token_ids=[], logprobs={"token_logprobs": []}), "a response without tokens"),
        (choice(token_ids=None), "does not return the ids of sampled tokens"),
        (choice(token_ids=[-1, 2]), "does not return the ids of sampled tokens"),
        (choice(logprobs={"token_logprobs": ["x", -1.0]}), "returned 'x' as a log-probability"),
        (choice(logprobs={"content": [{"id": 5, "logprob": -1.0}]}), "like llama.cpp's server"),
        (choice(logprobs="none"), "returned no log-probabilities"),
        (choice(token_ids=[5, 2**40]), "does not return the ids of sampled tokens"),
        (choice(finish_reason="abort"), "aborted a response: abort"),
        ({"choices": []}, "one choice"),
        ([], "does not answer like a completions server"),
        (b"<html>", "does not answer /v1/completions with JSON"),
        (b"[" * 100_000, "does not answer /v1/completions with JSON"),
        (500, "refuses a completion: HTTP 500"),
        (None, "no longer answers /v1/completions"),
    ],
)
def test_unusable_answers_are_refused(answer: Any, what: str, tmp_path: Path) -> None:
    from contract import RefusalError, Sampling
    from engine_openai_server import load

    routes = {"/v1/models": lambda _: MODELS, "/v1/completions": lambda _: answer}
    with standing_in(routes) as url:
        server = load(url, {**QUICK, "logprobs": "raw"})
        with pytest.raises(RefusalError) as refusal:
            server.sample([[1, 2]], Sampling(samples=1, max_tokens=2), ())
    assert what in refusal.value.what
    assert "\n" not in refusal.value.what


@pytest.mark.parametrize(
    ("owner", "answer"),
    [
        ("tensorrt_llm", lambda body: 400 if "return_token_ids" in body else choice()),
        ("lmdeploy", lambda body: {"choices": [{"index": 0, "text": ""} for _ in body["prompt"]]}),
        ("chat", lambda _: 404),
    ],
)
def test_servers_without_token_ids_are_refused(
    owner: str, answer: Callable[[dict[str, Any]], Any]
) -> None:
    """TensorRT-LLM's has a version, as vLLM's has; LMDeploy's takes each id for a prompt."""
    from contract import RefusalError
    from engine_openai_server import load

    routes = {
        "/v1/models": lambda _: {"data": [{"id": "tiny", "owned_by": owner}]},
        "/version": lambda _: {"version": "1.0"},
        "/model_info": lambda _: b"<html>a page for all that is not known</html>",
        "/v1/completions": answer,
    }
    with standing_in(routes) as url, pytest.raises(RefusalError) as refusal:
        load(url, QUICK).describe()
    assert "accepts token ids" in refusal.value.remedy


def test_all_sampling_settings_are_sent() -> None:
    """The model's generation_config would truncate without a request."""
    from contract import Sampling
    from engine_openai_server import load

    asked: list[dict[str, Any]] = []

    def complete(body: dict[str, Any]) -> Any:
        asked.append(body)
        return choice()

    with standing_in({"/v1/models": lambda _: MODELS, "/v1/completions": complete}) as url:
        load(url, QUICK).sample([[1]], Sampling(samples=1, max_tokens=2), ())
    neutral = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0}
    neutral |= {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    assert neutral.items() <= asked[0].items()


def test_penalties_are_sent() -> None:
    from contract import PROCESSORS, Sampling
    from engine_openai_server import load

    asked: list[dict[str, Any]] = []

    def complete(body: dict[str, Any]) -> Any:
        asked.append(body)
        return choice()

    penalties = {"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.25}
    sampling = Sampling(samples=1, max_tokens=2, min_tokens=9, logit_bias=((5, -2.0),), **penalties)
    vllm = {"data": [MODELS["data"][0] | {"owned_by": "vllm"}]}
    described = {}
    for kind, models in (("vllm", vllm), ("completions", MODELS)):
        with standing_in({"/v1/models": lambda _, m=models: m, "/v1/completions": complete}) as url:
            server = load(url, QUICK | {"server": kind, "logprobs": "raw"})
            server.sample([[1]], sampling, ())
            described[kind] = server.describe()["processors"]
    sent = penalties | {"min_tokens": 2, "logit_bias": {"5": -2.0}}
    assert all(sent.items() <= body.items() for body in asked)
    assert described["vllm"] == list(PROCESSORS)
    assert "repetition_penalty" not in described["completions"], "an extension may be ignored"


def test_more_tokens_than_requested_are_refused() -> None:
    from contract import RefusalError, Sampling
    from engine_openai_server import load

    routes = {"/v1/models": lambda _: MODELS, "/v1/completions": lambda _: choice()}
    asked = pytest.raises(RefusalError, match="2 tokens instead of at most 1")
    with standing_in(routes) as url, asked:
        load(url, QUICK).sample([[1]], Sampling(samples=1, max_tokens=1), ())


def test_a_busy_server_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from contract import Sampling
    from engine_openai_server import load

    asked: list[str] = []

    def busy(body: dict[str, Any]) -> Any:
        asked.append(body["headers"].get("Authorization", ""))
        return 503 if len(asked) == 1 else choice()

    monkeypatch.setenv("PROBE_KEY", "geheim")
    with standing_in({"/v1/models": lambda _: MODELS, "/v1/completions": busy}) as url:
        server = load(url, {**QUICK, "api_key_env": "PROBE_KEY"})
        (response,) = server.sample([[1]], Sampling(samples=1, max_tokens=2), ())
    assert response.logprobs == [-1.0, -2.0]
    assert asked == ["Bearer geheim", "Bearer geheim"]


def test_a_floor_means_probability_zero() -> None:
    from contract import Sampling
    from engine_openai_server import load

    floored = choice(logprobs={"token_logprobs": [-9999.0, -1.0]})
    with standing_in({"/v1/models": lambda _: MODELS, "/v1/completions": lambda _: floored}) as url:
        (response,) = load(url, QUICK).sample([[1]], Sampling(samples=1, max_tokens=2), ())
    assert response.logprobs == [-math.inf, -1.0]


def test_a_server_that_hangs_is_given_up(tmp_path: Path) -> None:
    from contract import RefusalError, Sampling
    from engine_openai_server import load

    let_go = threading.Event()
    routes = {"/v1/models": lambda _: MODELS, "/v1/completions": lambda _: let_go.wait(20)}
    with standing_in(routes) as url:
        server = load(url, {"wait": 1, "request_timeout": 0.5})
        with pytest.raises(RefusalError, match=r"was silent for 0\.5 s"):
            server.sample([[1]], Sampling(samples=1), ())
        let_go.set()


@pytest.mark.parametrize(
    ("url", "options", "what"),
    [
        ("http://127.0.0.1:1", {"wait": 0.1}, "no server answers at http://127.0.0.1:1"),
        ("ftp://host", {}, "is not the address of a server"),
        ("file:///etc/passwd", {}, "is not the address of a server"),
        ("http://127.0.0.1:1", {"wiat": 1}, "a server has no option 'wiat'"),
        ("http://127.0.0.1:1", {"api_key_env": "NOT_SET_AT_ALL"}, "'NOT_SET_AT_ALL' is not set"),
        ("http://127.0.0.1:1", {"logprobs": "cooked"}, "raw or processed"),
        ("http://127.0.0.1:1", {"connections": 0}, "connections="),
    ],
)
def test_bad_addresses_and_options_are_refused(
    url: str, options: dict[str, Any], what: str
) -> None:
    from contract import RefusalError
    from engine_openai_server import load

    with pytest.raises(RefusalError) as refusal:
        load(url, options)
    assert what in refusal.value.what


def test_redirects_are_not_followed() -> None:
    from contract import RefusalError
    from engine_openai_server import load

    refused = pytest.raises(RefusalError, match="HTTP 302")
    with standing_in({"/v1/models": lambda _: 302}) as url, refused:
        load(url, QUICK)


def test_a_server_that_cannot_score_needs_a_stated_processing(tmp_path: Path) -> None:
    def complete(body: dict[str, Any]) -> Any:
        return 400 if body.get("echo") else choice()

    with standing_in({"/v1/models": lambda _: MODELS, "/v1/completions": complete}) as url:
        error = run("openai_server", tmp_path, url, [], QUICK).error
    assert "logprobs=raw or logprobs=processed" in error["remedy"]
