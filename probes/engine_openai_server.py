"""Engine program: a running server, `openai_server:http://127.0.0.1:8000?model=NAME`.

It supports `vllm serve` (which scores through prompt log-probabilities), SGLang (through its own
`/generate`), and any server whose `/v1/completions` returns token ids and echoes prompts with
log-probabilities. The kind of server is detected. Tested with vLLM 0.32.0 and, on a CPU, SGLang
0.5.23.

Responses end a token or two before the context is full, so that the server can still score them.

Options:

- `model`: the served name; required if the server has several models. A LoRA adapter is chosen by
  the name under which the server lists it (`vllm serve --enable-lora --lora-modules NAME=DIR`)
- `tokenizer`: a directory or hub name, read by transformers, if the server has no `/tokenize`
- `api_key_env`: the environment variable that holds the key
- `wait`: seconds to wait for the server to start; `request_timeout`: seconds of silence;
  `connections`: number of concurrent requests
- `server`: `vllm`, `sglang` or `completions`, to skip the detection; `logprobs`: `raw` or
  `processed`, to skip the measurement
- `dtype`, `tensor_parallel_size`: the server's settings for the report, if it does not return them

A server scores at temperature 1 over the whole vocabulary; other settings are refused.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import contract
import numpy as np
from contract import Processing, RefusalError, Response, Sampling, response_seed, with_defaults
from hf import tokenizer as hf_tokenizer
from server.client import JsonClient, StatusError
from server.dialects import Completions, Dialect, SampledTokens, Sglang, Vllm, refuse

_DEFAULTS: dict[str, Any] = {
    "model": "", "tokenizer": "", "api_key_env": "", "wait": 30.0, "request_timeout": 600.0,
    "connections": 32, "server": "", "logprobs": "", "dtype": "", "tensor_parallel_size": 0,
    "trust_remote_code": False,
}  # fmt: skip
_TRIAL = Sampling(samples=1, max_tokens=8, temperature=2.0, ignore_end=True)
"""At this temperature raw and processed log-probabilities differ strongly."""
_TRIAL_IDS = range(5, 13)
_PROCESSED_GAP = 0.05
"""Median difference of the trial's tokens from which the log-probabilities count as processed. For
a tiny model SGLang's raw log-probabilities differ by 0.006 in the median and by up to 0.03 through
16-bit rounding; processed ones differ by 0.1 to 0.3 in the median."""

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class OpenAiServer:
    """A running server.

    Args:
        url: the server's address.
        options: see the module.

    Raises:
        RefusalError: if the server does not answer or has another model, or an option is unknown.
    """

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._options = _known(options)
        key = _key(str(self._options["api_key_env"]))
        self._client = JsonClient(url, key, float(self._options["request_timeout"]))
        self._client.wait("/v1/models", float(self._options["wait"]))
        self._card = _model_card(self._client, str(self._options["model"]))
        self._model = str(self._card["id"])
        self._dialect = self._detect_dialect()
        self._tokenizer: Any = None

    def describe(self) -> dict[str, Any]:
        """What the server reports, completed from its model's directory if readable here."""
        facts, config = self._facts, self._local_config
        degree = self._options["tensor_parallel_size"] or facts["settings"].get("tp_size")
        dtype = self._options["dtype"] or facts["settings"].get("dtype")
        if dtype == "auto":  # the checkpoint's dtype
            dtype = config.get("dtype")
        return {
            "name": f"openai_server ({self._dialect.name})",
            "version": facts["version"],
            "model": self._model,
            "dtype": str(dtype or "not reported"),
            "device": "not reported",
            "layout": {"tensor_parallel": degree if isinstance(degree, int) else 1},
            "vocab_size": int(config.get("vocab_size", 0)),
            "end_ids": list(config.get("end_ids", ())),
            "begin_id": config.get("begin_id"),
            "context": self._context,
            "logprobs": self._options["logprobs"] or self._measured_mode(),
            "processors": list(self._dialect.processors),
            "settings": facts["settings"] | {"url": self._client.url},
        }

    def tokenise(self, prompts: Sequence[Mapping[str, Any]]) -> list[list[int]]:
        """Token ids by the server, or by the given tokenizer."""
        if self._options["tokenizer"]:
            return [self._ids_from_tokenizer(prompt) for prompt in prompts]
        return self._map(prompts, self._ids_from_server)

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        want: Sequence[str],  # noqa: ARG002
    ) -> list[Response]:
        """One request per response; servers return nothing besides log-probabilities."""
        requests = [
            (prompt, sample) for prompt in range(len(prompts)) for sample in range(sampling.samples)
        ]

        def sample_one(request: tuple[int, int]) -> Response:
            prompt, sample = request
            seed = response_seed(sampling, prompt, sample)
            fitting = self._fitting(sampling, len(prompts[prompt]))
            sampled = self._dialect.sample(prompts[prompt], fitting, seed)
            self._refuse_excess(sampled, fitting)
            return Response(
                list(prompts[prompt]),
                sampled.ids,
                sampled.logprobs,
                prompt,
                sample,
                sampled.ended,
                sampled.cached,
            )

        return self._map(requests, sample_one)

    def score(
        self, responses: Sequence[Response], processing: Processing, want: Sequence[str]
    ) -> list[Response]:
        """One request per response; vLLM also returns ranks."""
        if processing != Processing():
            raise RefusalError(
                "a server scores at temperature 1 over the whole vocabulary",
                "score with vllm: or transformers: at another temperature",
            )

        def score_one(response: Response) -> Response:
            if not len(response.prompt_ids):
                raise RefusalError("a response without a prompt cannot be scored by a server")
            scored = self._dialect.score(
                list(map(int, response.prompt_ids)), list(map(int, response.response_ids))
            )
            extras = {}
            if "ranks" in want and scored.ranks is not None:
                extras["rank"] = np.array(scored.ranks, np.int32)
            return replace(response, logprobs=scored.logprobs, extras=extras)

        return self._map(responses, score_one)

    def close(self) -> None:
        """Nothing to free; the server keeps running."""

    def _detect_dialect(self) -> Dialect:
        """The server's dialect, given or detected."""
        named = str(self._options["server"])
        if named not in ("", "vllm", "sglang", "completions"):
            raise RefusalError(f"server={named[:40]} is unknown", "use vllm, sglang or completions")
        info = (
            self._client.find("/model_info", "/get_model_info") if named in ("", "sglang") else {}
        )
        if named == "sglang" or (isinstance(info, dict) and "model_path" in info):
            return Sglang(self._client, info if isinstance(info, dict) else {}, self._card)
        # The version does not identify vLLM: TensorRT-LLM's server has one too.
        is_vllm = not named and self._card.get("owned_by") == "vllm"
        kind = Vllm if named == "vllm" or is_vllm else Completions
        return kind(self._client, self._model, self._card)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return self._dialect.facts()

    @cached_property
    def _local_config(self) -> dict[str, Any]:
        """The configuration in the model's directory, if it is readable here."""
        return _configuration(str(self._options["tokenizer"]), self._facts["path"])

    @property
    def _context(self) -> int:
        return self._facts["context"] or int(self._local_config.get("context", 0))

    def _fitting(self, sampling: Sampling, prompt: int) -> Sampling:
        """The sampling with `max_tokens` limited to the context, beyond which servers refuse.

        One token is left free, because vLLM samples one whenever it scores.
        """
        room = max(self._context - prompt - 1, 1) if self._context else sampling.max_tokens
        return replace(sampling, max_tokens=min(sampling.max_tokens, room))

    def _measured_mode(self) -> str:
        """Whether sampled log-probabilities are raw or processed, measured by a short trial."""
        ids = list(_TRIAL_IDS)
        sampled = self._dialect.sample(ids, _TRIAL, seed=1)
        try:
            raw = self._dialect.score(ids, sampled.ids).logprobs
        except RefusalError as error:
            raise RefusalError(
                f"{error.what}, so the kind of its sampled log-probabilities cannot be measured",
                "set logprobs=raw or logprobs=processed",
            ) from error
        gap = np.median(np.abs(np.subtract(sampled.logprobs, raw)))
        return "processed" if gap > _PROCESSED_GAP else "raw"

    def _ids_from_server(self, prompt: Mapping[str, Any]) -> list[int]:
        if "messages" in prompt:
            body = {"messages": prompt["messages"], "add_generation_prompt": True}
        else:
            body = {"prompt": prompt["text"]}
        try:
            answer = self._client.ask("/tokenize", {"model": self._model, **body})
        except StatusError as error:
            raise refuse(
                self._client,
                f"cannot tokenize: {error}",
                "give its tokenizer with tokenizer=DIRECTORY",
            ) from error
        ids = answer.get("tokens") if isinstance(answer, dict) else None
        if not isinstance(ids, list) or not all(type(token) is int for token in ids):
            raise refuse(self._client, "does not return token ids from /tokenize")
        return ids

    def _ids_from_tokenizer(self, prompt: Mapping[str, Any]) -> list[int]:
        if self._tokenizer is None:
            self._tokenizer = hf_tokenizer.load(
                str(self._options["tokenizer"]), bool(self._options["trust_remote_code"])
            )
        return hf_tokenizer.encoded(self._tokenizer, prompt)

    def _refuse_excess(self, sampled: SampledTokens, sampling: Sampling) -> None:
        count = len(sampled.ids)
        if count > sampling.max_tokens:
            raise refuse(
                self._client, f"returned {count} tokens instead of at most {sampling.max_tokens}"
            )

    def _map(self, items: Sequence[ItemT], do: Callable[[ItemT], ResultT]) -> list[ResultT]:
        """Run concurrent requests and keep their order; the first failure ends them all."""
        pool = ThreadPoolExecutor(int(self._options["connections"]))
        try:
            return list(pool.map(do, items))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def load(url: str, options: dict[str, Any]) -> OpenAiServer:
    """Connect to a server."""
    return OpenAiServer(url, options)


def _known(options: Mapping[str, Any]) -> dict[str, Any]:
    merged = with_defaults(options, _DEFAULTS, "a server")
    if merged["logprobs"] not in ("", "raw", "processed"):
        raise RefusalError("logprobs= must be raw or processed")
    for name in ("wait", "request_timeout", "connections"):
        if not isinstance(merged[name], int | float) or merged[name] <= 0:
            raise RefusalError(f"{name}= must be a number above zero")
    return merged


def _key(variable: str) -> str:
    if variable and variable not in os.environ:
        raise RefusalError(
            f"the environment variable {variable[:60]!r} is not set", "set it to the server's key"
        )
    return os.environ.get(variable, "") if variable else ""


def _model_card(client: JsonClient, wanted: str) -> Mapping[str, Any]:
    """The server's entry for the requested model, or for its only one."""
    try:
        answer = client.ask("/v1/models")
    except StatusError as error:
        remedy = (
            "name the environment variable that holds its key with api_key_env="
            if error.status == 401
            else ""
        )
        raise refuse(client, f"does not list its models: {error}", remedy) from error
    listed = answer.get("data") if isinstance(answer, dict) else None
    cards = [card for card in listed or () if isinstance(card, dict) and card.get("id")]
    own = [card for card in cards if not card.get("parent")]  # adapters have a parent
    if wanted:
        own = [card for card in cards if card["id"] == wanted]
    if len(own) == 1:
        return _with_base(own[0], cards)
    names = ", ".join(str(card["id"])[:80] for card in cards[:8]) or "no model"
    raise refuse(
        client,
        f"serves {names}" + (f", not {wanted[:80]!r}" if wanted else ""),
        "choose one with model=",
    )


def _with_base(card: Mapping[str, Any], cards: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """An adapter's entry, with the context and the directory of its base model."""
    if not card.get("parent"):
        return card
    base = next((each for each in cards if each["id"] == card["parent"]), {})
    return {**card, **{key: base.get(key) for key in ("root", "max_model_len", "context_length")}}


def _configuration(*folders: str) -> dict[str, Any]:
    """The configuration in the first of these directories that is readable here."""
    for folder in folders:
        path = Path(folder) / "config.json"
        if folder and path.is_file():
            return _read_configuration(path)
    return {}


def _read_configuration(path: Path) -> dict[str, Any]:
    try:
        whole = json.loads(path.read_text("utf-8"))
        config = whole.get("text_config", whole)
        generation_path = path.with_name("generation_config.json")
        generation = (
            json.loads(generation_path.read_text("utf-8")) if generation_path.is_file() else {}
        )
    except (OSError, ValueError, AttributeError):
        return {}
    ends = generation.get("eos_token_id", config.get("eos_token_id"))
    facts = {
        "vocab_size": config.get("vocab_size"),
        "context": config.get("max_position_embeddings"),
        "begin_id": config.get("bos_token_id"),
        "dtype": config.get("dtype", config.get("torch_dtype")),
        "end_ids": ends if isinstance(ends, list) else [ends] if ends is not None else None,
    }
    return {name: value for name, value in facts.items() if value is not None}


def main() -> None:
    """Run the request, and exit without waiting for pending HTTP requests after a failure."""
    code = 0
    try:
        contract.serve(load)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
