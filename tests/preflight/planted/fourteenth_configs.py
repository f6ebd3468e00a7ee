"""Sound configs of the fourteenth examination, to be changed by its faults."""

from __future__ import annotations

from tests.preflight.planted.config_text import with_settings

_TRL = """
model_name_or_path: Qwen/Qwen2.5-3B-Instruct
use_vllm: true
bf16: true
learning_rate: 1.0e-6
lr_scheduler_type: constant_with_warmup
warmup_steps: 10
num_generations: 8
per_device_train_batch_size: 8
gradient_accumulation_steps: 4
max_prompt_length: 1024
max_completion_length: 1024
max_steps: 400
beta: 0.0
temperature: 1.0
loss_type: dr_grpo
scale_rewards: false
logging_steps: 1
"""
_VERL = """
data:
  train_batch_size: 128
  max_prompt_length: 1024
  max_response_length: 1024
  filter_overlong_prompts: true
  truncation: error
actor_rollout_ref:
  model: {path: Qwen/Qwen2.5-7B-Instruct}
  actor:
    optim: {lr: 1.0e-6}
    ppo_mini_batch_size: 64
    ppo_micro_batch_size_per_gpu: 4
    use_kl_loss: true
    kl_loss_coef: 0.001
    kl_loss_type: low_var_kl
  rollout: {name: vllm, n: 8, temperature: 1.0, top_p: 1.0, tensor_model_parallel_size: 2, log_prob_micro_batch_size_per_gpu: 8}
  ref: {log_prob_micro_batch_size_per_gpu: 8}
algorithm: {adv_estimator: grpo}
trainer: {n_gpus_per_node: 8, nnodes: 1, total_epochs: 10}
"""


def trl(**changes: object) -> str:
    """A usual TRL config with other values."""
    return with_settings(_TRL, changes)


def verl(*changes: tuple[str, str]) -> str:
    """A usual verl config with other text."""
    text = _VERL
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text
