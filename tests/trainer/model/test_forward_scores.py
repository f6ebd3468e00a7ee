"""Scores without logits equal those with logits, in every part of the trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    PreTrainedModel,
)

from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.engines.top_tokens import TopK
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model import forward_scores as scores_module
from grpodoctor.trainer.model.checkpoint import checkpoints
from grpodoctor.trainer.model.forward import gradient_checkpointing, set_compute_dtype
from grpodoctor.trainer.model.forward_scores import ForwardOutput, forward_scores
from grpodoctor.trainer.model.output_head import output_head
from grpodoctor.trainer.samples import Samples
from tests.forked import forked_ranks
from tests.samples import sampled
from tests.trainer.families import _SHAPE, FAMILIES, build, save
from tests.trainer.model.test_model_families import assert_resumes_exactly, small

CAPPED: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "gemma2": (Gemma2ForCausalLM, Gemma2Config, {"final_logit_softcapping": 2.0, "head_dim": 8}),
    "cohere": (CohereForCausalLM, CohereConfig, {"logit_scale": 0.3}),
    "granite": (GraniteForCausalLM, GraniteConfig, {"logits_scaling": 7.0}),
}
"""Families that change the logits after the head."""
ROWS, PROMPT, LENGTH, TOP = 3, 4, 6, 5


def model_of(family: str) -> PreTrainedModel:
    if family not in CAPPED:
        return build(family)
    model, config, more = CAPPED[family]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return model(config(**{**_SHAPE, **more})).eval()


def samples_of(model: PreTrainedModel) -> Samples:
    """Responses of different lengths to prompts of different lengths, with likely tokens."""
    generator = torch.Generator().manual_seed(1)
    vocabulary = model.config.vocab_size
    tokens_BL = torch.randint(4, vocabulary, (ROWS, PROMPT + LENGTH), generator=generator)
    attention_BL = torch.ones_like(tokens_BL, dtype=torch.bool)
    attention_BL[1, :2] = attention_BL[2, -3:] = attention_BL[0, -1:] = False
    top_BTK = torch.randint(vocabulary, (ROWS, LENGTH, TOP), generator=generator)
    return Samples(
        tokens_BL=tokens_BL,
        attention_BL=attention_BL,
        prompt_width=PROMPT,
        logprobs_BT=torch.zeros(ROWS, LENGTH),
        truncated_B=torch.zeros(ROWS, dtype=torch.bool),
        pad_id=0,
        top=TopK(top_BTK, torch.zeros(top_BTK.shape)),
    )


@pytest.fixture
def without_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores_module, "_MOST_LOGITS", 0)


def passed(model: PreTrainedModel, most: int) -> tuple[ForwardOutput, list[Tensor], list[int]]:
    """Scores, gradients, and the number of logits of each pass."""
    formed: list[int] = []
    head = model.get_output_embeddings()
    handle = head.register_forward_hook(lambda *given: formed.append(given[-1].numel()))
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    samples = samples_of(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scores_module, "_MOST_LOGITS", most)
        output_head(model)  # measured before the pass is watched
        formed.clear()
        output = forward_scores(model, samples, 0.8, with_top=True)
    handle.remove()
    factors_BT = torch.linspace(-1, 2, ROWS * LENGTH).view(ROWS, LENGTH)
    loss = (factors_BT * output.logprobs_BT).sum() + (output.entropy_BT * factors_BT).sum()
    gradients = torch.autograd.grad(loss, weights, allow_unused=True)
    return output, [each for each in gradients if each is not None], formed


def assert_same(model: PreTrainedModel, *, tolerance: float = 2e-6) -> None:
    logits, right, formed = passed(model, 10**9)
    assert formed == [ROWS * LENGTH * model.config.vocab_size]
    hidden, own, formed = passed(model, 0)
    assert formed == [0]
    for name in ("logprobs_BT", "entropy_BT"):
        values = (getattr(hidden, name), getattr(logits, name))
        assert values[0].dtype == torch.float32
        torch.testing.assert_close(*values, atol=tolerance, rtol=tolerance)
    assert hidden.top is not None
    assert logits.top is not None
    for values in zip(hidden.top, logits.top, strict=True):
        torch.testing.assert_close(*values, atol=2 * tolerance, rtol=tolerance)
    assert len(own) == len(right)
    for gradients in zip(own, right, strict=True):
        torch.testing.assert_close(*gradients, atol=10 * tolerance, rtol=1000 * tolerance)


@pytest.mark.parametrize("family", [*FAMILIES, *CAPPED])
def test_hidden_states_and_logits_give_the_same_scores_and_gradients(family: str) -> None:
    assert_same(model_of(family))


def test_half_precision_products_give_the_same_scores_and_gradients_as_exact() -> None:
    model = build("qwen2")
    _, exact, _ = passed(model, 10**9)
    set_compute_dtype(model, torch.bfloat16)
    (logits, right, _), (hidden, own, _) = passed(model, 10**9), passed(model, 0)
    torch.testing.assert_close(hidden.logprobs_BT, logits.logprobs_BT, atol=1e-4, rtol=0)
    torch.testing.assert_close(hidden.entropy_BT, logits.entropy_BT, atol=1e-4, rtol=0)
    own_error, error = (
        torch.cat([(a - b).flatten() for a, b in zip(gradients, exact, strict=True)]).norm()
        for gradients in (own, right)
    )
    assert own_error < 1.2 * error


def test_a_frozen_head_gets_no_gradient() -> None:
    model = build("qwen3")
    model.get_output_embeddings().requires_grad_(False)
    assert_same(model)


def test_recomputed_layers_do_not_score_twice(without_logits: None) -> None:
    model = build("qwen2")
    plain = forward_scores(model, samples_of(model), 1.0)
    plain.logprobs_BT.sum().backward()
    right = [weight.grad for weight in model.parameters()]
    model.zero_grad()
    with gradient_checkpointing(model, enabled=True):
        again = forward_scores(model, samples_of(model), 1.0)
    again.logprobs_BT.sum().backward()
    assert torch.equal(plain.logprobs_BT, again.logprobs_BT)
    assert all(map(torch.equal, right, [weight.grad for weight in model.parameters()]))


@pytest.mark.parametrize(
    ("family", "scale", "softcap"),
    [("qwen2", 1.0, None), ("gemma2", 1.0, 2.0), ("cohere", 0.3, None), ("granite", 1 / 7, None)],
)
def test_the_models_own_code_says_what_follows_the_head(
    family: str, scale: float, softcap: float | None
) -> None:
    head = output_head(model_of(family))
    assert head is not None
    assert head.scale == pytest.approx(scale, rel=1e-6)
    assert head.softcap == softcap


class Squared(type(build("qwen2"))):  # type: ignore[misc]
    """A model whose logits are no scaled or capped product."""

    def forward(self, *arguments: Any, **inputs: Any) -> Any:
        output = super().forward(*arguments, **inputs)
        output.logits = output.logits.square()
        return output


def test_a_model_with_other_steps_after_the_head_keeps_its_logits(without_logits: None) -> None:
    model = Squared(build("qwen2").config).eval()
    assert output_head(model) is None
    samples = samples_of(model)
    scored = forward_scores(model, samples, 1.0)
    with torch.no_grad():
        logits_TV = model(input_ids=samples.tokens_BL[:1]).logits[0, PROMPT - 1 : -2]
    right_T = logits_TV.log_softmax(-1).gather(1, samples.response_BT[0, : LENGTH - 1, None])[:, 0]
    torch.testing.assert_close(scored.logprobs_BT[0, : LENGTH - 1], right_T, atol=1e-4, rtol=1e-4)


def test_a_head_of_another_kind_keeps_its_logits(without_logits: None) -> None:
    model = build("qwen2", tie_word_embeddings=False)
    right = forward_scores(model, samples_of(model), 1.0)

    class Wrapped(nn.Linear):
        """A head that is no plain linear layer, such as a quantized one."""

    plain = model.get_output_embeddings()
    wrapped = Wrapped(plain.in_features, plain.out_features, bias=False)
    wrapped.weight = plain.weight
    model.set_output_embeddings(wrapped)
    assert output_head(model) is None
    scored = forward_scores(model, samples_of(model), 1.0)
    torch.testing.assert_close(scored.logprobs_BT, right.logprobs_BT, atol=2e-6, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("family", sampled(["qwen2", "qwen3_moe"], {"qwen2"}))
def test_a_run_without_logits_resumes_bit_for_bit(
    family: str, without_logits: None, tmp_path: Path
) -> None:
    """The weights also follow those of a run with logits, up to rounding."""
    folder = save(family, tmp_path / "model")
    replay = ["engine.routing_replay=R2"] if family == "qwen3_moe" else []
    resumed = assert_resumes_exactly(small(folder, *replay), tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scores_module, "_MOST_LOGITS", 10**9)
        other = Trainer(small(folder, *replay), tmp_path / "logits")
        other.run()
    left, right = (trainer.policy.model.state_dict() for trainer in (resumed, other))
    for name, tensor in left.items():
        torch.testing.assert_close(tensor, right[name], atol=2e-4, rtol=1e-2)


PROGRAM = """
import sys
from pathlib import Path
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.distributed.ranks import exit_rank, process_group, ranks_from_environment
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model import forward_scores

forward_scores._MOST_LOGITS = 0
ranks = ranks_from_environment()
with process_group(ranks, 120):
    Trainer(load_config(assignments=sys.argv[1:]), Path("run"), ranks=ranks).run()
exit_rank(ranks)
"""


@pytest.mark.parametrize(
    "more",
    [
        pytest.param([], marks=pytest.mark.slow),
        ["model.lora_rank=4", "optimizer.micro_batch=3"],
    ],
)
def test_sharded_weights_are_gathered_for_scores_without_logits(
    more: list[str], without_logits: None, tmp_path: Path
) -> None:
    settings = [
        *("threads=1", "model.warm_start_steps=0", "evaluation.every=0", "steps=2"),
        *("rollout.prompts_per_batch=5", "rollout.group_size=3", "rollout.max_length=9"),
        *("overlong.kind=soft-punishment", "overlong.buffer=9", "loss.entropy_coefficient=0.01"),
        *("optimizer.updates_per_batch=2", *more),
    ]
    Trainer(load_config(assignments=settings), tmp_path / "alone").run()
    with forked_ranks(PROGRAM, *settings, cwd=tmp_path) as ranks:
        for rank in ranks:
            _, said = rank.communicate(timeout=200)
            assert rank.returncode == 0, said
    (left, right) = (checkpoints(tmp_path / name)[-1] for name in ("alone", "run"))
    files = list(left.glob("*.safetensors"))
    assert files
    for file in files:
        expected = load_file(file)
        for name, tensor in load_file(right / file.name).items():
            torch.testing.assert_close(tensor, expected[name], atol=1e-5, rtol=1e-3)
