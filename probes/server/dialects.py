"""How servers are asked for samples and scores: vLLM, SGLang, and OpenAI's completions alone.

Each takes token ids and gives token ids with log-probabilities, or says why it cannot. Whatever
a server answers is looked at before it is used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from contract import RefusalError, Sampling

from server.client import JsonClient, StatusError

_FLOOR = -9999.0
"""What servers of OpenAI's kind write for a probability of zero."""
_LARGEST_ID = 2**31 - 1
_NOT_KNOWN = frozenset({400, 404, 405, 422, 501})
"""Statuses of a server that has not understood what it was asked."""
_SCORING = {"echo": True, "logprobs": 1, "max_tokens": 0}
_VLLM_SETTINGS = {
    "dtype": ("model_config", "dtype"),
    "quantization": ("model_config", "quantization"),
    "logprobs_mode": ("model_config", "logprobs_mode"),
    "tp_size": ("parallel_config", "tensor_parallel_size"),
    "kv_cache_dtype": ("cache_config", "cache_dtype"),
    "enable_prefix_caching": ("cache_config", "enable_prefix_caching"),
}
"""What vLLM tells of itself with VLLM_SERVER_DEV_MODE=1, and where."""
_SGLANG_SETTINGS = (
    "dtype",
    "tp_size",
    "attention_backend",
    "kv_cache_dtype",
    "quantization",
    "enable_deterministic_inference",
)
_NEUTRAL = {"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0}
"""Of SGLang, where nothing is to be changed."""


@dataclass(frozen=True)
class Drawn:
    """A response as a server gives it."""

    ids: list[int]
    logprobs: list[float]
    ended: bool
    cached: int = 0


@dataclass(frozen=True)
class Scored:
    """What a server says of given tokens."""

    logprobs: list[float]
    ranks: list[int] | None = None
    """How many tokens are likelier."""


class Dialect(Protocol):
    """One way to speak with a server."""

    name: str

    def facts(self) -> dict[str, Any]:
        """What the server says of itself: `version`, `context`, `path` of the model, `settings`."""

    def draw(self, prompt: Sequence[int], sampling: Sampling, seed: int) -> Drawn:
        """One response."""

    def score(self, prompt: Sequence[int], response: Sequence[int]) -> Scored:
        """Log-probabilities of a response behind its prompt, at temperature 1."""


def refuse(client: JsonClient, what: str, remedy: str = "") -> RefusalError:
    """The error of a server that does not do what is needed."""
    return RefusalError(f"{client.url} {what}", remedy)


class Completions:
    """`/v1/completions` as OpenAI defined it, with token ids as vLLM returns them.

    Args:
        client: speaks with the server.
        model: the name under which it serves.
        card: what `/v1/models` says of it.
    """

    name = "completions"
    needs = (
        "the probe needs a server that takes token ids for a prompt and tells those it draws "
        "(return_token_ids), as vLLM and SGLang do"
    )
    """What to tell of a server that does not understand a request."""

    def __init__(self, client: JsonClient, model: str, card: Mapping[str, Any]) -> None:
        self._client, self._model, self._card = client, model, card

    def facts(self) -> dict[str, Any]:
        """What the list of models tells."""
        context = self._card.get("max_model_len") or self._card.get("context_length")
        return {
            "version": "",
            "context": context if isinstance(context, int) else 0,
            "path": str(self._card.get("root") or ""),
            "settings": {},
        }

    def draw(self, prompt: Sequence[int], sampling: Sampling, seed: int) -> Drawn:
        """One response."""
        answer = self._complete(self._drawing(prompt, sampling, seed))
        choice = self._choice(answer)
        ids = self._ids(choice)
        return Drawn(
            ids,
            self._logprobs(choice, len(ids)),
            ends(self._client, choice.get("finish_reason")),
            _cached(answer),
        )

    def score(self, prompt: Sequence[int], response: Sequence[int]) -> Scored:
        """By having the prompt echoed; with one token more where none is not allowed."""
        body = self._asked([*prompt, *response]) | _SCORING
        try:
            choice = self._choice(self._complete(body))
        except RefusalError:
            choice = self._choice(self._complete(body | {"max_tokens": 1}))
        listed = self._told(choice).get("token_logprobs")
        whole = len(prompt) + len(response)
        if not isinstance(listed, list) or len(listed) not in (whole, whole + 1):
            raise refuse(
                self._client,
                f"gives {len(listed or ())} log-probabilities of {whole} tokens that were to be "
                "echoed",
                "a server that scores needs prompt_logprobs (vLLM), /generate (SGLang) or "
                "echo with logprobs",
            )
        return Scored([self._number(each) for each in listed[len(prompt) : whole]])

    def _asked(self, ids: Sequence[int]) -> dict[str, Any]:
        return {"model": self._model, "prompt": list(ids), "temperature": 1.0}

    def _drawing(self, prompt: Sequence[int], sampling: Sampling, seed: int) -> dict[str, Any]:
        """All is said: what is left open vLLM takes from the model's generation_config."""
        return self._asked(prompt) | {
            "n": 1,
            "seed": seed,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "logprobs": 1,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            # Beyond OpenAI's own, as vLLM and SGLang have it.
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "top_k": sampling.top_k or -1,
            "min_p": sampling.min_p,
            "repetition_penalty": 1.0,
            "ignore_eos": sampling.ignore_end,
            "stop_token_ids": list(sampling.stop_ids),
        }

    def _complete(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            answer = self._client.ask("/v1/completions", body)
        except StatusError as error:
            remedy = self.needs if error.status in _NOT_KNOWN else "look into its log"
            raise refuse(self._client, f"refuses a completion: {error}", remedy) from error
        if not isinstance(answer, dict):
            raise refuse(self._client, "does not answer as a server of completions does")
        return answer

    def _choice(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        choices = answer.get("choices")
        if not (isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], dict)):
            what = "does not answer with one choice where one was asked for"
            raise refuse(self._client, what, self.needs)
        return choices[0]

    def _ids(self, choice: Mapping[str, Any]) -> list[int]:
        """The tokens, given as such or written as `token_id:17`."""
        told = self._told(choice)
        if "content" in told:
            raise refuse(
                self._client,
                "answers as llama.cpp's server does, which scores no prompts",
                "probe the file that it serves: llama_cpp:FILE.gguf",
            )
        ids = choice.get("token_ids")
        if ids is None:
            words = told.get("tokens")
            ids = [_id_in(word) for word in words] if isinstance(words, list) else None
        return checked_ids(self._client, ids)

    def _told(self, choice: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a choice says of log-probabilities; empty if nothing."""
        told = choice.get("logprobs")
        return told if isinstance(told, dict) else {}

    def _logprobs(self, choice: Mapping[str, Any], tokens: int) -> list[float]:
        listed = self._told(choice).get("token_logprobs")
        if not isinstance(listed, list):
            raise refuse(
                self._client,
                "gives no log-probabilities",
                "start it so that it returns them: vLLM and SGLang do",
            )
        if len(listed) != tokens:
            raise refuse(self._client, f"gives {len(listed)} log-probabilities of {tokens} tokens")
        return [self._number(each) for each in listed]

    def _number(self, value: Any) -> float:
        return checked_number(self._client, value)


class Vllm(Completions):
    """vLLM's server, which gives log-probabilities of prompts."""

    name = "vllm"
    needs = "look into its log"

    def facts(self) -> dict[str, Any]:
        """As of the list of models, vLLM's version, and in its development mode its settings."""
        version = self._client.find("/version")
        told = version.get("version", "") if isinstance(version, dict) else ""
        found = self._client.find("/server_info?config_format=json")
        config = found.get("vllm_config") if isinstance(found, dict) else None
        settings = {
            name: str(part[key]).removeprefix("torch.")
            for name, (section, key) in _VLLM_SETTINGS.items()
            if isinstance(part := (config or {}).get(section), dict) and part.get(key) is not None
        }
        return super().facts() | {"version": str(told)[:60], "settings": settings}

    def score(self, prompt: Sequence[int], response: Sequence[int]) -> Scored:
        """By `prompt_logprobs`, which are at temperature 1 whatever is asked."""
        ids = [*prompt, *response]
        body = self._asked(ids) | {"max_tokens": 1, "prompt_logprobs": 0}
        entries = self._choice(self._complete(body)).get("prompt_logprobs")
        if not isinstance(entries, list) or len(entries) != len(ids):
            raise refuse(
                self._client,
                f"gives log-probabilities of {len(entries or ())} of {len(ids)} prompt tokens",
                "start vLLM without --max-logprobs 0",
            )
        own = [self._entry(entries[place], ids[place]) for place in range(len(prompt), len(ids))]
        ranks = [rank - 1 for entry in own if isinstance(rank := entry.get("rank"), int)]
        return Scored(
            [self._number(entry.get("logprob")) for entry in own],
            ranks if len(ranks) == len(own) else None,
        )

    def _drawing(self, prompt: Sequence[int], sampling: Sampling, seed: int) -> dict[str, Any]:
        """With no token's log-probability but that of the one drawn."""
        return super()._drawing(prompt, sampling, seed) | {"logprobs": 0}

    def _entry(self, entry: Any, token: int) -> Mapping[str, Any]:
        found = entry.get(str(token)) if isinstance(entry, dict) else None
        if not isinstance(found, dict):
            raise refuse(self._client, f"says nothing of the prompt token {token}")
        return found


class Sglang:
    """SGLang's own `/generate`.

    Args:
        client: speaks with the server.
        info: what `/model_info` says.
        card: what `/v1/models` says of the model.
    """

    name = "sglang"

    def __init__(
        self, client: JsonClient, info: Mapping[str, Any], card: Mapping[str, Any]
    ) -> None:
        self._client, self._info, self._card = client, info, card

    def facts(self) -> dict[str, Any]:
        """What its endpoints of information tell."""
        server = self._server
        told = (self._card.get("max_model_len"), server.get("max_req_input_len"))
        return {
            "version": str(server.get("version") or "")[:60],
            # What it takes as a prompt is a little less, and it is given whole sequences to score.
            "context": min((each for each in told if isinstance(each, int)), default=0),
            "path": str(self._info.get("model_path") or ""),
            "settings": {
                name: server[name] for name in _SGLANG_SETTINGS if server.get(name) is not None
            },
        }

    def draw(self, prompt: Sequence[int], sampling: Sampling, seed: int) -> Drawn:
        """One response. All is said: what is left open it may take from its own settings."""
        asked = _NEUTRAL | {
            "max_new_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "min_p": sampling.min_p,
            "ignore_eos": sampling.ignore_end,
            "stop_token_ids": list(sampling.stop_ids),
        }
        # Elsewhere it has no use for seeds; here all that were drawn without would be one.
        if self._server.get("enable_deterministic_inference"):
            asked["sampling_seed"] = seed
        meta = self._generate(prompt, asked)
        pairs = self._pairs(meta, "output_token_logprobs")
        reason, cached = meta.get("finish_reason"), meta.get("cached_tokens")
        return Drawn(
            checked_ids(self._client, [token for _, token in pairs]),
            [self._number(logprob) for logprob, _ in pairs],
            ends(self._client, reason.get("type") if isinstance(reason, dict) else reason),
            cached if isinstance(cached, int) else 0,
        )

    def score(self, prompt: Sequence[int], response: Sequence[int]) -> Scored:
        """By log-probabilities of the input from the prompt's last token on."""
        meta = self._generate(
            [*prompt, *response],
            _NEUTRAL | {"max_new_tokens": 0, "temperature": 1.0},
            logprob_start_len=len(prompt) - 1,
        )
        pairs = self._pairs(meta, "input_token_logprobs")[-len(response) :]
        # It writes 0 for the last id of the vocabulary and for those beyond.
        if len(pairs) != len(response) or any(
            told not in (given, 0) for (_, told), given in zip(pairs, response, strict=True)
        ):
            raise refuse(
                self._client,
                f"scores {len(pairs)} other tokens than the {len(response)} it was given",
                "report it with the server's version",
            )
        return Scored([self._number(logprob) for logprob, _ in pairs])

    @cached_property
    def _server(self) -> Mapping[str, Any]:
        told = self._client.find("/server_info", "/get_server_info")
        return told if isinstance(told, dict) else {}

    def _number(self, logprob: Any) -> float:
        """A log-probability; it writes null for what is no number."""
        return math.nan if logprob is None else checked_number(self._client, logprob)

    def _generate(
        self, ids: Sequence[int], sampling: Mapping[str, Any], **more: Any
    ) -> Mapping[str, Any]:
        body = {"input_ids": list(ids), "sampling_params": sampling, "return_logprob": True, **more}
        try:
            answer = self._client.ask("/generate", body)
        except StatusError as error:
            raise refuse(
                self._client, f"refuses /generate: {error}", "look into its log"
            ) from error
        meta = answer.get("meta_info") if isinstance(answer, dict) else None
        if not isinstance(meta, dict):
            raise refuse(self._client, "does not answer /generate as SGLang does")
        return meta

    def _pairs(self, meta: Mapping[str, Any], key: str) -> list[tuple[Any, Any]]:
        listed = meta.get(key)
        if not isinstance(listed, list) or not all(
            isinstance(each, list) and len(each) >= 2 for each in listed
        ):
            raise refuse(self._client, f"gives no log-probabilities: no {key}")
        return [(each[0], each[1]) for each in listed]


def ends(client: JsonClient, reason: Any) -> bool:
    """Whether a response was ended by a token of its own, and not by the limit.

    Raises:
        RefusalError: if it was ended by neither.
    """
    if reason in ("abort", "error"):
        raise refuse(
            client,
            f"has broken a response off: {reason}",
            "look into its log; was it paused, or given other weights, meanwhile?",
        )
    return bool(reason == "stop")


def checked_ids(client: JsonClient, ids: Any) -> list[int]:
    """Token ids, at least one.

    Raises:
        RefusalError: if they are none.
    """
    if not isinstance(ids, list) or not all(
        type(each) is int and 0 <= each <= _LARGEST_ID for each in ids
    ):
        raise refuse(
            client,
            "does not say which tokens it has sampled",
            "use vLLM 0.10.2 or newer, or SGLang: ids cannot be had from texts",
        )
    if not ids:
        raise refuse(client, "answers with a response of no tokens", "look into its log")
    return ids


def checked_number(client: JsonClient, value: Any) -> float:
    """A log-probability; NaN and infinities are passed on, to be counted.

    Raises:
        RefusalError: if it is no number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse(client, f"gives {str(value)[:40]!r} as a log-probability")
    if value <= _FLOOR:
        return -math.inf
    return math.inf if value >= -_FLOOR else float(value)


def _id_in(word: Any) -> int | None:
    number = str(word).removeprefix("token_id:")
    return int(number) if number.isdigit() and len(number) < 10 else None


def _cached(answer: Mapping[str, Any]) -> int:
    """Prompt tokens that were cached, where the server was started to say so."""
    usage = answer.get("usage")
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return cached if isinstance(cached, int) else 0
