"""Fake inference servers: HTTP servers with a few routes and a table as the model.

That of SGLang answers as SGLang 0.5.23 did on a CPU, where it runs only with parts of it replaced.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

QUICK = {"wait": 1, "request_timeout": 5}

Routes = Mapping[str, Callable[[dict[str, Any]], Any]]


@contextmanager
def standing_in(routes: Routes) -> Iterator[str]:
    """A server of some routes; an answer that is a number is a status, None closes the line."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer({})

        def do_POST(self) -> None:
            self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def answer(self, body: dict[str, Any]) -> None:
            body["headers"] = dict(self.headers)
            route = routes.get(self.path)
            given = 404 if route is None else route(body)
            if given is None:
                self.connection.close()
                return
            status, data = (given, {}) if isinstance(given, int) else (200, given)
            text = data if isinstance(data, bytes) else json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


MODELS = {"data": [{"id": "tiny", "root": "/nowhere", "parent": None}]}


def logprob_of(token: int, temperature: float = 1.0) -> float:
    """Of a model that finds each of ten tokens as much less likely as it is larger."""
    scores = [-0.3 * each / temperature for each in range(10)]
    return scores[token] - math.log(sum(map(math.exp, scores)))


CONTEXT = 200
MOST_INPUT = CONTEXT - 6
"""SGLang keeps six tokens of its context free of input."""


LAST_ID = 9
"""It writes 0 for the last id of the vocabulary, where it scores."""


def sglang(body: dict[str, Any]) -> Any:
    """SGLang's /generate: (logprob, id, text) of the requested tokens."""
    ids, settings = body["input_ids"], body["sampling_params"]
    start = body.get("logprob_start_len", -1)
    count = settings["max_new_tokens"]
    if len(ids) >= MOST_INPUT or len(ids) + count > CONTEXT:
        return 400
    seed = settings.get("sampling_seed", 0)
    drawn = [(sum(ids) + each + seed) % 10 for each in range(count)]
    temperature = settings.get("temperature", 1.0)
    scored = [[logprob_of(each % 10), each if each < LAST_ID else 0, None] for each in ids[start:]]
    reason = {"type": "stop", "matched": 1} if count % 2 else {"type": "length", "length": count}
    meta = {
        "id": "1",
        "finish_reason": reason,
        "prompt_tokens": len(ids),
        "weight_version": "default",
        "input_token_logprobs": [[None, *scored[0][1:]], *scored[1:]] if start >= 0 else [],
        "output_token_logprobs": [[logprob_of(each, temperature), each, None] for each in drawn],
        "output_token_logprobs_length": count,
        "completion_tokens": count,
        "cached_tokens": 3,
    }
    return {"text": "", "output_ids": drawn, "meta_info": meta}


def sglang_ids(body: dict[str, Any]) -> Any:
    """SGLang's /tokenize, which takes one of the two."""
    if ("prompt" in body) == ("messages" in body):
        return 400
    ids = [*range(7)] if "prompt" in body else [*range(9)]
    return {"tokens": ids, "count": len(ids), "max_model_len": CONTEXT}


CARD = {
    "id": "tiny",
    "root": "tiny",
    "parent": None,
    "owned_by": "sglang",
    "max_model_len": CONTEXT,
}
ABOUT_SGLANG = {
    "version": "0.5.23", "dtype": "bfloat16", "tp_size": 2, "context_length": None,
    "max_req_input_len": MOST_INPUT, "max_total_num_tokens": 20000, "attention_backend": "fa3",
    "kv_cache_dtype": "auto", "quantization": None, "enable_deterministic_inference": False,
    "api_key": "secret",
}  # fmt: skip
SGLANG: Routes = {
    "/v1/models": lambda _: {"data": [CARD]},
    "/model_info": lambda _: {"model_path": "/nowhere", "served_model_name": "tiny"},
    "/server_info": lambda _: ABOUT_SGLANG,
    "/tokenize": sglang_ids,
    "/generate": sglang,
}
