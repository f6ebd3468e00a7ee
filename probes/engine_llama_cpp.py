"""Engine program: llama.cpp through llama-cpp-python, `llama_cpp:MODEL.gguf?type_k=q8_0&python=…`.

The program decodes through llama.cpp's C interface, several sequences at once, and requests logits
only where they predict response tokens. It samples from these logits itself: temperature first,
then min-p, top-k and top-p, as vLLM does. The log-probabilities are those of the distribution
sampled from. llama.cpp's own samplers, which apply the temperature last, are not used.

Options:

- `context`: longest sequence; default: the model's training context, at most 4,096
- `sequences`: sequences decoded at once; `batch_tokens`: most tokens per decoding call
- `type_k`, `type_v`: types of the cache: f32, f16, bf16, q8_0, q4_0
- `flash_attention`: true or false; default: llama.cpp's choice
- `threads`, `gpu_layers`

Tested with llama-cpp-python 0.3.36.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import contract
import numpy as np
from contract import Processing, RefusalError, Response, Sampling, response_seed, with_defaults
from numpy.typing import NDArray

_DEFAULTS: dict[str, Any] = {
    "context": 0, "sequences": 8, "batch_tokens": 512, "type_k": "f16", "type_v": "f16",
    "flash_attention": "", "threads": 0, "gpu_layers": 0,
}  # fmt: skip
_CACHE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "bf16": 30}
_DTYPES = {"all F32": "float32", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_LONGEST_CONTEXT = 4096
_ROWS = 64
"""Rows of logits processed at once."""

Floats = NDArray[np.float32]


@dataclass
class _BatchToken:
    """A token of a decoding call."""

    token: int
    position: int
    sequence: int
    wanted: bool
    """Whether the logits after it are needed."""


class LlamaCpp:
    """A GGUF file in llama.cpp.

    Args:
        model: the file.
        options: see the module.

    Raises:
        RefusalError: if an option is unknown or llama.cpp cannot load the file.
    """

    def __init__(self, model: str, options: Mapping[str, Any]) -> None:
        self._options = _known(options)
        if not Path(model).is_file():
            raise RefusalError(f"there is no file {model}", "name a GGUF file")
        import llama_cpp  # type: ignore[import-not-found]  # only in the engine's Python

        self._c: Any = llama_cpp
        self._c.llama_backend_init()
        self._path = model
        self._model = self._load(model)
        self._vocabulary = self._c.llama_model_get_vocab(self._model)
        self._words = int(self._c.llama_vocab_n_tokens(self._vocabulary))
        self._context = self._begin()
        self._batch = self._c.llama_batch_init(int(self._options["batch_tokens"]), 0, 1)

    def describe(self) -> dict[str, Any]:
        """What the engine is and how it is configured."""
        begins = self._c.llama_vocab_get_add_bos(self._vocabulary)
        return {
            "name": "llama_cpp",
            "version": self._c.__version__,
            "model": self._path,
            "dtype": self._described(),
            "device": "cpu" if not self._options["gpu_layers"] else "gpu",
            "layout": {},
            "vocab_size": self._words,
            "end_ids": self._end_ids,
            "begin_id": int(self._c.llama_vocab_bos(self._vocabulary)) if begins else None,
            "context": self._longest,
            "logprobs": "processed",
            "settings": {
                name: self._options[name]
                for name in ("type_k", "type_v", "flash_attention", "sequences", "batch_tokens")
            },
        }

    def tokenise(self, prompts: Sequence[Mapping[str, Any]]) -> list[list[int]]:
        """Token ids by the file's own tokenizer and chat template."""
        return [
            self._ids(self._in_template(prompt["messages"]), begin=False)
            if "messages" in prompt
            else self._ids(prompt["text"], begin=True)
            for prompt in prompts
        ]

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        want: Sequence[str],  # noqa: ARG002 - llama.cpp returns nothing else
    ) -> list[Response]:
        """Sample some sequences at once, each with its own random numbers."""
        self._refuse_longer(prompts, room=2)
        empty = [
            Response(list(map(int, prompts[prompt])), [], [], prompt, sample)
            for prompt in range(len(prompts))
            for sample in range(sampling.samples)
        ]
        for group in self._groups(empty):
            self._sample_group(group, sampling)
        return empty

    def score(
        self,
        responses: Sequence[Response],
        processing: Processing,
        want: Sequence[str],  # noqa: ARG002
    ) -> list[Response]:
        """Score some sequences at once, in chunks of tokens."""
        sequences = [[*each.prompt_ids, *each.response_ids] for each in responses]
        self._refuse_longer(sequences, room=0)
        if any(not len(response.prompt_ids) for response in responses):
            raise RefusalError("a response without a prompt cannot be scored")
        scored = [replace(response, logprobs=[], extras={}) for response in responses]
        for group in self._groups(scored):
            self._clear_cache()
            entries = [
                _BatchToken(int(token), position, row, wanted=position >= len(each.prompt_ids) - 1)
                for row, each in enumerate(group)
                for position, token in enumerate([*each.prompt_ids, *each.response_ids][:-1])
            ]
            for logits_NV, decoded in self._decode(entries):
                logprobs_NV = _processed(logits_NV, processing)
                for row, entry in enumerate(decoded):
                    each = group[entry.sequence]
                    token = each.response_ids[entry.position + 1 - len(each.prompt_ids)]
                    each.logprobs.append(float(logprobs_NV[row, token]))  # type: ignore[union-attr]
        return scored

    def close(self) -> None:
        """Free the model."""
        self._c.llama_batch_free(self._batch)
        self._c.llama_free(self._context)
        self._c.llama_model_free(self._model)

    def _load(self, model: str) -> Any:
        parameters = self._c.llama_model_default_params()
        parameters.n_gpu_layers = int(self._options["gpu_layers"])
        loaded = self._c.llama_model_load_from_file(model.encode(), parameters)
        if not loaded:
            raise RefusalError(
                f"llama.cpp cannot load {model}", "check that it is a GGUF file; its log says why"
            )
        return loaded

    def _begin(self) -> Any:
        trained = int(self._c.llama_model_n_ctx_train(self._model))
        self._longest = int(self._options["context"]) or min(trained, _LONGEST_CONTEXT)
        parameters = self._c.llama_context_default_params()
        sequences = int(self._options["sequences"])
        parameters.n_seq_max = sequences
        parameters.n_ctx = self._longest * sequences
        parameters.n_batch = parameters.n_ubatch = int(self._options["batch_tokens"])
        parameters.type_k = _CACHE_TYPES[self._options["type_k"]]
        parameters.type_v = _CACHE_TYPES[self._options["type_v"]]
        if self._options["flash_attention"] != "":
            parameters.flash_attn_type = int(bool(self._options["flash_attention"]))
        if threads := int(self._options["threads"]):
            parameters.n_threads = parameters.n_threads_batch = threads
        context = self._c.llama_init_from_model(self._model, parameters)
        if not context:
            raise RefusalError(
                "llama.cpp does not start with these settings",
                "read its log; a quantized type_v needs flash_attention=true",
            )
        return context

    @property
    def _end_ids(self) -> list[int]:
        is_end = self._c.llama_vocab_is_eog
        return [token for token in range(self._words) if is_end(self._vocabulary, token)]

    def _described(self) -> str:
        """The storage type of the weights: the end of `qwen2 0.6B Q4_K - Small`."""
        text = ctypes.create_string_buffer(256)
        self._c.llama_model_desc(self._model, text, 256)
        stored = text.value.decode("utf-8", "replace").split(None, 2)[-1]
        return _DTYPES.get(stored, stored)

    def _metadata(self, key: str) -> str:
        text = ctypes.create_string_buffer(1 << 16)
        size = self._c.llama_model_meta_val_str(self._model, key.encode(), text, len(text))
        return text.value.decode("utf-8", "replace") if size >= 0 else ""

    def _ids(self, text: str, *, begin: bool) -> list[int]:
        encoded = text.encode()
        room = len(encoded) + 16
        ids = (self._c.llama_token * room)()
        count = self._c.llama_tokenize(
            self._vocabulary, encoded, len(encoded), ids, room, begin, True
        )
        if count < 0:
            raise RefusalError("llama.cpp cannot tokenize a prompt")
        return list(ids[:count])

    def _in_template(self, messages: list[Any]) -> str:
        from llama_cpp.llama_chat_format import (  # type: ignore[import-not-found]
            Jinja2ChatFormatter,
        )

        template = self._metadata("tokenizer.chat_template")
        if not template:
            raise RefusalError(
                "the GGUF file has no chat template", "give prompts as text, or as ids"
            )
        import jinja2

        try:
            formatter = Jinja2ChatFormatter(
                template=template,
                bos_token=self._word("bos"),
                eos_token=self._word("eos"),
            )
            return str(formatter(messages=messages).prompt)
        except (ValueError, TypeError, KeyError, jinja2.TemplateError) as error:
            raise RefusalError(
                f"the chat template rejects a prompt: {' '.join(str(error).split())[:200]}",
                "check the roles of its messages, or give prompts as text",
            ) from error

    def _word(self, kind: str) -> str:
        """A special token as templates write it; empty if the file names none.

        llama.cpp itself would then use a default for the kind of vocabulary.
        """
        token_id = self._metadata(f"tokenizer.ggml.{kind}_token_id")
        if not token_id.isdigit():
            return ""
        word: bytes = self._c.llama_vocab_get_text(self._vocabulary, int(token_id))
        return word.decode("utf-8", "replace")

    def _groups(self, responses: Sequence[Response]) -> Iterator[Sequence[Response]]:
        size = int(self._options["sequences"])
        for start in range(0, len(responses), size):
            yield responses[start : start + size]

    def _sample_group(self, group: Sequence[Response], sampling: Sampling) -> None:
        """Sample the responses of a group, one token of each at a time."""
        self._clear_cache()
        generators = [
            np.random.default_rng(response_seed(sampling, each.prompt, each.sample))
            for each in group
        ]
        ends = frozenset() if sampling.ignore_end else {*self._end_ids, *sampling.stop_ids}
        processing = Processing.of(sampling)
        entries = [
            _BatchToken(token, position, row, wanted=position == len(each.prompt_ids) - 1)
            for row, each in enumerate(group)
            for position, token in enumerate(each.prompt_ids)
        ]
        while entries:
            following = []
            for logits_NV, decoded in self._decode(entries):
                logprobs_NV = _processed(logits_NV, processing)
                for row, entry in enumerate(decoded):
                    each, generator = group[entry.sequence], generators[entry.sequence]
                    token = _sample_token(logprobs_NV[row], generator)
                    each.response_ids.append(token)  # type: ignore[attr-defined]  # a list, from `sample`
                    each.logprobs.append(float(logprobs_NV[row, token]))  # type: ignore[union-attr]
                    each.ended = token in ends
                    limit = min(sampling.max_tokens, self._longest - len(each.prompt_ids))
                    if not each.ended and len(each.response_ids) < limit:
                        following.append(
                            _BatchToken(token, entry.position + 1, entry.sequence, True)
                        )
            entries = following

    def _clear_cache(self) -> None:
        self._c.llama_memory_clear(self._c.llama_get_memory(self._context), True)

    def _decode(self, entries: Sequence[_BatchToken]) -> Iterator[tuple[Floats, list[_BatchToken]]]:
        """Logits after the tokens that need them, some rows at a time."""
        size = int(self._options["batch_tokens"])
        for start in range(0, len(entries), size):
            part = entries[start : start + size]
            self._fill(part)
            code = self._c.llama_decode(self._context, self._batch)
            if code != 0:
                raise RefusalError(
                    f"llama.cpp cannot decode {len(part)} tokens: code {code}",
                    "lower context=, sequences= or batch_tokens=",
                )
            wanted = [place for place, entry in enumerate(part) if entry.wanted]
            for first in range(0, len(wanted), _ROWS):
                rows = wanted[first : first + _ROWS]
                logits_NV = np.stack([self._logits(place) for place in rows])
                yield logits_NV, [part[place] for place in rows]

    def _fill(self, entries: Sequence[_BatchToken]) -> None:
        batch = self._batch
        batch.n_tokens = len(entries)
        for place, entry in enumerate(entries):
            batch.token[place] = entry.token
            batch.pos[place] = entry.position
            batch.n_seq_id[place] = 1
            batch.seq_id[place][0] = entry.sequence
            batch.logits[place] = entry.wanted

    def _logits(self, place: int) -> Floats:
        pointer = self._c.llama_get_logits_ith(self._context, place)
        row: Floats = np.ctypeslib.as_array(pointer, shape=(self._words,))
        return row

    def _refuse_longer(self, ids: Sequence[Sequence[int]], room: int) -> None:
        longest = max(map(len, ids), default=0)
        if longest + room > self._longest:
            raise RefusalError(
                f"{longest} tokens do not fit into the context of {self._longest}",
                "raise context=, or remove long prompts",
            )


def load(model: str, options: dict[str, Any]) -> LlamaCpp:
    """Load a GGUF file."""
    return LlamaCpp(model, options)


def _known(options: Mapping[str, Any]) -> dict[str, Any]:
    merged = with_defaults(options, _DEFAULTS, "llama.cpp")
    for name in ("type_k", "type_v"):
        if merged[name] not in _CACHE_TYPES:
            raise RefusalError(
                f"{name}={merged[name]} is not a cache type",
                f"use one of {', '.join(_CACHE_TYPES)}",
            )
    for name in ("context", "sequences", "batch_tokens", "threads", "gpu_layers"):
        minimum = 1 if name in ("sequences", "batch_tokens") else 0
        if type(merged[name]) is not int or merged[name] < minimum:
            raise RefusalError(f"{name}= must be an integer of at least {minimum}")
    if merged["batch_tokens"] < merged["sequences"]:  # llama.cpp would abort
        raise RefusalError(
            f"batch_tokens={merged['batch_tokens']} is less than one token for each of "
            f"{merged['sequences']} sequences",
            "raise batch_tokens=, or lower sequences=",
        )
    return merged


def _processed(logits_NV: Floats, processing: Processing) -> Floats:
    """Log-probabilities after temperature, min-p, top-k and top-p, in vLLM's order."""
    logprobs_NV = _log_softmax(logits_NV / np.float32(processing.temperature))
    if processing.min_p > 0:
        floor_N1 = logprobs_NV.max(axis=1, keepdims=True) + np.float32(np.log(processing.min_p))
        logprobs_NV = _masked(logprobs_NV, logprobs_NV < floor_N1)
    words = logprobs_NV.shape[1]
    if 0 < processing.top_k < words:
        least_N = np.partition(logprobs_NV, -processing.top_k)[:, -processing.top_k]
        logprobs_NV = _masked(logprobs_NV, logprobs_NV < least_N[:, None])
    if processing.top_p < 1:
        order_NV = np.argsort(-logprobs_NV, axis=1, kind="stable")
        sorted_NV = np.take_along_axis(np.exp(logprobs_NV), order_NV, axis=1)
        # Keep a token if the tokens before it have not reached top_p.
        beyond_NV = np.cumsum(sorted_NV, axis=1) - sorted_NV >= processing.top_p
        dropped_NV = np.zeros_like(beyond_NV)
        np.put_along_axis(dropped_NV, order_NV, beyond_NV, axis=1)
        logprobs_NV = _masked(logprobs_NV, dropped_NV)
    return logprobs_NV


def _masked(logprobs_NV: Floats, dropped_NV: NDArray[np.bool_]) -> Floats:
    return _log_softmax(np.where(dropped_NV, np.float32(-np.inf), logprobs_NV))


def _log_softmax(logits_NV: Floats) -> Floats:
    shifted_NV = logits_NV - logits_NV.max(axis=1, keepdims=True)
    totals_N1 = np.exp(shifted_NV).sum(axis=1, keepdims=True, dtype=np.float64)
    logprobs_NV: Floats = shifted_NV - np.log(totals_N1).astype(np.float32)
    return logprobs_NV


def _sample_token(logprobs_V: Floats, generator: np.random.Generator) -> int:
    """Sample one token."""
    cumulated_V = np.cumsum(np.exp(logprobs_V, dtype=np.float64))
    token = np.searchsorted(cumulated_V, generator.random() * cumulated_V[-1], side="right")
    # Rounding of the sum must not select a token after the last one with nonzero probability.
    return min(int(token), int(np.flatnonzero(np.isfinite(logprobs_V))[-1]))


if __name__ == "__main__":
    contract.serve(load)
