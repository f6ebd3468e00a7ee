"""A server by its address: `openai_server:http://127.0.0.1:8000?model=NAME`.

`vllm serve` (log-probabilities of prompts score), SGLang (its own `/generate`), and what else
answers `/v1/completions` with token ids and echoes prompts with log-probabilities; which of them it
is, it is asked. Run with vLLM 0.32.0 and, on a CPU, SGLang 0.5.23.

A response ends where the server can still score it: a token or two before its context is full.

Options:

- `model`: the name under which it serves; needed if it serves several
- `tokenizer`: a directory or hub name, read by transformers, where the server has no `/tokenize`
- `api_key_env`: the environment variable that holds the key
- `wait`: seconds to wait for it to start; `request_timeout`: seconds of silence; `connections`: how
  many requests at once
- `server`: `vllm`, `sglang` or `completions`, not to be asked; `logprobs`: `raw` or `processed`,
  not to be measured
- `dtype`, `tensor_parallel_size`: what it was started with, to stand in the report; not all tell

A server scores at temperature 1 over the whole vocabulary; anything else is refused.
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
from server.dialects import Completions, Dialect, Drawn, Sglang, Vllm, refuse

_DEFAULTS: dict[str, Any] = {
    "model": "", "tokenizer": "", "api_key_env": "", "wait": 30.0, "request_timeout": 600.0,
    "connections": 32, "server": "", "logprobs": "", "dtype": "", "tensor_parallel_size": 0,
    "trust_remote_code": False,
}  # fmt: skip
_TRIAL = Sampling(samples=1, max_tokens=8, temperature=2.0, ignore_end=True)
"""At this temperature raw and processed log-probabilities are far apart."""
_TRIAL_IDS = range(5, 13)
_APART = 0.05
"""Of the middle one of the trial's tokens. Rounding in 16 bits parts single ones by more: SGLang's
raw log-probabilities by up to 0.03 for a tiny model, 0.006 in the middle; processed ones 0.1 to 0.3
in the middle."""

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class OpenAiServer:
    """A server that runs already.

    Args:
        url: its address.
        options: see the module.

    Raises:
        RefusalError: if it does not answer, serves another model, or an option is unknown.
    """

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._options = _known(options)
        key = _key(str(self._options["api_key_env"]))
        self._client = JsonClient(url, key, float(self._options["request_timeout"]))
        self._client.wait("/v1/models", float(self._options["wait"]))
        self._card = _card(self._client, str(self._options["model"]))
        self._model = str(self._card["id"])
        self._dialect = self._speak()
        self._tokenizer: Any = None

    def describe(self) -> dict[str, Any]:
        """What the server tells, what its model's directory tells if it can be seen from here."""
        facts, seen = self._facts, self._seen
        degree = self._options["tensor_parallel_size"] or facts["settings"].get("tp_size")
        dtype = self._options["dtype"] or facts["settings"].get("dtype")
        if dtype == "auto":  # what the checkpoint says, then
            dtype = seen.get("dtype")
        return {
            "name": f"openai_server ({self._dialect.name})",
            "version": facts["version"],
            "model": self._model,
            "dtype": str(dtype or "not told"),
            "device": "not told",
            "layout": {"tensor_parallel": degree if isinstance(degree, int) else 1},
            "vocab_size": int(seen.get("vocab_size", 0)),
            "end_ids": list(seen.get("end_ids", ())),
            "begin_id": seen.get("begin_id"),
            "context": self._context,
            "logprobs": self._options["logprobs"] or self._measured_mode(),
            "settings": facts["settings"] | {"url": self._client.url},
        }

    def tokenise(self, prompts: Sequence[Mapping[str, Any]]) -> list[list[int]]:
        """The server's ids, or those of the tokenizer given."""
        if self._options["tokenizer"]:
            return [self._own_ids(prompt) for prompt in prompts]
        return self._each(prompts, self._served_ids)

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        want: Sequence[str],  # noqa: ARG002
    ) -> list[Response]:
        """One request for each response; servers tell nothing else."""
        requests = [
            (prompt, sample) for prompt in range(len(prompts)) for sample in range(sampling.samples)
        ]

        def draw(request: tuple[int, int]) -> Response:
            prompt, sample = request
            seed = response_seed(sampling, prompt, sample)
            fitting = self._fitting(sampling, len(prompts[prompt]))
            drawn = self._dialect.draw(prompts[prompt], fitting, seed)
            self._refuse_unasked(drawn, fitting)
            return Response(
                list(prompts[prompt]),
                drawn.ids,
                drawn.logprobs,
                prompt,
                sample,
                drawn.ended,
                drawn.cached,
            )

        return self._each(requests, draw)

    def score(
        self, responses: Sequence[Response], processing: Processing, want: Sequence[str]
    ) -> list[Response]:
        """One request for each response; ranks come with them from vLLM."""
        if processing != Processing():
            raise RefusalError(
                "a server scores at temperature 1 over the whole vocabulary",
                "score with vllm: or transformers: where another temperature is needed",
            )

        def score(response: Response) -> Response:
            if not len(response.prompt_ids):
                raise RefusalError("a response without a prompt cannot be scored by a server")
            scored = self._dialect.score(
                list(map(int, response.prompt_ids)), list(map(int, response.response_ids))
            )
            extras = {}
            if "ranks" in want and scored.ranks is not None:
                extras["rank"] = np.array(scored.ranks, np.int32)
            return replace(response, logprobs=scored.logprobs, extras=extras)

        return self._each(responses, score)

    def close(self) -> None:
        """Nothing is held; the server goes on running."""

    def _speak(self) -> Dialect:
        """In the server's way, asked for or found out."""
        named = str(self._options["server"])
        if named not in ("", "vllm", "sglang", "completions"):
            raise RefusalError(
                f"server={named[:40]} is none that is known", "use vllm, sglang or completions"
            )
        info = (
            self._client.find("/model_info", "/get_model_info") if named in ("", "sglang") else {}
        )
        if named == "sglang" or (isinstance(info, dict) and "model_path" in info):
            return Sglang(self._client, info if isinstance(info, dict) else {}, self._card)
        # TensorRT-LLM's server has a version too.
        is_vllm = not named and self._card.get("owned_by") == "vllm"
        kind = Vllm if named == "vllm" or is_vllm else Completions
        return kind(self._client, self._model, self._card)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return self._dialect.facts()

    @cached_property
    def _seen(self) -> dict[str, Any]:
        """What the model's directory says, if it can be seen from here."""
        return _configuration(str(self._options["tokenizer"]), self._facts["path"])

    @property
    def _context(self) -> int:
        return self._facts["context"] or int(self._seen.get("context", 0))

    def _fitting(self, sampling: Sampling, prompt: int) -> Sampling:
        """As many tokens as fit behind a prompt: servers refuse more where engines draw fewer.

        One is left free, which vLLM draws whenever it scores.
        """
        room = max(self._context - prompt - 1, 1) if self._context else sampling.max_tokens
        return replace(sampling, max_tokens=min(sampling.max_tokens, room))

    def _measured_mode(self) -> str:
        """Whether sampled log-probabilities are those of temperature 1, by a short trial."""
        ids = list(_TRIAL_IDS)
        drawn = self._dialect.draw(ids, _TRIAL, seed=1)
        try:
            raw = self._dialect.score(ids, drawn.ids).logprobs
        except RefusalError as error:
            raise RefusalError(
                f"{error.what}, so that nobody can tell which log-probabilities it samples with",
                "say it with logprobs=raw or logprobs=processed",
            ) from error
        gap = np.median(np.abs(np.subtract(drawn.logprobs, raw)))
        return "processed" if gap > _APART else "raw"

    def _served_ids(self, prompt: Mapping[str, Any]) -> list[int]:
        if "messages" in prompt:
            body = {"messages": prompt["messages"], "add_generation_prompt": True}
        else:
            body = {"prompt": prompt["text"]}
        try:
            answer = self._client.ask("/tokenize", {"model": self._model, **body})
        except StatusError as error:
            raise refuse(
                self._client,
                f"does not tokenise: {error}",
                "name its tokenizer with tokenizer=DIRECTORY",
            ) from error
        ids = answer.get("tokens") if isinstance(answer, dict) else None
        if not isinstance(ids, list) or not all(type(each) is int for each in ids):
            raise refuse(self._client, "does not answer /tokenize with token ids")
        return ids

    def _own_ids(self, prompt: Mapping[str, Any]) -> list[int]:
        if self._tokenizer is None:
            self._tokenizer = hf_tokenizer.load(
                str(self._options["tokenizer"]), bool(self._options["trust_remote_code"])
            )
        return hf_tokenizer.encoded(self._tokenizer, prompt)

    def _refuse_unasked(self, drawn: Drawn, sampling: Sampling) -> None:
        count = len(drawn.ids)
        if count > sampling.max_tokens:
            raise refuse(
                self._client, f"answers {count} tokens where {sampling.max_tokens} were asked for"
            )

    def _each(self, items: Sequence[ItemT], do: Callable[[ItemT], ResultT]) -> list[ResultT]:
        """Several at once, in order; the first that fails ends them all."""
        pool = ThreadPoolExecutor(int(self._options["connections"]))
        try:
            return list(pool.map(do, items))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def load(url: str, options: dict[str, Any]) -> OpenAiServer:
    """Reach a server."""
    return OpenAiServer(url, options)


def _known(options: Mapping[str, Any]) -> dict[str, Any]:
    merged = with_defaults(options, _DEFAULTS, "a server")
    if merged["logprobs"] not in ("", "raw", "processed"):
        raise RefusalError("logprobs= is raw or processed")
    for name in ("wait", "request_timeout", "connections"):
        if not isinstance(merged[name], int | float) or merged[name] <= 0:
            raise RefusalError(f"{name}= is a number above zero")
    return merged


def _key(variable: str) -> str:
    if variable and variable not in os.environ:
        raise RefusalError(
            f"the environment variable {variable[:60]!r} is not set", "put the server's key there"
        )
    return os.environ.get(variable, "") if variable else ""


def _card(client: JsonClient, wanted: str) -> Mapping[str, Any]:
    """What the server says of the model asked for, or of the only one."""
    try:
        answer = client.ask("/v1/models")
    except StatusError as error:
        remedy = "name the variable that holds its key: api_key_env=" if error.status == 401 else ""
        raise refuse(client, f"does not list its models: {error}", remedy) from error
    listed = answer.get("data") if isinstance(answer, dict) else None
    cards = [each for each in listed or () if isinstance(each, dict) and each.get("id")]
    own = [each for each in cards if not each.get("parent")]  # adapters have a parent
    if wanted:
        own = [each for each in cards if each["id"] == wanted]
    if len(own) == 1:
        return own[0]
    names = ", ".join(str(each["id"])[:80] for each in cards[:8]) or "no model"
    raise refuse(
        client,
        f"serves {names}" + (f", not {wanted[:80]!r}" if wanted else ""),
        "name the one that is meant with model=",
    )


def _configuration(*folders: str) -> dict[str, Any]:
    """What a model's directory says, if one of these can be seen from here."""
    for folder in folders:
        path = Path(folder) / "config.json"
        if folder and path.is_file():
            return _read_configuration(path)
    return {}


def _read_configuration(path: Path) -> dict[str, Any]:
    try:
        whole = json.loads(path.read_text("utf-8"))
        config = whole.get("text_config", whole)
        beside = path.with_name("generation_config.json")
        generation = json.loads(beside.read_text("utf-8")) if beside.is_file() else {}
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
    """Serve, and end without waiting for requests that are under way when one has failed."""
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
