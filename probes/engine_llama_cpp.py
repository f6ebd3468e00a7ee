"""llama.cpp: `llama_cpp:MODEL.gguf?type_k=q8_0&python=…`, by llama-cpp-python.

Decoding goes through llama.cpp's C interface, several sequences at once, with logits where a
response's tokens are predicted and nowhere else. Tokens are drawn here, from those logits, with the
temperature first and then min-p, top-k and top-p, as vLLM does; the log-probabilities given are
those of the distribution drawn from. llama.cpp's own samplers, which apply the temperature last,
are not used.

Options:

- `context`: tokens of a sequence at most; what the model was trained with, up to 4,096
- `sequences`: how many are decoded at once; `batch_tokens`: tokens of a decoding call at most
- `type_k`, `type_v`: of the cache: f32, f16, bf16, q8_0, q4_0
- `flash_attention`: true or false; llama.cpp decides otherwise
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
"""Rows of logits that are worked on at once."""

Floats = NDArray[np.float32]


@dataclass
class _Entry:
    """A token of a decoding call."""

    token: int
    position: int
    sequence: int
    wanted: bool
    """Whether the logits behind it are."""


class LlamaCpp:
    """A GGUF file in llama.cpp.

    Args:
        model: the file.
        options: see the module.

    Raises:
        RefusalError: if an option is unknown or llama.cpp does not take the file.
    """

    def __init__(self, model: str, options: Mapping[str, Any]) -> None:
        self._options = _known(options)
        if not Path(model).is_file():
            raise RefusalError(f"there is no file {model}", "name a GGUF file")
        import llama_cpp  # type: ignore[import-not-found]  # in its user's Python

        self._c: Any = llama_cpp
        self._c.llama_backend_init()
        self._path = model
        self._model = self._load(model)
        self._vocabulary = self._c.llama_model_get_vocab(self._model)
        self._words = int(self._c.llama_vocab_n_tokens(self._vocabulary))
        self._context = self._begin()
        self._batch = self._c.llama_batch_init(int(self._options["batch_tokens"]), 0, 1)

    def describe(self) -> dict[str, Any]:
        """What it is and how it is set up."""
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
        """By the file's own tokenizer and chat template."""
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
        want: Sequence[str],  # noqa: ARG002 - llama.cpp tells nothing else
    ) -> list[Response]:
        """Some sequences at once, each with random numbers of its own."""
        self._refuse_longer(prompts, room=2)
        empty = [
            Response(list(map(int, prompts[prompt])), [], [], prompt, sample)
            for prompt in range(len(prompts))
            for sample in range(sampling.samples)
        ]
        for group in self._groups(empty):
            self._draw(group, sampling)
        return empty

    def score(
        self,
        responses: Sequence[Response],
        processing: Processing,
        want: Sequence[str],  # noqa: ARG002
    ) -> list[Response]:
        """Some sequences at once, the whole of each in chunks."""
        whole = [[*each.prompt_ids, *each.response_ids] for each in responses]
        self._refuse_longer(whole, room=0)
        if any(not len(each.prompt_ids) for each in responses):
            raise RefusalError("a response without a prompt cannot be scored")
        scored = [replace(each, logprobs=[], extras={}) for each in responses]
        for group in self._groups(scored):
            self._forget()
            entries = [
                _Entry(int(token), place, row, wanted=place >= len(each.prompt_ids) - 1)
                for row, each in enumerate(group)
                for place, token in enumerate([*each.prompt_ids, *each.response_ids][:-1])
            ]
            for logits_NV, told in self._decode(entries):
                logprobs_NV = _processed(logits_NV, processing)
                for row, entry in enumerate(told):
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
                f"llama.cpp cannot load {model}", "its log above says why; is it a GGUF file?"
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
                "its log above says why; a quantised type_v needs flash_attention=true",
            )
        return context

    @property
    def _end_ids(self) -> list[int]:
        is_end = self._c.llama_vocab_is_eog
        return [token for token in range(self._words) if is_end(self._vocabulary, token)]

    def _described(self) -> str:
        """How the weights are stored: the end of `qwen2 0.6B Q4_K - Small`."""
        text = ctypes.create_string_buffer(256)
        self._c.llama_model_desc(self._model, text, 256)
        stored = text.value.decode("utf-8", "replace").split(None, 2)[-1]
        return _DTYPES.get(stored, stored)

    def _metadata(self, key: str) -> str:
        text = ctypes.create_string_buffer(1 << 16)
        size = self._c.llama_model_meta_val_str(self._model, key.encode(), text, len(text))
        return text.value.decode("utf-8", "replace") if size >= 0 else ""

    def _ids(self, text: str, *, begin: bool) -> list[int]:
        spoken = text.encode()
        room = len(spoken) + 16
        ids = (self._c.llama_token * room)()
        count = self._c.llama_tokenize(
            self._vocabulary, spoken, len(spoken), ids, room, begin, True
        )
        if count < 0:
            raise RefusalError("llama.cpp cannot tokenise a prompt")
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
                f"the chat template does not take a prompt: {' '.join(str(error).split())[:200]}",
                "look at the roles of its messages, or give prompts as text",
            ) from error

    def _word(self, kind: str) -> str:
        """A special token as templates write it; nothing if the file names none.

        llama.cpp itself names one then, by the kind of the vocabulary.
        """
        told = self._metadata(f"tokenizer.ggml.{kind}_token_id")
        if not told.isdigit():
            return ""
        word: bytes = self._c.llama_vocab_get_text(self._vocabulary, int(told))
        return word.decode("utf-8", "replace")

    def _groups(self, responses: Sequence[Response]) -> Iterator[Sequence[Response]]:
        size = int(self._options["sequences"])
        for start in range(0, len(responses), size):
            yield responses[start : start + size]

    def _draw(self, group: Sequence[Response], sampling: Sampling) -> None:
        """Fill the responses of a group, a token of each at a time."""
        self._forget()
        sources = [
            np.random.default_rng(response_seed(sampling, each.prompt, each.sample))
            for each in group
        ]
        ends = frozenset() if sampling.ignore_end else {*self._end_ids, *sampling.stop_ids}
        processing = Processing(
            sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p
        )
        entries = [
            _Entry(token, place, row, wanted=place == len(each.prompt_ids) - 1)
            for row, each in enumerate(group)
            for place, token in enumerate(each.prompt_ids)
        ]
        while entries:
            following = []
            for logits_NV, told in self._decode(entries):
                logprobs_NV = _processed(logits_NV, processing)
                for row, entry in enumerate(told):
                    each, source = group[entry.sequence], sources[entry.sequence]
                    token = _drawn(logprobs_NV[row], source)
                    each.response_ids.append(token)  # type: ignore[attr-defined]  # a list of ours
                    each.logprobs.append(float(logprobs_NV[row, token]))  # type: ignore[union-attr]
                    each.ended = token in ends
                    most = min(sampling.max_tokens, self._longest - len(each.prompt_ids))
                    if not each.ended and len(each.response_ids) < most:
                        following.append(_Entry(token, entry.position + 1, entry.sequence, True))
            entries = following

    def _forget(self) -> None:
        self._c.llama_memory_clear(self._c.llama_get_memory(self._context), True)

    def _decode(self, entries: Sequence[_Entry]) -> Iterator[tuple[Floats, list[_Entry]]]:
        """Logits behind the tokens where they are wanted, some rows at a time."""
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

    def _fill(self, entries: Sequence[_Entry]) -> None:
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
                f"{longest} tokens do not fit into the {self._longest} that there is room for",
                "raise context=, or leave long prompts out",
            )


def load(model: str, options: dict[str, Any]) -> LlamaCpp:
    """Load a GGUF file."""
    return LlamaCpp(model, options)


def _known(options: Mapping[str, Any]) -> dict[str, Any]:
    merged = with_defaults(options, _DEFAULTS, "llama.cpp")
    for name in ("type_k", "type_v"):
        if merged[name] not in _CACHE_TYPES:
            raise RefusalError(
                f"{name}={merged[name]} is no type of a cache", f"use {', '.join(_CACHE_TYPES)}"
            )
    for name in ("context", "sequences", "batch_tokens", "threads", "gpu_layers"):
        least = 1 if name in ("sequences", "batch_tokens") else 0
        if type(merged[name]) is not int or merged[name] < least:
            raise RefusalError(f"{name}= is a whole number from {least}")
    if merged["batch_tokens"] < merged["sequences"]:  # llama.cpp aborts
        raise RefusalError(
            f"a decoding call of {merged['batch_tokens']} tokens is less than one for each of "
            f"{merged['sequences']} sequences",
            "raise batch_tokens=, or lower sequences=",
        )
    return merged


def _processed(logits_NV: Floats, processing: Processing) -> Floats:
    """Log-probabilities under a temperature, then min-p, top-k and top-p as vLLM cuts off."""
    logprobs_NV = _log_softmax(logits_NV / np.float32(processing.temperature))
    if processing.min_p > 0:
        floor_N1 = logprobs_NV.max(axis=1, keepdims=True) + np.float32(np.log(processing.min_p))
        logprobs_NV = _cut(logprobs_NV, logprobs_NV < floor_N1)
    words = logprobs_NV.shape[1]
    if 0 < processing.top_k < words:
        least_N = np.partition(logprobs_NV, -processing.top_k)[:, -processing.top_k]
        logprobs_NV = _cut(logprobs_NV, logprobs_NV < least_N[:, None])
    if processing.top_p < 1:
        order_NV = np.argsort(-logprobs_NV, axis=1, kind="stable")
        sorted_NV = np.take_along_axis(np.exp(logprobs_NV), order_NV, axis=1)
        # A token stays as long as those before it have not reached the share.
        beyond_NV = np.cumsum(sorted_NV, axis=1) - sorted_NV >= processing.top_p
        dropped_NV = np.zeros_like(beyond_NV)
        np.put_along_axis(dropped_NV, order_NV, beyond_NV, axis=1)
        logprobs_NV = _cut(logprobs_NV, dropped_NV)
    return logprobs_NV


def _cut(logprobs_NV: Floats, dropped_NV: NDArray[np.bool_]) -> Floats:
    return _log_softmax(np.where(dropped_NV, np.float32(-np.inf), logprobs_NV))


def _log_softmax(logits_NV: Floats) -> Floats:
    shifted_NV = logits_NV - logits_NV.max(axis=1, keepdims=True)
    totals_N1 = np.exp(shifted_NV).sum(axis=1, keepdims=True, dtype=np.float64)
    found: Floats = shifted_NV - np.log(totals_N1).astype(np.float32)
    return found


def _drawn(logprobs_V: Floats, source: np.random.Generator) -> int:
    """One token, by its probability."""
    heights_V = np.cumsum(np.exp(logprobs_V, dtype=np.float64))
    place = np.searchsorted(heights_V, source.random() * heights_V[-1], side="right")
    # The sum's own rounding must not lead beyond the last token that has any probability.
    return min(int(place), int(np.flatnonzero(np.isfinite(logprobs_V))[-1]))


if __name__ == "__main__":
    contract.serve(load)
