"""Batched sampling with a KV cache, fast for small models.

Each distinct prompt is read once, however many responses it gets; a step is one forward pass over
the rows still running; rows that ended are dropped once they are half of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from grpodoctor.errors import DataError
from grpodoctor.trainer.engines.fast_decoding import Stepper, stepper_of
from grpodoctor.trainer.engines.top_tokens import TopTokenBuffer
from grpodoctor.trainer.model.forward import casting, pack_left, positions
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
    first: int = 0,
    total: int | None = None,
    routers: Routers | None = None,
    top_tokens: int = 0,
) -> Samples:
    """Draw one response per prompt; repeat a prompt for a group.

    A row's tokens depend on its own logits, on the generator and on its number in the batch alone:
    a batch that several processes share is the batch that one process draws, up to how the rounding
    of a forward pass depends on the rows beside it.

    Args:
        model: a causal language model of transformers, in evaluation mode.
        prompts: prompt ids per response, none of them empty.
        max_length: longest response, in tokens.
        temperature: divides the logits; 0 takes the likeliest token, and its log-probability is
            then that at temperature 1.
        tokenizer: says what ends a response and what pads it.
        generator: the only source of randomness; a call takes one number of it.
        first: the number of the first row, where these are part of a batch drawn in several calls
            with generators in the same state.
        total: rows of that whole batch; the rows up to the last of these by default.
        routers: the model's, to have the experts that it activates with the responses.
        top_tokens: how many of the likeliest tokens to tell at each position; 0 tells none.

    Raises:
        DataError: if a prompt and its response may not fit the model's context.
    """
    distinct, origin_B = _distinct(prompts, model.device)
    _refuse_too_long(model, max(map(len, distinct)), max_length)
    prompt_tokens, prompt_attention = pack_left(distinct, tokenizer.pad_id, model.device)
    rows = range(first, first + len(prompts))
    draws = _UniformDraws(generator, rows, rows.stop if total is None else total)
    count = min(top_tokens, model.config.get_text_config().vocab_size)
    sizes = (len(prompts), max_length, count)
    tops = TopTokenBuffer(*sizes, temperature, model.device) if count else None
    with ExitStack() as stack:
        book = None
        if routers is not None:
            record = stack.enter_context(routers.recording())
            book = ExpertBuffer(record, routers, prompt_attention, origin_B, max_length)
        decoder = _Decoder(model, max_length, temperature, tokenizer, draws, book, tops)
        response_BT, logprobs_BT, mask_BT = decoder.run(prompt_tokens, prompt_attention, origin_B)
    ended_B = _ends(response_BT, mask_BT, tokenizer).any(dim=1)
    return Samples(
        tokens_BL=torch.cat([prompt_tokens[origin_B], response_BT], dim=1),
        attention_BL=torch.cat([prompt_attention[origin_B], mask_BT], dim=1),
        prompt_width=prompt_tokens.shape[1],
        logprobs_BT=logprobs_BT,
        truncated_B=~ended_B,
        pad_id=tokenizer.pad_id,
        experts_BLDK=None if book is None else book.experts(response_BT.shape[1]),
        top=None if tops is None else tops.top(response_BT.shape[1]),
    )


def _distinct(
    prompts: Sequence[Sequence[int]], device: torch.device
) -> tuple[list[tuple[int, ...]], Tensor]:
    """Each prompt once, and which of them every response answers, (B,)."""
    distinct = list(dict.fromkeys(map(tuple, prompts)))
    place = {prompt: index for index, prompt in enumerate(distinct)}
    return distinct, torch.tensor([place[tuple(prompt)] for prompt in prompts], device=device)


def _refuse_too_long(model: PreTrainedModel, prompt_length: int, max_length: int) -> None:
    """Beyond its context a model fails inside torch, or writes nonsense."""
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
    """True at these ids, (V,); a look-up in it is several times as fast as `isin`."""
    flags_V = torch.zeros(vocabulary, dtype=torch.bool, device=device)
    flags_V[[each for each in ids if each < vocabulary]] = True
    return flags_V


class _UniformDraws:
    """One uniform number per row of the whole batch and position, whoever is still running.

    They come from a generator of their own, so that the caller's does not depend on how long the
    responses became; on the CPU, so that they are the same whatever device the model is on.
    """

    def __init__(self, generator: torch.Generator, rows: range, total: int) -> None:
        seed = int(torch.randint(2**63 - 1, (), generator=generator))
        self._generator = torch.Generator().manual_seed(seed)
        self._rows, self._total = slice(rows.start, rows.stop), total

    def throw(self) -> Tensor:
        """The next position's numbers of these rows, in [0, 1), shape (B,), float64."""
        return torch.rand(self._total, dtype=torch.float64, generator=self._generator)[self._rows]


class _Decoder:
    """The decoding loop: one forward pass per token over the rows still running."""

    def __init__(
        self,
        model: PreTrainedModel,
        max_length: int,
        temperature: float,
        tokenizer: Tokenizer,
        draws: _UniformDraws,
        book: ExpertBuffer | None,
        tops: TopTokenBuffer | None,
    ) -> None:
        self._model, self._max_length, self._temperature = model, max_length, temperature
        self._codec, self._dice, self._book, self._tops = tokenizer, draws, book, tops

    def run(
        self, prompt_tokens: Tensor, prompt_attention: Tensor, origin_B: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Responses, their log-probabilities and their mask, each (B, T), T the longest.

        The buffers are made outside of inference mode, so that autograd may use them later.
        """
        shape, device = (origin_B.shape[0], self._max_length), origin_B.device
        response_BT = torch.full(shape, self._codec.pad_id, device=device)
        logprobs_BT = torch.zeros(shape, device=device)
        mask_BT = torch.zeros(shape, dtype=torch.bool, device=device)
        with torch.inference_mode(), casting(self._model):
            length = self._decode(
                prompt_tokens, prompt_attention, origin_B, (response_BT, logprobs_BT, mask_BT)
            )
        return tuple(each[:, :length].clone() for each in (response_BT, logprobs_BT, mask_BT))  # type: ignore[return-value]  # three

    def _decode(
        self,
        prompt_tokens: Tensor,
        prompt_attention: Tensor,
        origin_B: Tensor,
        buffers: tuple[Tensor, Tensor, Tensor],
    ) -> int:
        """Fill the buffers; returns the length of the longest response."""
        response_BT, logprobs_BT, mask_BT = buffers
        logits_RV, stepper = self._prefill(prompt_tokens, prompt_attention, origin_B)
        rows_R = torch.arange(origin_B.shape[0], device=origin_B.device)
        running_R = torch.ones_like(rows_R, dtype=torch.bool)
        positions_R = prompt_attention.sum(dim=1)[origin_B]
        ends_V = _flags(self._codec.end_ids, logits_RV.shape[1], origin_B.device)
        for index in range(self._max_length):
            uniform_R = self._dice.throw().to(rows_R.device)[rows_R]
            tokens_R, chosen_R = draw_tokens(logits_RV, self._temperature, uniform_R)
            response_BT[rows_R, index] = tokens_R.where(running_R, self._codec.pad_id)
            logprobs_BT[rows_R, index] = chosen_R.where(running_R, 0.0)
            mask_BT[rows_R, index] = running_R
            if self._tops:
                self._tops.note(logits_RV[running_R], rows_R[running_R], index)
            running_R &= ~ends_V[tokens_R]
            left = int(running_R.sum())
            if left == 0 or index + 1 == self._max_length:
                return index + 1
            if 2 * left <= running_R.shape[0]:
                stepper.keep(kept := running_R.nonzero().squeeze(1))
                rows_R, tokens_R, positions_R = rows_R[kept], tokens_R[kept], positions_R[kept]
                running_R = running_R[kept]
            logits_RV = stepper.step(tokens_R, positions_R + index)
            if self._book:
                self._book.note_token(rows_R, running_R, index)
        return self._max_length

    def _prefill(
        self, prompt_tokens: Tensor, prompt_attention: Tensor, origin_B: Tensor
    ) -> tuple[Tensor, Stepper]:
        """Read each distinct prompt once and give every response its own row of the cache."""
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
        if self._book:
            self._book.note_prompt()
        cache.batch_select_indices(origin_B)
        stepper = stepper_of(self._model, cache, prompt_attention[origin_B], self._max_length)
        return output.logits[:, -1].float()[origin_B], stepper


_CHUNK_ELEMENTS = 1 << 20
"""Probabilities that are summed up at once: 8 MB of them."""


def draw_tokens(logits_RV: Tensor, temperature: float, uniform_R: Tensor) -> tuple[Tensor, Tensor]:
    """A token per row and its log-probability, by inverting the distribution function.

    The sums are float64: in float32 those over a large vocabulary are off by more than the
    probability of most of its tokens.

    Args:
        logits_RV: float32.
        temperature: divides the logits; 0 takes the likeliest token, and its log-probability is
            then that at temperature 1.
        uniform_R: in [0, 1), float64; a row's only randomness.

    Returns:
        Tokens, int64, and their log-probabilities, float32, shape (R,) each. A token of probability
        0 is never drawn. A row that is not finite gives NaN and whatever token.
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
    logprobs_RV = torch.log_softmax(logits_RV / (temperature or 1.0), dim=-1)
    if temperature == 0:
        tokens_R1 = logprobs_RV.argmax(dim=-1, keepdim=True)
    else:
        sums_RV = logprobs_RV.exp().cumsum(dim=-1, dtype=torch.float64)
        # The first token whose sum exceeds the threshold, which is below the last sum since u < 1:
        # each token that adds nothing has the sum of the one before it and is never the first.
        threshold_R1 = uniform_R[:, None] * sums_RV[:, -1:]
        tokens_R1 = torch.searchsorted(sums_RV, threshold_R1, right=True)
        tokens_R1.clamp_(max=logits_RV.shape[1] - 1)  # of NaN, which nothing exceeds
    return tokens_R1[:, 0], logprobs_RV.gather(1, tokens_R1)[:, 0]
