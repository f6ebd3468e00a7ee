"""Batched sampling with a KV cache, optimized for small models.

Each distinct prompt is read once, however many responses it gets. A step is one forward pass over
the rows still running. Rows that ended are dropped once they make up half of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from grpodoctor.errors import DataError
from grpodoctor.trainer.engines.distribution import Distribution
from grpodoctor.trainer.engines.fast_decoding import StepDecoder, step_decoder_of
from grpodoctor.trainer.engines.top_tokens import TopTokenBuffer
from grpodoctor.trainer.model.forward import autocast_context, pack_left, positions
from grpodoctor.trainer.model.tokenizer import Tokenizer
from grpodoctor.trainer.moe.routers import Routers
from grpodoctor.trainer.moe.routes import ExpertBuffer
from grpodoctor.trainer.samples import Samples

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def sample(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    *,
    max_length: int,
    temperature: float,
    tokenizer: Tokenizer,
    generator: torch.Generator,
    top_p: float = 1.0,
    top_k: int = 0,
    first: int = 0,
    total: int | None = None,
    routers: Routers | None = None,
    top_tokens: int = 0,
) -> Samples:
    """Sample one response per prompt; repeat a prompt for a group.

    A row's tokens depend only on its own logits, on the generator, which gives one number per call,
    and on its number in the batch. Processes that share a batch pass the number of their `first`
    row and the `total` of the batch. They sample the same tokens as one process, except where the
    rounding of a forward pass depends on the other rows.

    Temperature 0 selects the most likely token and reports its log-probability at temperature 1.
    Log-probabilities are those of the distribution that `top_p` and `top_k` truncate. `routers`
    records the activated experts, `top_tokens` the most likely tokens of each position.

    Raises:
        DataError: if a prompt and its response may not fit the model's context.
    """
    distinct, origin_B = _distinct(prompts, model.device)
    _refuse_too_long(model, max(map(len, distinct)), max_length)
    prompt_tokens, prompt_attention = pack_left(distinct, tokenizer.pad_id, model.device)
    rows = range(first, first + len(prompts))
    count = rows.stop if total is None else total
    draws = _UniformDraws(generator, rows, count, model.device)
    top = _top_buffer(model, (len(prompts), max_length), top_tokens, temperature)
    with _recording(routers, prompt_attention, origin_B, max_length) as experts:
        distribution = Distribution(temperature, top_p, top_k)
        decoder = _Decoder(model, max_length, distribution, tokenizer, draws, experts, top)
        response_BT, logprobs_BT, mask_BT = decoder.run(prompt_tokens, prompt_attention, origin_B)
    return Samples(
        tokens_BL=torch.cat([prompt_tokens[origin_B], response_BT], dim=1),
        attention_BL=torch.cat([prompt_attention[origin_B], mask_BT], dim=1),
        prompt_width=prompt_tokens.shape[1],
        logprobs_BT=logprobs_BT,
        truncated_B=~_ends(response_BT, mask_BT, tokenizer).any(dim=1),
        pad_id=tokenizer.pad_id,
        experts_BLDK=None if experts is None else experts.experts(response_BT.shape[1]),
        top=None if top is None else top.top(response_BT.shape[1]),
    )


def _top_buffer(
    model: PreTrainedModel, shape: tuple[int, int], top_tokens: int, temperature: float
) -> TopTokenBuffer | None:
    count = min(top_tokens, model.config.get_text_config().vocab_size)
    return TopTokenBuffer(*shape, count, temperature, model.device) if count else None


@contextmanager
def _recording(
    routers: Routers | None, prompt_attention: Tensor, origin_B: Tensor, max_length: int
) -> Iterator[ExpertBuffer | None]:
    """Record the experts of the forward passes in the body, if the routers are given."""
    if routers is None:
        yield None
        return
    with routers.recording() as record:
        yield ExpertBuffer(record, routers, prompt_attention, origin_B, max_length)


def _distinct(
    prompts: Sequence[Sequence[int]], device: torch.device
) -> tuple[list[tuple[int, ...]], Tensor]:
    """The distinct prompts, and the index of each response's prompt among them, (B,)."""
    distinct = list(dict.fromkeys(map(tuple, prompts)))
    index = {prompt: number for number, prompt in enumerate(distinct)}
    return distinct, torch.tensor([index[tuple(prompt)] for prompt in prompts], device=device)


def _refuse_too_long(model: PreTrainedModel, prompt_length: int, max_length: int) -> None:
    """Refuse what exceeds the context, where a model fails inside torch or generates nonsense."""
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    needed = prompt_length + max_length - 1  # the last token of a response is never read
    if isinstance(context, int) and needed > context:
        raise DataError(
            f"a prompt of {prompt_length} tokens and a response of up to {max_length} do not fit "
            f"the model's context of {context} tokens",
            where="rollout.max_length",
            remedy="lower it, or shorten the prompts",
        )


def _ends(response_BT: Tensor, mask_BT: Tensor, tokenizer: Tokenizer) -> Tensor:
    end_ids = torch.tensor(sorted(tokenizer.end_ids), device=response_BT.device)
    return torch.isin(response_BT, end_ids) & mask_BT


def _flags(ids: Iterable[int], vocabulary: int, device: torch.device) -> Tensor:
    """True at these ids, (V,); indexing it is several times as fast as `isin`."""
    flags_V = torch.zeros(vocabulary, dtype=torch.bool, device=device)
    flags_V[[token for token in ids if token < vocabulary]] = True
    return flags_V


_BLOCK = 64
"""Positions for which numbers are drawn at once."""


class _UniformDraws:
    """Draws a uniform number per position and row of the whole batch, including ended rows.

    It has its own generator, so that the state of the caller's generator does not depend on the
    lengths of the responses. It is on the CPU, so that the numbers are the same on every device.
    """

    def __init__(
        self, generator: torch.Generator, rows: range, total: int, device: torch.device
    ) -> None:
        seed = int(torch.randint(2**63 - 1, (), generator=generator))
        self._generator = torch.Generator().manual_seed(seed)
        self._rows, self._total, self._device = slice(rows.start, rows.stop), total, device
        self._block: Iterator[Tensor] = iter(())

    def draw(self) -> Tensor:
        """The numbers of these rows for the next position, in [0, 1), shape (B,), float64."""
        if (numbers_B := next(self._block, None)) is None:
            shape, generator = (_BLOCK, self._total), self._generator
            block = torch.rand(shape, dtype=torch.float64, generator=generator)[:, self._rows]
            self._block = iter(block.to(self._device))
            numbers_B = next(self._block)
        return numbers_B


class _Decoder:
    """The decoding loop: one forward pass per token over the rows still running."""

    def __init__(
        self,
        model: PreTrainedModel,
        max_length: int,
        distribution: Distribution,
        tokenizer: Tokenizer,
        draws: _UniformDraws,
        expert_buffer: ExpertBuffer | None,
        top_buffer: TopTokenBuffer | None,
    ) -> None:
        self._model, self._max_length, self._distribution = model, max_length, distribution
        self._tokenizer, self._draws = tokenizer, draws
        self._expert_buffer, self._top_buffer = expert_buffer, top_buffer

    def run(
        self, prompt_tokens: Tensor, prompt_attention: Tensor, origin_B: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Decode all rows; returns responses, log-probabilities and mask, each of shape (B, T).

        The buffers are created outside inference mode, so that autograd can use them later.
        """
        shape, device = (origin_B.shape[0], self._max_length), origin_B.device
        response_BT = torch.full(shape, self._tokenizer.pad_id, device=device)
        logprobs_BT = torch.zeros(shape, device=device)
        with torch.inference_mode(), autocast_context(self._model):
            prompts = (prompt_tokens, prompt_attention, origin_B)
            length, ends_V = self._decode(*prompts, response_BT, logprobs_BT)
        response_BT, logprobs_BT = response_BT[:, :length], logprobs_BT[:, :length]
        ends_BT = ends_V.clone()[response_BT]
        mask_BT = ends_BT.cumsum(dim=1) <= ends_BT  # up to the first end
        return (
            response_BT.where(mask_BT, self._tokenizer.pad_id),
            logprobs_BT.where(mask_BT, 0.0),
            mask_BT,
        )

    def _decode(
        self,
        prompt_tokens: Tensor,
        prompt_attention: Tensor,
        origin_B: Tensor,
        response_BT: Tensor,
        logprobs_BT: Tensor,
    ) -> tuple[int, Tensor]:
        """Fill the buffers; what follows the end of a row is arbitrary.

        Returns:
            The length of the longest response, and which tokens end a response, (V,).
        """
        logits_RV, step_decoder = self._prefill(prompt_tokens, prompt_attention, origin_B)
        rows_R = torch.arange(origin_B.shape[0], device=origin_B.device)
        rows: Tensor | slice = slice(None)  # of the buffers
        running_R = torch.ones_like(rows_R, dtype=torch.bool)
        positions_R = prompt_attention.sum(dim=1)[origin_B]
        ends_V = _flags(self._tokenizer.end_ids, logits_RV.shape[1], origin_B.device)
        goes_on_V = ~ends_V
        for index in range(self._max_length):
            logits_RV = self._distribution.truncated(logits_RV)
            uniform_R = self._draws.draw()[rows]
            tokens_R, chosen_R = draw_tokens(logits_RV, self._distribution.temperature, uniform_R)
            response_BT[rows, index] = tokens_R
            logprobs_BT[rows, index] = chosen_R
            if self._top_buffer:
                self._top_buffer.store(logits_RV[running_R], rows_R[running_R], index)
            running_R &= goes_on_V[tokens_R]
            left = int(running_R.sum())
            if left == 0 or index + 1 == self._max_length:
                return index + 1, ends_V
            if 2 * left <= running_R.shape[0]:
                step_decoder.keep(kept := running_R.nonzero().squeeze(1))
                rows_R, tokens_R, positions_R = rows_R[kept], tokens_R[kept], positions_R[kept]
                running_R, rows = running_R[kept], rows_R
            logits_RV = step_decoder.step(tokens_R, positions_R + index)
            if self._expert_buffer:
                self._expert_buffer.store_token(rows_R, running_R, index)
        return self._max_length, ends_V

    def _prefill(
        self, prompt_tokens: Tensor, prompt_attention: Tensor, origin_B: Tensor
    ) -> tuple[Tensor, StepDecoder]:
        """Read each distinct prompt once and copy its cache to the rows of its responses."""
        from grpodoctor.trainer.engines.kv_cache import preallocated_cache  # imports transformers

        cache = preallocated_cache(self._model, self._max_length)
        output = self._model(
            input_ids=prompt_tokens,
            attention_mask=prompt_attention.long(),
            position_ids=positions(prompt_attention),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        if self._expert_buffer:
            self._expert_buffer.store_prompt()
        cache.batch_select_indices(origin_B)
        step_decoder = step_decoder_of(
            self._model, cache, prompt_attention[origin_B], self._max_length
        )
        return output.logits[:, -1].float()[origin_B], step_decoder


_CHUNK_ELEMENTS = 1 << 20
"""Probabilities that are summed at once: 8 MB in float64."""


def draw_tokens(logits_RV: Tensor, temperature: float, uniform_R: Tensor) -> tuple[Tensor, Tensor]:
    """Sample a token per row by inverting the cumulative distribution function.

    The sums are float64. In float32, the error of a sum over a large vocabulary exceeds the
    probability of most tokens.

    The only randomness is `uniform_R`, float64 in [0, 1). Temperature 0 is as for `sample`.

    Returns:
        Tokens, int64, and their log-probabilities, float32, shape (R,) each. A token of probability
        0 is never drawn. A row with non-finite logits gives NaN and an arbitrary token.
    """
    rows = max(1, _CHUNK_ELEMENTS // logits_RV.shape[1])
    if rows >= len(logits_RV):
        return _draw_rows(logits_RV, temperature, uniform_R)
    drawn = [
        _draw_rows(logits, temperature, uniform)
        for logits, uniform in zip(
            torch.split(logits_RV, rows), torch.split(uniform_R, rows), strict=True
        )
    ]
    return torch.cat([tokens for tokens, _ in drawn]), torch.cat([chosen for _, chosen in drawn])


def _draw_rows(logits_RV: Tensor, temperature: float, uniform_R: Tensor) -> tuple[Tensor, Tensor]:
    if temperature not in (0, 1):
        logits_RV = logits_RV / temperature
    logprobs_RV = torch.log_softmax(logits_RV, dim=-1)
    if temperature == 0:
        tokens_R1 = logprobs_RV.argmax(dim=-1, keepdim=True)
    else:
        sums_RV = logprobs_RV.exp().cumsum(dim=-1, dtype=torch.float64)
        # The first token whose cumulative sum exceeds the threshold, which is below the last sum
        # because u < 1. A token of probability 0 has the same sum as the token before it, so it is
        # never the first.
        threshold_R1 = uniform_R[:, None] * sums_RV[:, -1:]
        tokens_R1 = torch.searchsorted(sums_RV, threshold_R1, right=True)
        tokens_R1.clamp_(max=logits_RV.shape[1] - 1)  # for NaN, which no sum exceeds
    return tokens_R1[:, 0], logprobs_RV.gather(1, tokens_R1)[:, 0]
