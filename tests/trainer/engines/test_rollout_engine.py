import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpodoctor.trainer.config.sections import EngineConfig
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.trainer.data.loading import build_task
from grpodoctor.trainer.engines.quantization import fake_quantize
from grpodoctor.trainer.engines.rollout_engine import BuiltinEngine
from grpodoctor.trainer.model.forward import response_logits
from grpodoctor.trainer.model.policy import Policy
from grpodoctor.trainer.samples import Samples


def engine_of(policy: Policy, **engine: object) -> BuiltinEngine:
    return BuiltinEngine(load_config({"engine": engine}), policy)


def prompts_of(policy: Policy, count: int = 64) -> list[list[int]]:
    task = build_task(TrainConfig().task)
    return [policy.tokenizer.encode(each.prompt) for each in task.heldout(count) for _ in range(4)]


def learner_logprobs(policy: Policy, samples: Samples, temperature: float = 1.0) -> torch.Tensor:
    with torch.no_grad():
        logits_BTV = response_logits(
            policy.model, samples.tokens_BL, samples.attention_BL, samples.prompt_width
        )
    logprobs_BTV = (logits_BTV / temperature).log_softmax(-1)
    return logprobs_BTV.gather(2, samples.response_BT.unsqueeze(2)).squeeze(2)


def probability_gap(policy: Policy, samples: Samples, temperature: float = 1.0) -> float:
    """Mean |p_learner - p_sampler| over the sampled tokens."""
    learner = learner_logprobs(policy, samples, temperature).exp()
    return float((learner - samples.logprobs_BT.exp()).abs()[samples.mask_BT].mean())


@pytest.mark.parametrize(
    ("precision", "low", "high"),
    [("learner", 0, 1e-6), ("bf16", 1e-5, 0.01), ("int8", 1e-5, 0.004), ("int4", 0.005, 0.08)],
)
def test_each_precision_is_as_far_from_the_learner_as_it_should_be(
    warm_policy: Policy, precision: str, low: float, high: float
) -> None:
    samples = engine_of(warm_policy, precision=precision).generate(
        prompts_of(warm_policy), torch.Generator().manual_seed(0)
    )
    assert low <= probability_gap(warm_policy, samples) < high


def test_int4_is_further_than_int8(warm_policy: Policy) -> None:
    gaps = {}
    for precision in ("int8", "int4"):
        samples = engine_of(warm_policy, precision=precision).generate(
            prompts_of(warm_policy), torch.Generator().manual_seed(0)
        )
        gaps[precision] = probability_gap(warm_policy, samples)
    assert gaps["int4"] > 5 * gaps["int8"]


def test_an_engine_reports_its_own_distribution(warm_policy: Policy) -> None:
    """The log-probabilities are those of the quantized model, not of the learner."""
    engine = engine_of(warm_policy, precision="int4", temperature=0.8)
    samples = engine.generate(prompts_of(warm_policy), torch.Generator().manual_seed(0))
    quantised = Policy(engine.model, warm_policy.tokenizer, "int4")
    assert probability_gap(quantised, samples, 0.8) < 1e-6
    assert probability_gap(quantised, samples, 1.0) > 0.01


def test_the_output_head_and_the_learner_stay_as_they_are(warm_policy: Policy) -> None:
    before = copy.deepcopy(warm_policy.model.state_dict())
    engine = engine_of(warm_policy, precision="int4")
    for name, tensor in warm_policy.model.state_dict().items():
        assert torch.equal(tensor, before[name])
    copied = engine.model.state_dict()
    changed = {name for name in copied if not torch.equal(copied[name], before[name])}
    assert changed == {name for name in copied if "proj.weight" in name}
    assert torch.equal(copied["lm_head.weight"], copied["model.embed_tokens.weight"])


def fresh(policy: Policy) -> Policy:
    return Policy(copy.deepcopy(policy.model), policy.tokenizer, policy.name)


def nudge(policy: Policy) -> None:
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.05)


def test_the_learner_itself_samples_when_nothing_asks_for_a_copy(warm_policy: Policy) -> None:
    policy = fresh(warm_policy)
    engine = engine_of(policy)
    assert engine.model is policy.model
    nudge(policy)
    assert engine.maybe_sync(1)
    assert engine.synced_step == 1
    samples = engine.generate(prompts_of(policy, 8), torch.Generator().manual_seed(0))
    assert probability_gap(policy, samples) < 1e-6


def test_a_slow_sync_leaves_the_engine_stale(warm_policy: Policy) -> None:
    policy = fresh(warm_policy)
    engine = engine_of(policy, sync_every=3)
    assert engine.model is not policy.model
    synced = []
    for step in range(7):
        synced.append(engine.maybe_sync(step))
        samples = engine.generate(prompts_of(policy, 8), torch.Generator().manual_seed(step))
        gap = probability_gap(policy, samples)
        assert (gap < 1e-6) == (engine.synced_step == step)
        nudge(policy)
    assert synced == [True, False, False, True, False, False, True]
    assert engine.synced_step == 6


def test_settings_change_in_flight(warm_policy: Policy) -> None:
    policy = fresh(warm_policy)
    engine = engine_of(policy, sync_every=100)
    nudge(policy)
    assert not engine.maybe_sync(1)
    engine.set(EngineConfig(sync_every=1), temperature=0.7)
    assert engine.temperature == 0.7
    assert engine.maybe_sync(2)
    assert engine.model is policy.model
    engine.set(EngineConfig(precision="int4", temperature=0.9), temperature=0.7)
    assert engine.temperature == 0.9
    assert engine.maybe_sync(3)
    samples = engine.generate(prompts_of(policy, 8), torch.Generator().manual_seed(0))
    assert probability_gap(policy, samples, 0.9) > 0.003


def test_a_stale_engine_survives_a_resume(warm_policy: Policy) -> None:
    policy = fresh(warm_policy)
    engine = engine_of(policy, sync_every=10, precision="int4")
    engine.sync(4)
    nudge(policy)
    state = copy.deepcopy(engine.state_dict())
    resumed = engine_of(policy, sync_every=10, precision="int4")
    resumed.load_state_dict(state)
    assert resumed.synced_step == 4
    left, right = (
        each.generate(prompts_of(policy, 8), torch.Generator().manual_seed(1))
        for each in (engine, resumed)
    )
    assert torch.equal(left.tokens_BL, right.tokens_BL)
    assert torch.equal(left.logprobs_BT, right.logprobs_BT)
    assert engine_of(policy).state_dict()["weights"] is None


def test_engine_copies_have_no_gradient(warm_policy: Policy) -> None:
    for precision in ("bf16", "int8"):
        engine = engine_of(warm_policy, precision=precision)
        assert not any(parameter.requires_grad for parameter in engine.model.parameters())
    assert all(parameter.requires_grad for parameter in warm_policy.model.parameters())


def test_bf16_computes_in_bf16_and_keeps_the_rotary_table(warm_policy: Policy) -> None:
    model = engine_of(warm_policy, precision="bf16").model
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert {buffer.dtype for buffer in model.buffers()} == {torch.float32}


@given(st.integers(2, 8), st.integers(1, 12), st.integers(1, 300), st.integers(0, 2**31))
def test_quantized_weights_are_on_a_grid_and_near_the_original(
    bits: int, outputs: int, inputs: int, seed: int
) -> None:
    weight = torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(seed))
    quantised = fake_quantize(weight, bits)
    assert quantised.shape == weight.shape
    largest = 2 ** (bits - 1) - 1
    scale = weight.abs().max() / largest
    levels = quantised / scale
    torch.testing.assert_close(levels, levels.round(), atol=1e-3, rtol=0)
    assert levels.unique().numel() <= 2 * largest + 1
    assert ((quantised - weight).abs() <= scale * 0.501).all()
    torch.testing.assert_close(fake_quantize(quantised, bits), quantised)


def test_a_layer_of_zeros_stays_zero() -> None:
    assert torch.equal(fake_quantize(torch.zeros(3, 8), 4), torch.zeros(3, 8))
    assert fake_quantize(torch.ones(2, 4, dtype=torch.bfloat16), 4).dtype == torch.bfloat16
