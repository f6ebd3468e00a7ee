"""vLLM as the rollout engine, in process or over HTTP.

This module contains what both have in common: weight syncs and their checks, seeds, and the
conversion of responses. A `Backend` is a way to reach vLLM.

- Weights go through a file that both sides can read, into vLLM's own loading code, with the methods
  of `vllm_worker`. Each sync must set every parameter. The prefix cache is emptied afterwards,
  because cached prompts would keep the old weights.
- The recorded log-probabilities are those of the distribution that was sampled from. vLLM reports
  them as `processed_logprobs`; its default is the distribution at temperature 1.
- The seed of each prompt's responses is derived from the run's seed, the step and the row's number,
  so that a run can be repeated as exactly as the engine's arithmetic allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from grpodoctor.errors import ConfigError, DataError, EngineError
from grpodoctor.support.safe_text import printable
from grpodoctor.trainer.config.sections import EngineConfig
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.distributed.ranks import SINGLE_PROCESS, Ranks
from grpodoctor.trainer.engines.base import RolloutEngine
from grpodoctor.trainer.engines.vllm_backend import (
    Backend,
    LoadResult,
    PromptRequest,
    SamplingSettings,
    ServedModel,
    VllmResponse,
)
from grpodoctor.trainer.engines.vllm_worker import SIZES
from grpodoctor.trainer.engines.weight_transfer import WeightFiles
from grpodoctor.trainer.model.forward import pack_left
from grpodoctor.trainer.model.policy import Policy
from grpodoctor.trainer.model.saved_weights import checkpoint_weights
from grpodoctor.trainer.model.tokenizer import Tokenizer
from grpodoctor.trainer.samples import Samples, TopK, sample_on_ranks

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class VllmEngine(RolloutEngine):
    """Samples with the weights of the last sync.

    Raises:
        EngineError: if vLLM does not respond, or serves a different model.
    """

    def __init__(
        self,
        config: TrainConfig,
        policy: Policy,
        files: WeightFiles,
        backend: Backend,
        ranks: Ranks = SINGLE_PROCESS,
    ) -> None:
        super().__init__(config, policy, ranks)
        self._files, self._backend = files, backend
        served_models = backend.describe()
        self._served = served_models[0]
        for served in served_models:
            _refuse_different_model(policy.model, served, backend.name)
        self._refuse_other_logprobs(self.temperature)

    def sync(self, step: int) -> None:
        """Transfer the learner's weights; `step` is the training step about to sample.

        Raises:
            EngineError: if vLLM did not load all weights.
        """
        self._transfer(checkpoint_weights(self._policy.model), step)

    def _transfer(self, weights: Iterator[tuple[str, Tensor]], step: int) -> None:
        self._ranks.run_first(lambda: self._write_and_load(weights, step))
        self._due, self.synced_step = False, step

    def _write_and_load(self, weights: Iterator[tuple[str, Tensor]], step: int) -> None:
        path, count = self._files.write(weights, step)
        for result in self._backend.load(str(path)):
            _refuse_partial(result, count, self._backend.name)
        self._backend.reset_prefix_cache()

    def set(self, engine: EngineConfig, temperature: float) -> None:
        """Change the engine's settings and the rollout temperature during the run.

        Raises:
            ConfigError: if the change requires a restart of vLLM.
            EngineError: if vLLM would report log-probabilities of a different distribution.
        """
        if engine.precision != self._engine.precision:
            raise ConfigError(
                "vLLM's precision cannot change while it runs",
                where="engine.precision",
                remedy="stop the run and continue it with --resume --set engine.precision=…",
            )
        self._refuse_other_logprobs(engine.temperature or temperature)
        self._due = self._due or engine.sync_every != self._engine.sync_every
        self._engine, self._temperature = engine, temperature

    def generate(
        self, prompts: Sequence[Sequence[int]], generator: torch.Generator, top_tokens: int = 0
    ) -> Samples:
        """Sample one response per prompt, with the `top_tokens` most likely tokens per position.

        Raises:
            DataError: if a prompt and its response exceed vLLM's `max_model_len`.
            EngineError: if vLLM does not respond, or returns an unexpected response.
        """
        self._refuse_too_long(max(map(len, prompts)))
        tokenizer, device = self._policy.tokenizer, self._policy.model.device
        settings = self._sampling_settings(top_tokens)
        requests = list(_requests(prompts, generator))

        def draw(rows: range) -> Samples:
            responses = self._responses(list(_requests_for(rows, requests)), settings)
            own = prompts[rows.start : rows.stop]
            return _samples(own, responses, tokenizer, settings.top_tokens).to(device)

        return sample_on_ranks(len(prompts), draw, device, self._ranks)

    def _sampling_settings(self, top_tokens: int) -> SamplingSettings:
        return SamplingSettings(
            temperature=self.temperature,
            top_p=self._rollout.top_p,
            top_k=self._rollout.top_k,
            max_length=self._rollout.max_length,
            end_ids=sorted(self._policy.tokenizer.end_ids),
            top_tokens=min(top_tokens, self._vocabulary),
        )

    def _responses(
        self, requests: Sequence[PromptRequest], settings: SamplingSettings
    ) -> list[VllmResponse]:
        batches = self._backend.sample(requests, settings)
        for request, batch in zip(requests, batches, strict=True):
            if len(batch) != request.responses:
                raise _unexpected(
                    f"{len(batch)} responses instead of {request.responses}", self._backend
                )
        responses = [response for batch in batches for response in batch]
        for response in responses:
            self._refuse_unusable(response, settings)
        return responses

    def state_dict(self) -> dict[str, Any]:
        """The state for an exact resume: the step of the last sync, and weights still in use."""
        weights = self._files.latest() if self._engine.sync_every > 1 else None
        return {"synced_step": self.synced_step, "due": self._due, "weights": weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`, for an engine of the same configuration."""
        weights: dict[str, Tensor] | None = state["weights"]
        if weights is None:
            self.sync(state["synced_step"])
        else:
            self._transfer(iter(weights.items()), state["synced_step"])
        self._due = state["due"]

    def close(self) -> None:
        """Close the connection to vLLM and remove the weight files; a server keeps running."""
        self._backend.close()
        self._files.close()

    @property
    def _vocabulary(self) -> int:
        return int(self._policy.model.config.get_text_config().vocab_size)

    def _refuse_other_logprobs(self, temperature: float) -> None:
        mode = self._served.logprobs_mode
        whole = temperature == 1 and not self._rollout.truncates_distribution
        if mode == "processed_logprobs" or (mode == "raw_logprobs" and whole):
            return
        raise EngineError(
            f"it reports {printable(mode)}, which at temperature {temperature:g} are not the "
            "log-probabilities of the sampling distribution",
            where=self._backend.name,
            remedy="start vLLM with --logprobs-mode processed_logprobs",
        )

    def _refuse_too_long(self, prompt_length: int) -> None:
        room, longest = self._served.max_model_len, self._rollout.max_length
        if prompt_length + longest > room:
            raise DataError(
                f"a prompt of {prompt_length} tokens and a response of up to {longest} "
                f"exceed vLLM's max_model_len of {room}",
                where="rollout.max_length",
                remedy="lower it, or start vLLM with a larger max_model_len",
            )

    def _refuse_unusable(self, response: VllmResponse, settings: SamplingSettings) -> None:
        ids, logprobs, top = response
        if not 0 < len(ids) == len(logprobs) <= settings.max_length:
            raise _unexpected(
                f"{len(ids)} tokens with {len(logprobs)} log-probabilities", self._backend
            )
        if len(top) != len(ids) or any(len(tokens) < settings.top_tokens for tokens in top):
            raise _unexpected(f"fewer than {settings.top_tokens} top tokens", self._backend)
        if len(ids) < settings.max_length and ids[-1] not in settings.end_ids:
            raise _unexpected(
                f"a response that ends after {len(ids)} of {settings.max_length} tokens without an "
                "end token",
                self._backend,
            )
        tokens = [*ids, *(token for candidates in top for token in candidates)]
        if not 0 <= min(tokens) <= max(tokens) < self._vocabulary:
            raise _unexpected("a token outside the learner's vocabulary", self._backend)


def open_vllm(config: TrainConfig, policy: Policy, ranks: Ranks = SINGLE_PROCESS) -> VllmEngine:
    """Start vLLM in this process, or connect to a server, as `config.engine` says.

    Raises:
        EngineError: if it does not start, does not respond, or serves a different model.
        MissingExtraError: if it must be started here and is not installed.
    """
    files = WeightFiles(config.engine.sync_dir)
    with ExitStack() as cleanup:
        cleanup.callback(files.close)
        backend = _backend(config, policy, files, ranks)
        cleanup.callback(backend.close)
        engine = VllmEngine(config, policy, files, backend, ranks)
        cleanup.pop_all()
    return engine


def _backend(config: TrainConfig, policy: Policy, files: WeightFiles, ranks: Ranks) -> Backend:
    if config.engine.kind == "server":
        from grpodoctor.trainer.engines.vllm_server import VllmServer

        return VllmServer(config.engine, config.model.name)
    from grpodoctor.trainer.engines.vllm_local import LocalVllm

    if ranks.world > 1:
        raise EngineError(
            "vLLM in process does not work with several ranks",
            where="engine.kind=vllm",
            remedy="start a vLLM server and set engine.kind=server",
        )
    return LocalVllm(config, policy, files.path)


def _requests(
    prompts: Sequence[Sequence[int]], generator: torch.Generator
) -> Iterator[PromptRequest]:
    """One request per run of equal prompts, with a seed derived from the first row's number.

    The seed of each further response is one more, as in vLLM itself.
    """
    base = int(torch.randint(2**62, (), generator=generator))
    row = 0
    for prompt, repeated in groupby(map(tuple, prompts)):
        count = sum(1 for _ in repeated)
        seed = int(np.random.SeedSequence((base, row)).generate_state(1, np.uint64)[0] >> 2)
        yield PromptRequest(prompt, row, count, seed)
        row += count


def _requests_for(rows: range, requests: Sequence[PromptRequest]) -> Iterator[PromptRequest]:
    """The requests for some rows of a batch, with the same seeds as in the whole batch."""
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
    lengths_B1 = torch.tensor([[len(response.ids)] for response in responses])
    shape = (len(responses), int(lengths_B1.max()))
    mask_BT = torch.arange(shape[1]) < lengths_B1
    response_BT = torch.full(shape, tokenizer.pad_id)
    logprobs_BT = torch.zeros(shape)
    response_BT[mask_BT] = torch.tensor([token for one in responses for token in one.ids])
    logprobs_BT[mask_BT] = torch.tensor([value for one in responses for value in one.logprobs])
    return Samples(
        tokens_BL=torch.cat([prompt_tokens, response_BT], dim=1),
        attention_BL=torch.cat([prompt_attention, mask_BT], dim=1),
        prompt_width=prompt_tokens.shape[1],
        logprobs_BT=logprobs_BT,
        truncated_B=torch.tensor([one.ids[-1] not in tokenizer.end_ids for one in responses]),
        pad_id=tokenizer.pad_id,
        top=_top(responses, mask_BT, top_tokens) if top_tokens else None,
    )


def _top(responses: Sequence[VllmResponse], mask_BT: Tensor, count: int) -> TopK:
    ids_BTK = torch.zeros(*mask_BT.shape, count, dtype=torch.long)
    logprobs_BTK = torch.zeros(*mask_BT.shape, count)
    top_N = [
        sorted(position.items(), key=lambda entry: -entry[1])[:count]
        for response in responses
        for position in response.top
    ]
    ids_BTK[mask_BT] = torch.tensor([[token for token, _ in entries] for entries in top_N])
    logprobs_BTK[mask_BT] = torch.tensor([[value for _, value in entries] for entries in top_N])
    return TopK(ids_BTK, logprobs_BTK)


def _refuse_different_model(model: PreTrainedModel, served: ServedModel, name: str) -> None:
    """Refuse a model of another type or size, which cannot load the learner's weights."""
    own = model.config.get_text_config()
    for size in SIZES:
        theirs, ours = served.sizes.get(size), getattr(own, size, None)
        if theirs is None or ours is None or theirs == ours:
            continue
        raise EngineError(
            f"it serves a different model: its {size} is {printable(str(theirs))}, the learner's "
            f"is {ours}",
            where=name,
            remedy="serve the model of model.name",
        )


def _refuse_partial(result: LoadResult, sent: int, name: str) -> None:
    if result.error:
        what = f"the weights could not be loaded: {printable(result.error, 200)}"
    elif result.missing:
        what = f"the sync did not set all weights, such as {printable(result.missing[0])}"
    elif result.tensors != sent:
        what = f"the sync sent {sent} weights, and {result.tensors} arrived"
    else:
        return
    raise EngineError(
        what,
        where=name,
        remedy="set engine.sync_dir to a directory that vLLM sees under the same path, and serve "
        "the model of model.name",
    )


def _unexpected(what: str, backend: Backend) -> EngineError:
    return EngineError(
        f"vLLM returned {what}",
        where=backend.name,
        remedy="use vLLM 0.10.2 or newer, and set no stop words or limits on the server",
    )
