"""Requests for samples and scores to vLLM, SGLang, and other OpenAI-compatible servers.

Every dialect sends token ids and receives token ids with log-probabilities, or refuses with a
reason. Answers are validated before they are used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from contract import PROCESSORS, RefusalError, Sampling

from server.client import JsonClient, StatusError

_FLOOR = -9999.0
"""The log-probability that OpenAI-compatible servers return for a probability of zero."""
_MAX_ID = 2**31 - 1
_UNSUPPORTED = frozenset({400, 404, 405, 422, 501})
"""Statuses of a server that does not support a request."""
_SCORING = {"echo": True, "logprobs": 1, "max_tokens": 0}
_VLLM_SETTINGS = {
    "dtype": ("model_config", "dtype"),
    "quantization": ("model_config", "quantization"),
    "logprobs_mode": ("model_config", "logprobs_mode"),
    "tp_size": ("parallel_config", "tensor_parallel_size"),
    "kv_cache_dtype": ("cache_config", "cache_dtype"),
    "enable_prefix_caching": ("cache_config", "enable_prefix_caching"),
}
"""Settings that vLLM reports with VLLM_SERVER_DEV_MODE=1, and their places."""
_SGLANG_SETTINGS = (
    "dtype",
    "tp_size",
    "attention_backend",
    "kv_cache_dtype",
    "quantization",
    "enable_deterministic_inference",
)
_NEUTRAL = {"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0}
"""SGLang's penalties, disabled."""


@dataclass(frozen=True)
class SampledTokens:
    """A sampled response of a server."""

    ids: list[int]
    logprobs: list[float]
    ended: bool
    cached: int = 0


@dataclass(frozen=True)
class Scored:
    """A server's values for given tokens."""

    logprobs: list[float]
    ranks: list[int] | None = None
    """Number of more likely tokens."""


class Dialect(Protocol):
    """The requests of one kind of server."""

    name: str
    processors: tuple[str, ...]
    """Names of the contract's `PROCESSORS` that a server of this kind applies."""

    def facts(self) -> dict[str, Any]:
        """The server's `version`, `context`, `path` of the model, and `settings`."""

    def sample(self, prompt: Sequence[int], sampling: Sampling, seed: int) -> SampledTokens:
        """Sample one response."""

    def score(self, prompt: Sequence[int], response: Sequence[int]) -> Scored:
        """Log-probabilities of a response after its prompt, at temperature 1."""


def refuse(client: JsonClient, what: str, remedy: str = "") -> RefusalError:
    """The error of a server that does not support what the probe needs."""
    return RefusalError(f"{client.url} {what}", remedy)


class Completions:
    """`/v1/completions` as defined by OpenAI, with token ids as returned by vLLM.

    Args:
        client: the HTTP client.
        model: the served name of the model.
        card: the model's entry in `/v1/models`.
    """

    name = "completions"
    processors: tuple[str, ...] = ("presence_penalty", "frequency_penalty", "logit_bias")
    """OpenAI's own; servers ignore extensions that they do not know."""
    needs = (
        "use a server that accepts token ids as a prompt and returns those it samples "
        "(return_token_ids), such as vLLM or SGLang"
    )
    """Remedy for a server that does not support a request."""

    def __init__(self, client: JsonClient, model: str, card: Mapping[str, Any]) -> None:
        self._client, self._model, self._card = client, model, card

    def facts(self) -> dict[str, Any]:
        """Facts from the list of models."""
        context = self._card.get("max_model_len") or self._card.get("context_length")
        return {
            "version": "",
            "context": context if isinstance(context, int) else 0,
            "path": str(self._card.get("root") or ""),
            "settings": {},
        }

    def sample(self, prompt: Sequence[int], sampling: Sampling, seed: int) -> SampledTokens:
        """Sample one response."""
        answer = self._complete(self._sampling_body(prompt, sampling, seed))
        choice = self._choice(answer)
        ids = self._ids(choice)
        return SampledTokens(
            ids,
            self._logprobs(choice, len(ids)),
            ends(self._client, choice.get("finish_reason")),
            _cached(answer),
        )

    def score(self, prompt: Sequence[int], response: Sequence[int]) -> Scored:
        """Score by echoing the prompt; sample one token if zero is not allowed."""
        body = self._body([*prompt, *response]) | _SCORING
        try:
            choice = self._choice(self._complete(body))
        except RefusalError:
            choice = self._choice(self._complete(body | {"max_tokens": 1}))
        listed = self._logprobs_of(choice).get("token_logprobs")
        whole = len(prompt) + len(response)
        if not isinstance(listed, list) or len(listed) not in (whole, whole + 1):
            raise refuse(
                self._client,
                f"returned {len(listed or ())} log-probabilities for {whole} echoed tokens",
                "scoring needs a server with prompt_logprobs (vLLM), /generate (SGLang) or echo "
                "with logprobs",
            )
        return Scored([self._number(value) for value in listed[len(prompt) : whole]])

    def _body(self, ids: Sequence[int]) -> dict[str, Any]:
        return {"model": self._model, "prompt": list(ids), "temperature": 1.0}

    def _sampling_body(
        self, prompt: Sequence[int], sampling: Sampling, seed: int
    ) -> dict[str, Any]:
        """Every setting is explicit: vLLM fills gaps from the model's generation_config."""
        return self._body(prompt) | {
            "n": 1,
            "seed": seed,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "logprobs": 1,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            **_logit_bias(sampling),
            # Extensions of vLLM and SGLang.
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "top_k": sampling.top_k or -1,
            "min_p": sampling.min_p,
            "repetition_penalty": sampling.repetition_penalty,
            "min_tokens": min(sampling.min_tokens, sampling.max_tokens),
            "ignore_eos": sampling.ignore_end,
            "stop_token_ids": list(sampling.stop_ids),
        }

    def _complete(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            answer = self._client.ask("/v1/completions", body)
        except StatusError as error:
            remedy = self.needs if error.status in _UNSUPPORTED else "read its log"
            raise refuse(self._client, f"refuses a completion: {error}", remedy) from error
        if not isinstance(answer, dict):
            raise refuse(self._client, "does not answer like a completions server")
        return answer

    def _choice(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        choices = answer.get("choices")
        if not (isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], dict)):
            what = "did not return one choice for one requested choice"
            raise refuse(self._client, what, self.needs)
        return choices[0]

    def _ids(self, choice: Mapping[str, Any]) -> list[int]:
        """Token ids, given as numbers or as `token_id:17`."""
        logprobs = self._logprobs_of(choice)
        if "content" in logprobs:
            raise refuse(
                self._client,
                "answers like llama.cpp's server, which cannot score prompts",
                "probe its file instead: llama_cpp:FILE.gguf",
            )
        ids = choice.get("token_ids")
        if ids is None:
            words = logprobs.get("tokens")
            ids = [_id_in(word) for word in words] if isinstance(words, list) else None
        return checked_ids(self._client, ids)

    def _logprobs_of(self, choice: Mapping[str, Any]) -> Mapping[str, Any]:
        """The log-probabilities of a choice; empty if there are none."""
        logprobs = choice.get("logprobs")
        return logprobs if isinstance(logprobs, dict) else {}

    def _logprobs(self, choice: Mapping[str, Any], tokens: int) -> list[float]:
        listed = self._logprobs_of(choice).get("token_logprobs")
        if not isinstance(listed, list):
            raise refuse(
                self._client,
                "returned no log-probabilities",
                "start it so that it returns them, as vLLM and SGLang do",
            )
        if len(listed) != tokens:
            raise refuse(
                self._client, f"returned {len(listed)} log-probabilities for {tokens} tokens"
            )
        return [self._number(value) for value in listed]

    def _number(self, value: Any) -> float:
        return checked_number(self._client, value)


class Vllm(Completions):
    """vLLM's server, which returns log-probabilities of prompts."""

    name = "vllm"
    processors = tuple(PROCESSORS)
    needs = "read its log"

    def facts(self) -> dict[str, Any]:
        """Facts from the list of models, vLLM's version, and its settings in development mode."""
        version = self._client.find("/version")
        number = version.get("version", "") if isinstance(version, dict) else ""
        info = self._client.find("/server_info?config_format=json")
        config = info.get("vllm_config") if isinstance(info, dict) else None
        settings = {
            name: str(part[key]).removeprefix("torch.")
            for name, (section, key) in _VLLM_SETTINGS.items()
            if isinstance(part := (config or {}).get(section), dict) and part.get(key) is not None
        }
        return super().facts() | {"version": str(number)[:60], "settings": settings}

    def score(self, prompt: Sequence[int], response: Sequence[int]) -> Scored:
        """Score by `prompt_logprobs`, which always refer to temperature 1."""
        ids = [*prompt, *response]
        body = self._body(ids) | {"max_tokens": 1, "prompt_logprobs": 0}
        entries = self._choice(self._complete(body)).get("prompt_logprobs")
        if not isinstance(entries, list) or len(entries) != len(ids):
            raise refuse(
                self._client,
                f"returned log-probabilities of {len(entries or ())} of {len(ids)} prompt tokens",
                "start vLLM without --max-logprobs 0",
            )
        own = [self._entry(entries[place], ids[place]) for place in range(len(prompt), len(ids))]
        ranks = [rank - 1 for entry in own if isinstance(rank := entry.get("rank"), int)]
        return Scored(
            [self._number(entry.get("logprob")) for entry in own],
            ranks if len(ranks) == len(own) else None,
        )

    def _sampling_body(
        self, prompt: Sequence[int], sampling: Sampling, seed: int
    ) -> dict[str, Any]:
        """Request only the log-probability of the sampled token."""
        return super()._sampling_body(prompt, sampling, seed) | {"logprobs": 0}

    def _entry(self, entry: Any, token: int) -> Mapping[str, Any]:
        value = entry.get(str(token)) if isinstance(entry, dict) else None
        if not isinstance(value, dict):
            raise refuse(self._client, f"returned no log-probability of the prompt token {token}")
        return value


class Sglang:
    """SGLang's own `/generate`.

    Args:
        client: the HTTP client.
        info: the answer of `/model_info`.
        card: the model's entry in `/v1/models`.
    """

    name = "sglang"
    processors = tuple(PROCESSORS)

    def __init__(
        self, client: JsonClient, info: Mapping[str, Any], card: Mapping[str, Any]
    ) -> None:
        self._client, self._info, self._card = client, info, card

    def facts(self) -> dict[str, Any]:
        """Facts from its information endpoints."""
        server = self._server
        limits = (self._card.get("max_model_len"), server.get("max_req_input_len"))
        return {
            "version": str(server.get("version") or "")[:60],
            # Scoring sends whole sequences as input, whose limit is slightly below the context.
            "context": min((limit for limit in limits if isinstance(limit, int)), default=0),
            "path": str(self._info.get("model_path") or ""),
            "settings": {
                name: server[name] for name in _SGLANG_SETTINGS if server.get(name) is not None
            },
        }

    def sample(self, prompt: Sequence[int], sampling: Sampling, seed: int) -> SampledTokens:
        """Sample one response. Every setting is explicit: SGLang has its own defaults."""
        params = {
            "max_new_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "min_p": sampling.min_p,
            "repetition_penalty": sampling.repetition_penalty,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "min_new_tokens": min(sampling.min_tokens, sampling.max_tokens),
            "ignore_eos": sampling.ignore_end,
            "stop_token_ids": list(sampling.stop_ids),
            **_logit_bias(sampling),
        }
        # Only this mode uses seeds, and without one all responses would be equal.
        if self._server.get("enable_deterministic_inference"):
            params["sampling_seed"] = seed
        meta = self._generate(prompt, params)
        pairs = self._pairs(meta, "output_token_logprobs")
        reason, cached = meta.get("finish_reason"), meta.get("cached_tokens")
        return SampledTokens(
            checked_ids(self._client, [token for _, token in pairs]),
            [self._number(logprob) for logprob, _ in pairs],
            ends(self._client, reason.get("type") if isinstance(reason, dict) else reason),
            cached if isinstance(cached, int) else 0,
        )

    def score(self, prompt: Sequence[int], response: Sequence[int]) -> Scored:
        """Score by the log-probabilities of the input from the prompt's last token on."""
        meta = self._generate(
            [*prompt, *response],
            _NEUTRAL | {"max_new_tokens": 0, "temperature": 1.0},
            logprob_start_len=len(prompt) - 1,
        )
        pairs = self._pairs(meta, "input_token_logprobs")[-len(response) :]
        # SGLang returns id 0 for the last id of the vocabulary and ids beyond it.
        if len(pairs) != len(response) or any(
            token not in (given, 0) for (_, token), given in zip(pairs, response, strict=True)
        ):
            raise refuse(
                self._client,
                f"scored {len(pairs)} other tokens than the {len(response)} given",
                "report this with the server's version",
            )
        return Scored([self._number(logprob) for logprob, _ in pairs])

    @cached_property
    def _server(self) -> Mapping[str, Any]:
        info = self._client.find("/server_info", "/get_server_info")
        return info if isinstance(info, dict) else {}

    def _number(self, logprob: Any) -> float:
        """A log-probability; SGLang returns null for NaN."""
        return math.nan if logprob is None else checked_number(self._client, logprob)

    def _generate(
        self, ids: Sequence[int], sampling: Mapping[str, Any], **more: Any
    ) -> Mapping[str, Any]:
        body = {"input_ids": list(ids), "sampling_params": sampling, "return_logprob": True, **more}
        if self._card.get("parent"):  # an adapter, which this endpoint calls by its name
            body["lora_path"] = self._card["id"]
        try:
            answer = self._client.ask("/generate", body)
        except StatusError as error:
            raise refuse(self._client, f"refuses /generate: {error}", "read its log") from error
        meta = answer.get("meta_info") if isinstance(answer, dict) else None
        if not isinstance(meta, dict):
            raise refuse(self._client, "does not answer /generate like SGLang")
        return meta

    def _pairs(self, meta: Mapping[str, Any], key: str) -> list[tuple[Any, Any]]:
        listed = meta.get(key)
        if not isinstance(listed, list) or not all(
            isinstance(pair, list) and len(pair) >= 2 for pair in listed
        ):
            raise refuse(self._client, f"returned no log-probabilities: no {key}")
        return [(pair[0], pair[1]) for pair in listed]


def _logit_bias(sampling: Sampling) -> dict[str, Any]:
    """The field of a request that biases tokens; none without a bias."""
    biases = {str(token): bias for token, bias in sampling.logit_bias}
    return {"logit_bias": biases} if biases else {}


def ends(client: JsonClient, reason: Any) -> bool:
    """Whether a response ended with an end token and not at the limit.

    Raises:
        RefusalError: if the server aborted it.
    """
    if reason in ("abort", "error"):
        raise refuse(
            client,
            f"aborted a response: {reason}",
            "read its log; it may have been paused, or received new weights",
        )
    return bool(reason == "stop")


def checked_ids(client: JsonClient, ids: Any) -> list[int]:
    """Validated token ids, at least one.

    Raises:
        RefusalError: if they are not token ids.
    """
    if not isinstance(ids, list) or not all(
        type(token) is int and 0 <= token <= _MAX_ID for token in ids
    ):
        raise refuse(
            client,
            "does not return the ids of sampled tokens",
            "use vLLM 0.10.2 or newer, or SGLang: text cannot be converted back to ids",
        )
    if not ids:
        raise refuse(client, "returned a response without tokens", "read its log")
    return ids


def checked_number(client: JsonClient, value: Any) -> float:
    """A validated log-probability; NaN and infinities are kept, to be counted.

    Raises:
        RefusalError: if it is not a number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse(client, f"returned {str(value)[:40]!r} as a log-probability")
    if value <= _FLOOR:
        return -math.inf
    return math.inf if value >= -_FLOOR else float(value)


def _id_in(word: Any) -> int | None:
    number = str(word).removeprefix("token_id:")
    return int(number) if number.isdigit() and len(number) < 10 else None


def _cached(answer: Mapping[str, Any]) -> int:
    """Cached prompt tokens, if the server reports them."""
    usage = answer.get("usage")
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return cached if isinstance(cached, int) else 0
