"""vLLM as the engine that samples, in process or behind HTTP.

What the two ways have in common stands here: when weights are handed over and whether they arrived,
seeds, and what becomes of the responses. How to reach vLLM is a `Backend`.

- Weights go through a file that both sides see, into vLLM's own loading code, by the methods of
  `vllm_worker`. Each sync must set every parameter, and the prefix cache is emptied after it:
  cached prompts would keep the old weights.
- The log-probabilities recorded are those of the distribution that was sampled from. vLLM reports
  them as `processed_logprobs`; its default is the distribution at temperature 1.
- Each prompt's responses have a seed derived from the run's, the step and the row's number, so that
  a run can be repeated, as far as the engine's own arithmetic can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor

from grpodoctor.errors import ConfigError, DataError, EngineError
from grpodoctor.support.safe_text import printable
from grpodoctor.trainer.config.sections import EngineConfig
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.distributed.ranks import SINGLE_PROCESS, Ranks
from grpodoctor.trainer.engines.vllm_worker import SIZES
from grpodoctor.trainer.engines.weight_transfer import WeightFiles
from grpodoctor.trainer.model.forward import pack_left
from grpodoctor.trainer.model.policy import Policy
from grpodoctor.trainer.model.saved_weights import checkpoint_weights
from grpodoctor.trainer.model.tokenizer import Tokenizer
from grpodoctor.trainer.samples import Samples, TopK, sample_on_ranks

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class PromptRequest(NamedTuple):
    """Responses wanted to one prompt."""

    prompt: Sequence[int]
    first: int
    """Number of the first response in the batch."""
    responses: int
    seed: int


class SamplingSettings(NamedTuple):
    """What holds for all responses of a batch."""

    temperature: float
    max_length: int
    end_ids: Sequence[int]
    top_tokens: int
    """How many of the likeliest tokens to tell at each position."""


class VllmResponse(NamedTuple):
    """One response as vLLM gives it."""

    ids: Sequence[int]
    logprobs: Sequence[float]
    top: Sequence[Mapping[int, float]]
    """Log-probabilities of the likeliest tokens, and perhaps the sampled one, by position."""


class ServedModel(BaseModel):
    """What a worker says about itself."""

    version: str
    sizes: dict[str, int | str | bool | None]
    logprobs_mode: str
    max_model_len: int


class LoadResult(BaseModel):
    """What a worker says about weights that it was to load."""

    tensors: int
    missing: list[str]
    error: str


class Backend(Protocol):
    """A way to vLLM. Each method raises `EngineError` if vLLM does not do it."""

    @property
    def name(self) -> str:
        """What to call it in a message."""

    def describe(self) -> Sequence[ServedModel]:
        """What each worker serves."""

    def load(self, path: str) -> Sequence[LoadResult]:
        """Have each worker load a safetensors file."""

    def reset_prefix_cache(self) -> None:
        """Empty the prefix cache."""

    def sample(
        self, requests: Sequence[PromptRequest], terms: SamplingSettings
    ) -> Sequence[Sequence[VllmResponse]]:
        """The responses to each prompt, in order."""

    def close(self) -> None:
        """Let go of what it holds."""


class VllmEngine:
    """Samples with the weights that were handed over last.

    Args:
        config: the run's configuration.
        policy: the learner; it is read, never changed.
        files: where its weights are handed over.
        backend: the way to vLLM.
        ranks: who shares the asking; the first hands over the weights.

    Raises:
        EngineError: if vLLM does not answer, or serves another model.
    """

    def __init__(
        self,
        config: TrainConfig,
        policy: Policy,
        files: WeightFiles,
        backend: Backend,
        ranks: Ranks = SINGLE_PROCESS,
    ) -> None:
        self._ranks = ranks
        self._policy, self._files, self._backend = policy, files, backend
        self._engine = config.engine
        self._max_length = config.rollout.max_length
        self._due = False
        self.synced_step = 0
        served = backend.describe()
        self._served = served[0]
        for each in served:
            _refuse_another_model(policy.model, each, backend.name)
        self._temperature = config.rollout.temperature
        self._refuse_other_logprobs(self.temperature)

    @property
    def temperature(self) -> float:
        """What vLLM divides logits by: its own temperature if it has one."""
        return self._engine.temperature or self._temperature

    def sync(self, step: int) -> None:
        """Hand over the learner's weights; `step` is the training step about to sample.

        Raises:
            EngineError: if they did not arrive wholly.
        """
        self._hand_over(checkpoint_weights(self._policy.model), step)

    def _hand_over(self, weights: Iterator[tuple[str, Tensor]], step: int) -> None:
        self._ranks.run_first(lambda: self._deliver(weights, step))
        self._due, self.synced_step = False, step

    def _deliver(self, weights: Iterator[tuple[str, Tensor]], step: int) -> None:
        path, count = self._files.publish(weights, step)
        for loaded in self._backend.load(str(path)):
            _refuse_partial(loaded, count, self._backend.name)
        self._backend.reset_prefix_cache()

    def maybe_sync(self, step: int) -> bool:
        """Sync before the rollout of `step` if it is time; returns whether it was."""
        if self._due or step - self.synced_step >= self._engine.sync_every:
            self.sync(step)
        return self.synced_step == step

    def set(self, engine: EngineConfig, temperature: float) -> None:
        """Change the engine and the rollout temperature in flight.

        Raises:
            ConfigError: if vLLM would have to be started anew for it.
            EngineError: if vLLM would report log-probabilities of another distribution.
        """
        if engine.precision != self._engine.precision:
            raise ConfigError(
                "vLLM keeps the precision that it was started with",
                where="engine.precision",
                remedy="stop the run and go on with it by --resume --set engine.precision=…",
            )
        self._refuse_other_logprobs(engine.temperature or temperature)
        self._due = self._due or engine.sync_every != self._engine.sync_every
        self._engine, self._temperature = engine, temperature

    def generate(
        self, prompts: Sequence[Sequence[int]], generator: torch.Generator, top_tokens: int = 0
    ) -> Samples:
        """One response per prompt, with so many of the likeliest tokens at each position.

        Raises:
            DataError: if a prompt and its response do not fit into what vLLM makes room for.
            EngineError: if vLLM does not answer, or not in the way that was asked for.
        """
        self._refuse_too_long(max(map(len, prompts)))
        tokenizer, device = self._policy.tokenizer, self._policy.model.device
        terms = self._terms(top_tokens)
        requests = list(_requests(prompts, generator))

        def draw(rows: range) -> Samples:
            responses = self._responses(list(_within(requests, rows)), terms)
            own = prompts[rows.start : rows.stop]
            return _samples(own, responses, tokenizer, terms.top_tokens).to(device)

        return sample_on_ranks(len(prompts), draw, device, self._ranks)

    def _terms(self, top_tokens: int) -> SamplingSettings:
        ends = sorted(self._policy.tokenizer.end_ids)
        likeliest = min(top_tokens, self._vocabulary)
        return SamplingSettings(self.temperature, self._max_length, ends, likeliest)

    def _responses(
        self, requests: Sequence[PromptRequest], terms: SamplingSettings
    ) -> list[VllmResponse]:
        answers = self._backend.sample(requests, terms)
        for request, answer in zip(requests, answers, strict=True):
            if len(answer) != request.responses:
                raise _unasked(
                    f"{len(answer)} responses and not {request.responses}", self._backend
                )
        responses = [response for answer in answers for response in answer]
        for response in responses:
            self._refuse_unusable(response, terms)
        return responses

    def state_dict(self) -> dict[str, Any]:
        """What an exact resume needs: the step of the last sync, and the weights if they stay."""
        weights = self._files.latest() if self._engine.sync_every > 1 else None
        return {"synced_step": self.synced_step, "due": self._due, "weights": weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`, for an engine of the same configuration."""
        weights: dict[str, Tensor] | None = state["weights"]
        if weights is None:
            self.sync(state["synced_step"])
        else:
            self._hand_over(iter(weights.items()), state["synced_step"])
        self._due = state["due"]

    def close(self) -> None:
        """Let go of vLLM and of the weights handed over; a server goes on running."""
        self._backend.close()
        self._files.close()

    @property
    def _vocabulary(self) -> int:
        return int(self._policy.model.config.get_text_config().vocab_size)

    def _refuse_other_logprobs(self, temperature: float) -> None:
        mode = self._served.logprobs_mode
        if mode == "processed_logprobs" or (mode == "raw_logprobs" and temperature == 1):
            return
        raise EngineError(
            f"it reports {printable(mode)}, which at temperature {temperature:g} are not the "
            "log-probabilities of the distribution that it samples from",
            where=self._backend.name,
            remedy="start vLLM with --logprobs-mode processed_logprobs",
        )

    def _refuse_too_long(self, prompt_length: int) -> None:
        room = self._served.max_model_len
        if prompt_length + self._max_length > room:
            raise DataError(
                f"a prompt of {prompt_length} tokens and a response of up to {self._max_length} do "
                f"not fit into the {room} tokens that vLLM makes room for",
                where="rollout.max_length",
                remedy="lower it, or give vLLM a larger max_model_len",
            )

    def _refuse_unusable(self, response: VllmResponse, terms: SamplingSettings) -> None:
        ids, logprobs, top = response
        if not 0 < len(ids) == len(logprobs) <= terms.max_length:
            raise _unasked(
                f"{len(ids)} tokens with {len(logprobs)} log-probabilities", self._backend
            )
        if len(top) != len(ids) or any(len(each) < terms.top_tokens for each in top):
            raise _unasked(f"fewer than {terms.top_tokens} likeliest tokens", self._backend)
        if len(ids) < terms.max_length and ids[-1] not in terms.end_ids:
            raise _unasked(
                f"a response that ends after {len(ids)} of {terms.max_length} tokens without an "
                "end token",
                self._backend,
            )
        named = [*ids, *(token for each in top for token in each)]
        if not 0 <= min(named) <= max(named) < self._vocabulary:
            raise _unasked("a token that the learner does not have", self._backend)


def open_vllm(config: TrainConfig, policy: Policy, ranks: Ranks = SINGLE_PROCESS) -> VllmEngine:
    """Open vLLM as `config.engine` says: started here, or reached at its address.

    Raises:
        EngineError: if it does not start, does not answer, or serves another model.
        MissingExtraError: if it is to be started here and is not installed.
    """
    files = WeightFiles(config.engine.sync_dir)
    with ExitStack() as undo:
        undo.callback(files.close)
        backend = _backend(config, policy, files, ranks)
        undo.callback(backend.close)
        engine = VllmEngine(config, policy, files, backend, ranks)
        undo.pop_all()
    return engine


def _backend(config: TrainConfig, policy: Policy, files: WeightFiles, ranks: Ranks) -> Backend:
    if config.engine.kind == "server":
        from grpodoctor.trainer.engines.vllm_server import VllmServer

        return VllmServer(config.engine, config.model.name)
    from grpodoctor.trainer.engines.vllm_local import LocalVllm

    if ranks.world > 1:
        raise EngineError(
            "vLLM in process wants the process for itself, and this one is one of several",
            where="engine.kind=vllm",
            remedy="start a vLLM server and set engine.kind=server",
        )
    return LocalVllm(config, policy, files.path)


def _requests(
    prompts: Sequence[Sequence[int]], generator: torch.Generator
) -> Iterator[PromptRequest]:
    """One for each prompt and those like it that follow, with a seed from the first one's number.

    The seed of each further response is one more, as in vLLM itself.
    """
    base = int(torch.randint(2**62, (), generator=generator))
    row = 0
    for prompt, repeated in groupby(map(tuple, prompts)):
        count = sum(1 for _ in repeated)
        seed = int(np.random.SeedSequence((base, row)).generate_state(1, np.uint64)[0] >> 2)
        yield PromptRequest(prompt, row, count, seed)
        row += count


def _within(requests: Sequence[PromptRequest], rows: range) -> Iterator[PromptRequest]:
    """What is asked for some rows of the batch, so that they become what they are in the whole."""
    for request in requests:
        first = max(request.first, rows.start)
        count = min(request.first + request.responses, rows.stop) - first
        if count > 0:
            yield PromptRequest(request.prompt, first, count, request.seed + first - request.first)


def _samples(
    prompts: Sequence[Sequence[int]],
    responses: Sequence[VllmResponse],
    tokenizer: Tokenizer,
    top_tokens: int,
) -> Samples:
    prompt_tokens, prompt_attention = pack_left(prompts, tokenizer.pad_id)
    lengths_B1 = torch.tensor([[len(each.ids)] for each in responses])
    shape = (len(responses), int(lengths_B1.max()))
    mask_BT = torch.arange(shape[1]) < lengths_B1
    response_BT = torch.full(shape, tokenizer.pad_id)
    logprobs_BT = torch.zeros(shape)
    response_BT[mask_BT] = torch.tensor([token for each in responses for token in each.ids])
    logprobs_BT[mask_BT] = torch.tensor([value for each in responses for value in each.logprobs])
    return Samples(
        tokens_BL=torch.cat([prompt_tokens, response_BT], dim=1),
        attention_BL=torch.cat([prompt_attention, mask_BT], dim=1),
        prompt_width=prompt_tokens.shape[1],
        logprobs_BT=logprobs_BT,
        truncated_B=torch.tensor([each.ids[-1] not in tokenizer.end_ids for each in responses]),
        pad_id=tokenizer.pad_id,
        top=_top(responses, mask_BT, top_tokens) if top_tokens else None,
    )


def _top(responses: Sequence[VllmResponse], mask_BT: Tensor, count: int) -> TopK:
    ids_BTK = torch.zeros(*mask_BT.shape, count, dtype=torch.long)
    logprobs_BTK = torch.zeros(*mask_BT.shape, count)
    likeliest = [
        sorted(position.items(), key=lambda entry: -entry[1])[:count]
        for response in responses
        for position in response.top
    ]
    ids_BTK[mask_BT] = torch.tensor([[token for token, _ in each] for each in likeliest])
    logprobs_BTK[mask_BT] = torch.tensor([[value for _, value in each] for each in likeliest])
    return TopK(ids_BTK, logprobs_BTK)


def _refuse_another_model(model: PreTrainedModel, served: ServedModel, name: str) -> None:
    """Only a model of the same kind and sizes can take over the learner's weights."""
    own = model.config.get_text_config()
    for size in SIZES:
        theirs, ours = served.sizes.get(size), getattr(own, size, None)
        if theirs is None or ours is None or theirs == ours:
            continue
        raise EngineError(
            f"it serves another model: its {size} is {printable(str(theirs))} and the learner's "
            f"{ours}",
            where=name,
            remedy="serve the model that model.name names",
        )


def _refuse_partial(loaded: LoadResult, sent: int, name: str) -> None:
    if loaded.error:
        what = f"the weights could not be loaded: {printable(loaded.error, 200)}"
    elif loaded.missing:
        what = f"the sync left weights as they were, such as {printable(loaded.missing[0])}"
    elif loaded.tensors != sent:
        what = f"of {sent} weights handed over, {loaded.tensors} arrived"
    else:
        return
    raise EngineError(
        what,
        where=name,
        remedy="let engine.sync_dir be a directory that vLLM reads under the same path, and serve "
        "the model that model.name names",
    )


def _unasked(what: str, backend: Backend) -> EngineError:
    return EngineError(
        f"it answered with {what}",
        where=backend.name,
        remedy="use vLLM 0.10.2 or newer, without stop words or limits of its own",
    )
