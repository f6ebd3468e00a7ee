"""Each fault of a vLLM server is one line; a fake server has the faults."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from grpodoctor.errors import ConfigError, EngineError, MissingExtraError
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.engines import vllm_server
from grpodoctor.trainer.engines.vllm_worker import EXTENSION
from grpodoctor.trainer.loop import Trainer
from tests.samples import sampled
from tests.trainer.engines.vllm_helpers import (
    SMALL,
    VOCABULARY,
    free_port,
    opened,
    save_model,
    small,
    trained,
)

NAME = "policy"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


SERVED = {
    "version": "0.32.0",
    "sizes": {"vocab_size": VOCABULARY},
    "logprobs_mode": "raw_logprobs",
    "max_model_len": 256,
}
LOADED = {"tensors": 26, "missing": [], "error": ""}
Answer = tuple[int, object]


def choice(*ids: int, index: int = 0) -> dict[str, object]:
    top = [{f"token_id:{each}": -1.0} for each in ids]
    logprobs = {"token_logprobs": [-1.0] * len(ids), "top_logprobs": top}
    return {"index": index, "token_ids": list(ids), "logprobs": logprobs}


def answers(**changes: Answer) -> dict[str, Answer]:
    """The responses of a correct server, by the last part of the path."""
    return {
        "health": (200, None),
        "models": (200, {"data": [{"id": NAME}]}),
        "grpodoctor_describe": (200, {"results": [SERVED]}),
        "grpodoctor_load": (200, {"results": [LOADED]}),
        "reset_prefix_cache": (200, {"success": True}),
        "completions": (200, {"choices": [choice(1, index=i) for i in range(4)]}),
        **changes,
    }


@contextmanager
def pretender(told: dict[str, Answer]) -> Iterator[str]:
    """A server with the given responses; a status of None means no response."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.reply(self.path.rpartition("/")[2])

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "{}")
            self.reply(body.get("method") or self.path.rpartition("/")[2])

        def reply(self, key: str) -> None:
            status, content = told[key]
            if status is None:
                over.wait(30)
                self.close_connection = True
                return
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            over.set()
            server.shutdown()
            thread.join()


def test_the_fake_server_is_accepted_when_it_responds_like_vllm(
    model: Path, tmp_path: Path
) -> None:
    with pretender(answers()) as url:
        assert len(trained(small(model, url, "steps=1"), tmp_path)) == 1


OTHER = {**SERVED, "logprobs_mode": "raw_logits"}
FAILURES: dict[str, tuple[dict[str, Answer], str]] = {
    "not vLLM": (
        {"health": (404, b"")},
        "no vLLM server responds within 1 s: /health returns HTTP 404",
    ),
    "silent": ({"models": (None, b"")}, "it did not respond to /v1/models within 2 s"),
    "silent later": (
        {"completions": (None, b"")},
        "it did not respond to /v1/completions within 2 s",
    ),
    "no development mode": (
        {"grpodoctor_describe": (404, {"detail": "Not Found"})},
        "without VLLM_SERVER_DEV_MODE=1.*start it with: VLLM_SERVER_DEV_MODE=1 python",
    ),
    "no extension": (
        {
            "grpodoctor_describe": (
                500,
                {"error": "'Worker' object has no attribute 'grpodoctor_x'"},
            )
        },
        f"without the worker extension.*--worker-extension-cls {EXTENSION}",
    ),
    "no models": ({"models": (200, {"data": []})}, "it serves no model"),
    "several models": (
        {"models": (200, {"data": [{"id": "a"}, {"id": "b"}, {"id": "c", "parent": "a"}]})},
        "it serves a, b, and engine.served_model is not set",
    ),
    "not JSON": ({"models": (200, b"<html>")}, "its response is not vLLM's"),
    "hostile": (
        {"completions": (500, b"\x1b[31m[red]\nTraceback")},
        r"/v1/completions returns HTTP 500: \?\[31m\[red\]\?Traceback",
    ),
    "other log-probabilities": (
        {"grpodoctor_describe": (200, {"results": [OTHER]})},
        "it reports raw_logits.*--logprobs-mode processed_logprobs",
    ),
    "damaged weights": (
        {"grpodoctor_load": (200, {"results": [{**LOADED, "error": "OSError: no such file"}]})},
        "the weights could not be loaded: OSError: no such file",
    ),
    "half the weights": (
        {"grpodoctor_load": (200, {"results": [{**LOADED, "tensors": 13}]})},
        "the sync sent 26 weights, and 13 arrived",
    ),
    "no workers": (
        {"grpodoctor_load": (200, {"results": []})},
        "none of its workers responds to grpodoctor_load",
    ),
    "a full cache": (
        {"reset_prefix_cache": (200, {"success": False})},
        "it did not empty its prefix cache",
    ),
    "too few responses": (
        {"completions": (200, {"choices": [choice(1)]})},
        "vLLM returned 1 responses instead of 4",
    ),
    "no token ids": (
        {"completions": (200, {"choices": [{"index": 0, "text": "hello"}]})},
        "its response is not vLLM's: choices.0.token_ids",
    ),
    "stopped by itself": (
        {"completions": (200, {"choices": [choice(5, 6, index=i) for i in range(4)]})},
        "a response that ends after 2 of 16 tokens without an end token",
    ),
    "unknown token": (
        {"completions": (200, {"choices": [choice(500, 1, index=i) for i in range(4)]})},
        "a token outside the learner.s vocabulary",
    ),
    "empty response": (
        {"completions": (200, {"choices": [choice(index=i) for i in range(4)]})},
        "vLLM returned 0 tokens",
    ),
}


@pytest.mark.parametrize("case", sampled(FAILURES, 3))
def test_each_failure_of_a_server_is_one_line(case: str, model: Path, tmp_path: Path) -> None:
    changes, message = FAILURES[case]
    with pretender(answers(**changes)) as url, pytest.raises(EngineError, match=message) as caught:
        trained(small(model, url, "engine.wait=1", "engine.timeout=2"), tmp_path)
    assert "\n" not in str(caught.value)
    assert url in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_an_unreachable_server_is_one_line(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    pauses: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append)
    monkeypatch.setattr(vllm_server, "time", clock)
    with pytest.raises(EngineError, match=r"no vLLM server responds within 1 s.*start one: VLLM_"):
        Trainer(small(model, url, "engine.wait=1"), tmp_path)
    assert sum(pauses) == pytest.approx(1)


def test_raw_log_probabilities_are_accepted_only_at_temperature_one(model: Path) -> None:
    with pretender(answers()) as url, ExitStack() as stack:
        engine, _ = stack.enter_context(opened(model, url))
        with pytest.raises(EngineError, match=r"raw_logprobs, which at temperature 0.7"):
            engine.set(small(model, url).engine, 0.7)
        assert engine.temperature == 1
        with pytest.raises(ConfigError, match="precision cannot change"):
            engine.set(small(model, url).engine.model_copy(update={"precision": "bf16"}), 1.0)
        with pytest.raises(EngineError, match=r"raw_logprobs, which at temperature 0.7"):
            stack.enter_context(opened(model, url, "rollout.temperature=0.7"))


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["engine.kind=server"], "engine.url require each other"),
        (
            ["engine.url=http://127.0.0.1:8000"],
            "engine.url require each other",
        ),
        (["engine.kind=server", "engine.url=localhost"], "write http://HOST:PORT"),
        (["engine.kind=server", "engine.url=http://"], "write http://HOST:PORT"),
        (["engine.kind=server", "engine.url=http://h:99999"], "port out of range"),
        (["engine.kind=server", "engine.url=http://[h"], "engine.url cannot be"),
        (
            ["engine.kind=server", "engine.url=http://h:1", "engine.precision=bf16"],
            "a server sets its own precision",
        ),
        (["engine.kind=vllm", "engine.precision=int8"], "simulated by the built-in engine only"),
    ],
)
def test_contradictory_settings_are_refused(assignments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(assignments=assignments)


def test_without_vllm_one_line_says_what_to_install(model: Path, tmp_path: Path) -> None:
    config = load_config(assignments=[*SMALL, f"model.name={model}", "engine.kind=vllm"])
    with pytest.raises(MissingExtraError, match=r"pip install 'grpodoctor\[vllm\]'"):
        Trainer(config, tmp_path)
