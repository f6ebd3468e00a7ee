"""Losses against TRL's own code, on the same model and tokens.

Settings compensate for deviations, which the variants' pages name: TRL's CISPO bounds
the weight itself, and its VESPO takes the old policy for the sampler.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.aggregation import StepTokens, token_weights
from grpodoctor.trainer.algorithms.corrections.base import CorrectionInputs
from grpodoctor.trainer.algorithms.corrections.settings import CorrectionConfig
from grpodoctor.trainer.algorithms.kl.base import KlInputs
from grpodoctor.trainer.algorithms.losses.base import LossInputs
from grpodoctor.trainer.algorithms.registry import correction_of, kl_of, loss_of, reweighting_of
from grpodoctor.trainer.algorithms.reweightings.base import ReweightingInputs
from grpodoctor.trainer.algorithms.reweightings.settings import ReweightingConfig
from grpodoctor.trainer.algorithms.sequence_mask import stale_responses
from grpodoctor.trainer.config.loss import loss_config

# TRL and its dependencies have warnings of their own.
pytestmark = pytest.mark.filterwarnings("ignore")

RESPONSES, PROMPT, BUDGET, VOCABULARY = 6, 3, 7, 20


@pytest.fixture(scope="module")
def trl_trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from datasets import Dataset
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    words = {f"w{index}": index for index in range(VOCABULARY)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="w0")),  # noqa: S106 - a word
        pad_token="w0",  # noqa: S106 - the same
        eos_token="w1",  # noqa: S106 - the same
    )
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            pad_token_id=0,
            eos_token_id=1,
        )
    ).double()
    out: Path = tmp_path_factory.mktemp("trl")
    trainer = GRPOTrainer(
        model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig(
            str(out),
            use_cpu=True,
            bf16=False,
            report_to=[],
            num_generations=2,
            per_device_train_batch_size=RESPONSES,
            max_completion_length=BUDGET,
            steps_per_generation=1,
        ),
        train_dataset=Dataset.from_dict({"prompt": ["w2 w3"] * RESPONSES}),
        processing_class=tokenizer,
    )
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def batch(trainer: Any, seed: int) -> dict[str, Tensor]:
    """Random tokens and advantages; old, reference and sampler differ from the model by noise."""
    generator = torch.Generator().manual_seed(seed)

    def noise(scale: float) -> Tensor:
        shape = (RESPONSES, BUDGET)
        return torch.randn(shape, generator=generator, dtype=torch.float64) * scale

    lengths_B = torch.randint(1, BUDGET + 1, (RESPONSES,), generator=generator)
    mask_BT = (torch.arange(BUDGET) < lengths_B[:, None]).long()
    inputs = {
        "prompt_ids": torch.randint(2, VOCABULARY, (RESPONSES, PROMPT), generator=generator),
        "prompt_mask": torch.ones(RESPONSES, PROMPT, dtype=torch.long),
        "completion_ids": torch.randint(2, VOCABULARY, (RESPONSES, BUDGET), generator=generator),
        "completion_mask": mask_BT,
        "advantages": torch.randn(RESPONSES, generator=generator, dtype=torch.float64),
        "num_items_in_batch": mask_BT.sum(),
    }
    now_BT = new_logprobs(trainer, inputs).detach()
    inputs["old_per_token_logps"] = now_BT + noise(0.4)
    inputs["ref_per_token_logps"] = now_BT + noise(0.4)
    inputs["sampler"] = inputs["old_per_token_logps"] + noise(0.6)
    return inputs


def new_logprobs(trainer: Any, inputs: dict[str, Tensor]) -> Tensor:
    """The model's, with gradient, from TRL's forward pass."""
    tokens_BL = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    attention_BL = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    logprobs_BT: Tensor = trainer._get_per_token_logps_and_entropies(
        trainer.model, tokens_BL, attention_BL, BUDGET
    )[0]
    return logprobs_BT


def new_entropies(trainer: Any, inputs: dict[str, Tensor]) -> Tensor:
    """The model's, with gradient, from TRL's forward pass."""
    tokens_BL = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    attention_BL = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    entropy_BT: Tensor = trainer._get_per_token_logps_and_entropies(
        trainer.model, tokens_BL, attention_BL, BUDGET, compute_entropy=True
    )[1]
    return entropy_BT


def gradient(trainer: Any, loss: Tensor) -> Tensor:
    weights = [each for each in trainer.model.parameters() if each.requires_grad]
    found = torch.autograd.grad(loss, weights, allow_unused=True)
    return torch.cat([each.flatten() for each in found if each is not None])


def our_loss(
    trainer: Any,
    inputs: dict[str, Tensor],
    correction: CorrectionConfig,
    *,
    forking_share: float | None = None,
    **settings: Any,
) -> tuple[Tensor, Tensor | None]:
    """Our loss, and the correction's weights in the form that TRL expects."""
    config = loss_config(settings)
    new_BT, mask_BT = new_logprobs(trainer, inputs), inputs["completion_mask"].bool()
    old_BT = inputs["old_per_token_logps"]
    # TRL's VESPO uses the old policy; the other losses here do not use the sampler.
    advantages_BT = inputs["advantages"][:, None].expand(mask_BT.shape)
    if forking_share is not None:  # TRL uses current entropies, not those at the start of the batch
        entropy_BT, share = new_entropies(trainer, inputs).detach(), forking_share
        reweighting = ReweightingInputs(
            old_BT, entropy_BT, mask_BT, ReweightingConfig(forking_share=share)
        )
        advantages_BT = advantages_BT * reweighting_of("forking_tokens")(reweighting)[0]
    loss_inputs = LossInputs(new_BT, old_BT, old_BT, advantages_BT, mask_BT, config)
    terms = loss_of(config.kind)(loss_inputs)
    corrected = correction_of(correction.kind)(
        CorrectionInputs(old_BT, inputs["sampler"], mask_BT, correction)
    )
    loss_BT = terms.loss_BT if corrected is None else terms.loss_BT * corrected.weights_BT
    if config.off_policy_limit is not None:
        loss_BT = torch.where(stale_responses(loss_inputs, config.off_policy_limit), 0.0, loss_BT)
    kl_inputs = KlInputs(new_BT, inputs["ref_per_token_logps"], old_BT)
    loss_BT = loss_BT + config.kl_coefficient * kl_of(config.kl_estimator)(kl_inputs)
    if config.entropy_coefficient:
        loss_BT = loss_BT - config.entropy_coefficient * new_entropies(trainer, inputs)
    tokens = StepTokens(mask_BT, torch.arange(RESPONSES) // 2, BUDGET)
    weights_BT = token_weights(config.aggregation, tokens)
    total = (torch.where(mask_BT, loss_BT, 0.0) * weights_BT).sum()
    return total, None if corrected is None else corrected.weights_BT


WIDE = {"clip_low": 0.2, "clip_high": 0.28}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "grpo": ({**WIDE}, {"loss_type": "grpo"}, "none"),
    "grpo with a KL penalty": (
        {**WIDE, "kl_coefficient": 0.04},
        {"loss_type": "grpo", "beta": 0.04},
        "none",
    ),
    "grpo with a KL penalty times the ratio": (
        {**WIDE, "kl_coefficient": 0.04, "kl_estimator": "k3_ratio"},
        {"loss_type": "grpo", "beta": 0.04},
        "none",
    ),
    "dapo": ({**WIDE, "aggregation": "token-mean"}, {"loss_type": "dapo"}, "none"),
    "dr_grpo": ({**WIDE, "aggregation": "constant"}, {"loss_type": "dr_grpo"}, "none"),
    "gspo": (
        {"kind": "gspo", **WIDE},
        {"loss_type": "grpo", "importance_sampling_level": "sequence"},
        "none",
    ),
    "cispo": (
        {"kind": "cispo", "clip_high": 0.5},
        {"loss_type": "cispo", "epsilon_high": 1.5},
        "none",
    ),
    "grpo without stale responses": (
        {**WIDE, "off_policy_limit": 0.01},
        {"loss_type": "grpo", "off_policy_mask_threshold": 0.01},
        "none",
    ),
    "grpo on forking tokens": (
        {**WIDE, "forking_share": 0.37},
        {"loss_type": "grpo", "top_entropy_quantile": 0.37},
        "none",
    ),
    # TRL's bonus is the mean over tokens whatever the loss; ours shares the loss's denominator.
    "dapo with an entropy bonus": (
        {**WIDE, "aggregation": "token-mean", "entropy_coefficient": 0.05},
        {"loss_type": "dapo", "entropy_coef": 0.05, "_entropy_bonus_enabled": True},
        "none",
    ),
    "grpo with a two-sided clip": (
        {**WIDE, "dual_clip": 1.5},
        {"loss_type": "grpo", "args.delta": 1.5},
        "none",
    ),
    "sapo": ({"kind": "sapo"}, {"loss_type": "sapo"}, "none"),
    "vespo": ({"kind": "vespo"}, {"loss_type": "vespo"}, "none"),
    **{
        f"dapo with {kind}": (
            {**WIDE, "aggregation": "token-mean"},
            {"loss_type": "dapo", "use_vllm": True, "vllm_importance_sampling_correction": True},
            kind,
        )
        for kind in ("tis_token", "tis_sequence", "mis_token", "mis_sequence")
    },
}


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_are_those_of_trl(
    name: str, seed: int, trl_trainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, theirs, correction = CASES[name]
    defaults = {"epsilon_low": 0.2, "epsilon_high": 0.28, "beta": 0.0, "use_vllm": False}
    for key, value in {**defaults, **theirs}.items():
        owner = trl_trainer.args if key.startswith("args.") else trl_trainer
        monkeypatch.setattr(owner, key.removeprefix("args."), value)
    # TRL multiplies its KL penalty by the ratio unless told otherwise; the paper of GRPO does not.
    multiplies = settings.get("kl_estimator") == "k3_ratio"
    monkeypatch.setattr(trl_trainer.args, "use_bias_correction_kl", multiplies)
    inputs = batch(trl_trainer, seed)
    ours, weights_BT = our_loss(
        trl_trainer, inputs, CorrectionConfig(kind=correction, cap=1.5), **settings
    )
    if weights_BT is not None:
        inputs["importance_sampling_ratio"] = weights_BT
    expected = trl_trainer._compute_loss(trl_trainer.model, inputs)
    torch.testing.assert_close(ours, expected, rtol=1e-6, atol=1e-12)
    left, right = gradient(trl_trainer, ours), gradient(trl_trainer, expected)
    # Relative to the whole gradient: the model's norms round to float32 in both passes.
    assert (left - right).norm() < 1e-6 * right.norm()


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", ["RLOOTrainer", "GMPOTrainer"])
def test_losses_of_responses_are_those_of_trls_other_trainers(
    name: str, seed: int, trl_trainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only their losses are compared; our pages describe other differences."""
    from trl import RLOOTrainer
    from trl.experimental.gmpo import GMPOTrainer

    theirs = {"RLOOTrainer": RLOOTrainer, "GMPOTrainer": GMPOTrainer}[name]
    width = 0.2 if name == "RLOOTrainer" else 0.4
    for key, value in {"epsilon_low": width, "epsilon_high": width, "beta": 0.0}.items():
        monkeypatch.setattr(trl_trainer, key, value)
    inputs = batch(trl_trainer, seed)
    mask_BT = inputs["completion_mask"]
    inputs["old_logps"] = (inputs["old_per_token_logps"] * mask_BT).sum(dim=1)
    kind = "sequence_clip" if name == "RLOOTrainer" else "gmpo"
    ours, _ = our_loss(trl_trainer, inputs, CorrectionConfig(), kind=kind)
    expected = theirs._compute_loss(trl_trainer, trl_trainer.model, inputs)
    # Relative to the terms, which nearly cancel; the model's norms round to float32.
    torch.testing.assert_close(
        ours, expected, rtol=0, atol=1e-6 * inputs["advantages"].abs().mean()
    )
    left, right = gradient(trl_trainer, ours), gradient(trl_trainer, expected)
    assert (left - right).norm() < 1e-6 * right.norm()
