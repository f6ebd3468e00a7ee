import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from grpodoctor.errors import DataError
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.data.loading import build_task
from grpodoctor.trainer.engines.sampler import draw_tokens, sample
from grpodoctor.trainer.model.forward import positions, response_logits
from grpodoctor.trainer.model.policy import Policy, load_policy
from grpodoctor.trainer.model.tokenizer import CharTokenizer
from grpodoctor.trainer.samples import Samples, concatenate

CODEC = CharTokenizer()
PROMPTS = ["1+2=", "7*3+8-2=", "9=", "4-4+4*4-4=", "0*0="]
ROUNDING = 1e-4
"""Nats by which log-probabilities may differ: other batch sizes take other kernels, whose rounding
in float32 reaches 6e-5 (see `EXACT` in `probe/severity.py`). A wrong row gives tenths of a nat."""


@pytest.fixture(scope="module")
def policy() -> Policy:
    """Untrained, so that responses end early, late and never."""
    config = load_config({"model": {"warm_start_steps": 0, "width": 32, "heads": 2}})
    policy = load_policy(config, build_task(config.task))
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(2.0)
    return policy


def draw(policy: Policy, texts: list[str], **settings: object) -> Samples:
    options = {"max_length": 24, "temperature": 1.0, "seed": 0, **settings}
    generator = torch.Generator().manual_seed(options.pop("seed"))
    prompts = [policy.tokenizer.encode(text) for text in texts]
    return sample(policy.model, prompts, tokenizer=policy.tokenizer, generator=generator, **options)


def teacher_forced(policy: Policy, samples: Samples, temperature: float = 1.0) -> Tensor:
    with torch.no_grad():
        logits_BTV = response_logits(
            policy.model, samples.tokens_BL, samples.attention_BL, samples.prompt_width
        )
    logprobs_BTV = torch.log_softmax(logits_BTV.double() / temperature, dim=-1)
    return logprobs_BTV.gather(2, samples.response_BT.unsqueeze(2)).squeeze(2)


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])
def test_logprobs_are_those_of_a_forward_pass_over_the_finished_batch(
    policy: Policy, temperature: float
) -> None:
    samples = draw(policy, PROMPTS * 24, temperature=temperature, max_length=40)
    lengths = samples.mask_BT.sum(dim=1)
    assert lengths.min() < 5
    assert lengths.max() == 40, "rows must end at different times, so that some are dropped"
    expected = teacher_forced(policy, samples, temperature)
    torch.testing.assert_close(
        samples.logprobs_BT.double()[samples.mask_BT],
        expected[samples.mask_BT],
        atol=ROUNDING,
        rtol=0,
    )


def test_logprobs_hold_on_the_warm_started_model(warm_policy: Policy) -> None:
    samples = draw(warm_policy, PROMPTS * 24)
    error = (samples.logprobs_BT - teacher_forced(warm_policy, samples)).abs()[samples.mask_BT]
    assert error.mean() < 1e-5
    assert error.max() < 1e-3


def test_padding_changes_no_number(policy: Policy) -> None:
    together = draw(policy, PROMPTS * 4, max_length=12)
    logits = teacher_forced(policy, together)
    for row in range(len(PROMPTS)):
        one = together.rows([row])
        left = int((~one.attention_BL[0, : one.prompt_width]).sum())
        alone = Samples(
            tokens_BL=one.tokens_BL[:, left:],
            attention_BL=one.attention_BL[:, left:],
            prompt_width=one.prompt_width - left,
            logprobs_BT=one.logprobs_BT,
            truncated_B=one.truncated_B,
            pad_id=one.pad_id,
        )
        mask = alone.mask_BT
        torch.testing.assert_close(
            teacher_forced(policy, alone)[mask], logits[row : row + 1][mask], atol=ROUNDING, rtol=0
        )


def test_the_layout_is_left_padded_and_ends_with_the_end_token(policy: Policy) -> None:
    samples = draw(policy, PROMPTS * 30)
    end = torch.tensor(sorted(CODEC.end_ids))
    for row, text in enumerate(PROMPTS * 30):
        tokens, attention = samples.tokens_BL[row], samples.attention_BL[row]
        prompt = tokens[: samples.prompt_width][attention[: samples.prompt_width]]
        assert prompt.tolist() == CODEC.encode(text)
        ids = samples.response_ids()[row]
        ended = [index for index, token in enumerate(ids) if token in CODEC.end_ids]
        assert ended == ([] if samples.truncated_B[row] else [len(ids) - 1])
        assert samples.truncated_B[row] or len(ids) <= 24
        assert not samples.truncated_B[row] or len(ids) == 24
    outside = ~samples.mask_BT
    assert (samples.response_BT[outside] == CODEC.pad_id).all()
    assert (samples.logprobs_BT[outside] == 0).all()
    assert 0 < samples.truncated_B.sum() < len(samples)
    assert torch.isin(samples.response_BT, end).any(dim=1).equal(~samples.truncated_B)


def test_first_tokens_are_distributed_as_the_softmax(policy: Policy) -> None:
    count, temperature = 10_000, 1.3
    samples = draw(policy, ["7*3="] * count, max_length=1, temperature=temperature)
    one = samples.rows([0])
    with torch.no_grad():
        logits_V = response_logits(policy.model, one.tokens_BL, one.attention_BL, one.prompt_width)[
            0, 0
        ]
    expected = torch.softmax(logits_V.double() / temperature, dim=0) * count
    observed = torch.bincount(samples.response_BT[:, 0], minlength=CODEC.vocab_size).double()
    frequent = expected >= 5
    observed = torch.cat([observed[frequent], observed[~frequent].sum().reshape(1)])
    expected = torch.cat([expected[frequent], expected[~frequent].sum().reshape(1)])
    assert stats.chisquare(observed.numpy(), expected.numpy()).pvalue > 1e-3
    wrong = expected.roll(1)
    assert stats.chisquare(observed.numpy(), wrong.numpy()).pvalue < 1e-9


def test_later_tokens_are_distributed_as_the_softmax_given_the_earlier(policy: Policy) -> None:
    """With u = P(smaller id) + uniform * P(id), every u is uniform if the sampling is right."""
    samples = draw(policy, PROMPTS * 100, seed=3)
    with torch.no_grad():
        logits_BTV = response_logits(
            policy.model, samples.tokens_BL, samples.attention_BL, samples.prompt_width
        )
    probs_BTV = torch.softmax(logits_BTV.double(), dim=-1)
    picked_BT1 = samples.response_BT.unsqueeze(2)
    upper = probs_BTV.cumsum(dim=-1).gather(2, picked_BT1).squeeze(2)
    width = probs_BTV.gather(2, picked_BT1).squeeze(2)
    jitter = torch.rand(width.shape, generator=torch.Generator().manual_seed(1))
    uniform = (upper - jitter * width)[samples.mask_BT]
    assert stats.kstest(uniform.numpy(), "uniform").pvalue > 1e-3


def test_sampling_depends_only_on_the_generator(policy: Policy) -> None:
    torch.manual_seed(1)
    first = draw(policy, PROMPTS * 8, seed=5)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    again, other = draw(policy, PROMPTS * 8, seed=5), draw(policy, PROMPTS * 8, seed=6)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.tokens_BL, again.tokens_BL)
    assert torch.equal(first.logprobs_BT, again.logprobs_BT)
    assert first.response_ids() != other.response_ids()


@pytest.mark.slow
@given(
    cuts=st.lists(st.integers(1, 29), max_size=6, unique=True).map(sorted),
    seed=st.integers(0, 2**31),
    temperature=st.sampled_from([0.7, 1.0]),
)
def test_a_batch_drawn_in_parts_is_the_batch_drawn_at_once(
    policy: Policy, cuts: list[int], seed: int, temperature: float
) -> None:
    texts = PROMPTS * 6
    options = {"seed": seed, "temperature": temperature}
    whole = draw(policy, texts, **options)
    bounds = [0, *cuts, len(texts)]
    parts = [
        draw(policy, texts[start:stop], first=start, total=len(texts), **options)
        for start, stop in pairwise(bounds)
    ]
    joined = concatenate(parts)
    assert joined.response_ids() == whole.response_ids()
    assert joined.truncated_B.equal(whole.truncated_B)
    torch.testing.assert_close(joined.logprobs_BT, whole.logprobs_BT, atol=ROUNDING, rtol=0)


def test_a_row_does_not_depend_on_which_others_end(policy: Policy) -> None:
    """A single row is never dropped or moved; in a batch, both happen."""
    texts = PROMPTS * 8
    together = draw(policy, texts, max_length=40)
    lengths = together.mask_BT.sum(dim=1).float()
    assert (lengths < 25).sum() > len(texts) / 4
    assert (lengths == 40).sum() > len(texts) / 4
    for row in [*lengths.topk(4).indices.tolist(), *(-lengths).topk(4).indices.tolist()]:
        alone = draw(policy, [texts[row]], max_length=40, first=row, total=len(texts))
        assert alone.response_ids() == [together.response_ids()[row]]
        elsewhere = draw(policy, [texts[row]], max_length=40, first=row + 1, total=len(texts) + 1)
        assert elsewhere.response_ids() != alone.response_ids()


def test_the_generator_state_does_not_depend_on_response_lengths(policy: Policy) -> None:
    after = []
    for texts, first, length in [(PROMPTS, 0, 24), (PROMPTS[:1], 4, 1)]:
        generator = torch.Generator().manual_seed(9)
        prompts = [policy.tokenizer.encode(text) for text in texts]
        options = {"max_length": length, "temperature": 1.0, "tokenizer": policy.tokenizer}
        sample(policy.model, prompts, generator=generator, first=first, total=5, **options)
        after.append(generator.get_state())
    assert torch.equal(*after)


LARGE = 150_001


def test_tokens_of_a_large_vocabulary_are_drawn_as_often_as_is_their_probability() -> None:
    """The last 100,000 tokens hold a tenth of the mass, which a float32 sum would lose."""
    share_V = torch.where(torch.arange(LARGE) < 50_001, 0.9 / 50_001, 0.1 / 100_000).double()
    share_V[::3] = 0.0
    share_V /= share_V.sum()
    # No token has more than 2.7e-5 of the mass, so the mass below each token is known to 3e-5.
    uniform_R = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    tokens_R, _ = draw_tokens(share_V.log().float().expand(1000, LARGE), 1.0, uniform_R)
    assert (share_V[tokens_R] > 0).all()
    torch.testing.assert_close(share_V.cumsum(0)[tokens_R], uniform_R, atol=3e-5, rtol=0)


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
@pytest.mark.parametrize("size", [5, 97, LARGE])
def test_no_token_of_probability_zero_is_drawn_at_either_edge(uniform: float, size: int) -> None:
    logits_RV = torch.randn(20, size, generator=torch.Generator().manual_seed(0)) * 4
    logits_RV[:, : size // 4] = -math.inf
    logits_RV[:, -size // 4 :] = -math.inf
    logits_RV[:, -size // 4 - 1] = -200.0  # finite, but its probability rounds to zero
    tokens_R, logprobs_R = draw_tokens(
        logits_RV, 1.0, torch.full((20,), uniform, dtype=torch.float64)
    )
    expected_RV = logits_RV.log_softmax(-1)
    assert (expected_RV.exp().gather(1, tokens_R[:, None]) > 0).all()
    torch.testing.assert_close(logprobs_R, expected_RV.gather(1, tokens_R[:, None])[:, 0])


def test_logits_that_are_not_finite_end_nothing() -> None:
    tokens_R, logprobs_R = draw_tokens(torch.full((2, 7), math.nan), 1.0, torch.rand(2).double())
    assert ((tokens_R >= 0) & (tokens_R < 7)).all()
    assert logprobs_R.isnan().all()


def test_temperature_zero_selects_the_most_likely_token(policy: Policy) -> None:
    samples = draw(policy, PROMPTS, temperature=0)
    with torch.no_grad():
        logits_BTV = response_logits(
            policy.model, samples.tokens_BL, samples.attention_BL, samples.prompt_width
        )
    assert torch.equal(logits_BTV.argmax(-1)[samples.mask_BT], samples.response_BT[samples.mask_BT])
    expected = teacher_forced(policy, samples)[samples.mask_BT]
    torch.testing.assert_close(
        samples.logprobs_BT[samples.mask_BT].double(), expected, atol=ROUNDING, rtol=0
    )


def test_several_end_tokens_all_end(policy: Policy) -> None:
    class ManyEnds(CharTokenizer):
        end_ids = frozenset({1, *CODEC.encode("abcdefghijklmnopqrstuvwxyz0123456789")})

    prompts = [CODEC.encode("1+1=")] * 64
    samples = sample(
        policy.model,
        prompts,
        max_length=40,
        temperature=1.0,
        tokenizer=ManyEnds(),
        generator=torch.Generator().manual_seed(0),
    )
    last = {ids[-1] for ids in samples.response_ids()}
    assert len(last) > 3
    assert last <= ManyEnds.end_ids
    assert not samples.truncated_B.any()


def test_samples_can_be_used_in_autograd(policy: Policy) -> None:
    samples = draw(policy, PROMPTS)
    logits_BTV = response_logits(
        policy.model, samples.tokens_BL, samples.attention_BL, samples.prompt_width
    )
    logprobs = logits_BTV.log_softmax(-1).gather(2, samples.response_BT.unsqueeze(2)).squeeze(2)
    ratio = (logprobs - samples.logprobs_BT).exp() * samples.logprobs_BT
    ratio[samples.mask_BT].sum().backward()
    assert all(parameter.grad is not None for parameter in policy.model.parameters())
    policy.model.zero_grad(set_to_none=True)


def test_concatenating_batches_of_different_widths_changes_nothing(policy: Policy) -> None:
    short = draw(policy, ["9="] * 6, max_length=3)
    long = draw(policy, ["4-4+4*4-4=", "1+2="] * 3, max_length=20, seed=1)
    both = concatenate([short, long])
    assert both.response_ids() == short.response_ids() + long.response_ids()
    assert both.truncated_B.tolist() == short.truncated_B.tolist() + long.truncated_B.tolist()
    expected = teacher_forced(policy, both)[both.mask_BT]
    torch.testing.assert_close(
        both.logprobs_BT[both.mask_BT].double(), expected, atol=ROUNDING, rtol=0
    )
    swapped = both.rows([11, 0])
    assert swapped.response_ids() == [long.response_ids()[5], short.response_ids()[0]]


def test_positions_skip_padding() -> None:
    attention = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0]], dtype=torch.bool)
    assert positions(attention).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 3]]


def test_prompt_logits_are_never_computed(policy: Policy) -> None:
    samples = draw(policy, PROMPTS, max_length=5)
    seen: list[int] = []
    head = policy.model.get_output_embeddings()
    handle = head.register_forward_hook(lambda *args: seen.append(args[-1].shape[1]))
    length = samples.response_BT.shape[1]
    with torch.no_grad():
        logits = response_logits(
            policy.model, samples.tokens_BL, samples.attention_BL, samples.prompt_width
        )
    handle.remove()
    assert seen == [length]
    assert logits.shape == (len(PROMPTS), length, CODEC.vocab_size)
    assert math.isfinite(float(logits.sum()))


def test_responses_beyond_the_context_are_refused_before_sampling(policy: Policy) -> None:
    context = policy.model.config.max_position_embeddings
    fits = context - len(policy.tokenizer.encode("1+2=")) + 1
    with pytest.raises(DataError, match=f"do not fit the model's context of {context} tokens"):
        draw(policy, ["1+2=", "1"], max_length=fits + 1)
    assert len(draw(policy, ["1+2=", "1"], max_length=fits)) == 2
