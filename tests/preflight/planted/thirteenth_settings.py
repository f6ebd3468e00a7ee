"""Mistakes in templates, tokenizers and configs of the thirteenth examination."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.preflight.planted import thirteenth_tables as u
from tests.preflight.planted.cases import Case
from tests.preflight.planted.config_text import with_settings
from tests.preflight.planted.models import BASE, GEMMA, GEMMA_TEMPLATE, LLAMA
from tests.preflight.planted.tables import Row
from tests.preflight.planted.thirteenth_data import BOX, CALL, boxed
from tests.preflight.planted.thirteenth_rewards import BOXED

_NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}" + GEMMA_TEMPLATE
)
_TRL = """
model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
use_vllm: true
bf16: true
learning_rate: 1.0e-6
lr_scheduler_type: cosine
warmup_ratio: 0.1
num_generations: 8
per_device_train_batch_size: 8
gradient_accumulation_steps: 8
max_prompt_length: 512
max_completion_length: 1024
num_train_epochs: 1
beta: 0.001
temperature: 1.0
loss_type: dapo
logging_steps: 1
seed: 42
"""
VERL = """
data:
  train_batch_size: 128
  max_prompt_length: 512
  max_response_length: 1024
  filter_overlong_prompts: true
  truncation: error
actor_rollout_ref:
  model: {path: Qwen/Qwen2.5-3B-Instruct}
  actor:
    optim: {lr: 1.0e-6}
    ppo_mini_batch_size: 64
    ppo_micro_batch_size_per_gpu: 8
    use_kl_loss: true
    kl_loss_coef: 0.001
  rollout: {name: vllm, n: 8, temperature: 1.0, tensor_model_parallel_size: 1}
algorithm: {adv_estimator: grpo}
trainer: {n_gpus_per_node: 8, nnodes: 1, total_epochs: 5}
"""


def trl(**changes: object) -> str:
    """A usual TRL config with other values."""
    return with_settings(_TRL, changes)


def settings_faults() -> Iterator[Case]:
    """Thirteen mistakes."""
    yield from _templates()
    yield from _prompts()
    yield from _lengths()
    yield from _numbers()


def _gsm(count: int, seed: int) -> list[Row]:
    return boxed([(p["question"], str(p["final"])) for p in u.gsm(count, seed)])


def _templates() -> Iterator[Case]:
    yield Case(
        name="chat prompts for a base model without a template", rows=_gsm(500, 3301),
        model=BASE, reward=BOX, named="DAT119.*no chat template",
        accepted="The tokenizer has no chat template, which message prompts need.",
    )  # fmt: skip
    yield Case(
        name="generation stops at the base model's end token only", rows=_gsm(500, 3302),
        model=replace(LLAMA, eos="<|end_of_text|>", ends=("<|end_of_text|>",)), reward=BOX,
        named="DAT103 critical.*eot_id",
        accepted="The end token is not the one that ends the template's turns; generation won't stop.",
    )  # fmt: skip
    yield Case(
        name="system prompts for a template that refuses them",
        rows=[{"prompt": u.chat(p["question"] + BOXED, "You are a careful mathematician."),
               "answer": str(p["final"])} for p in u.gsm(400, 3303)],
        model=replace(GEMMA, template=_NO_SYSTEM), reward=BOX, named="DAT119.*refuses",
        accepted="The template fails on the system message.",
    )  # fmt: skip


def _prompts() -> Iterator[Case]:
    yield Case(
        name="prompts are text with the template applied, in a message",
        rows=[{"prompt": u.chat(f"<|im_start|>user\n{p['question']}{BOXED}<|im_end|>\n<|im_start|>assistant\n"),
               "answer": str(p["final"])} for p in u.gsm(500, 3311)],
        reward=BOX, named="DAT105.*twice",
        accepted="The chat template is applied twice; its markers are in the message.",
    )  # fmt: skip
    yield Case(
        name="text prompts with the template applied get a second BOS",
        rows=[{"prompt": "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n"
               f"{p['question']}{BOXED}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
               "answer": str(p["final"])} for p in u.gsm(500, 3312)],
        model=LLAMA, reward=BOX, named="DAT105.*second BOS",
        accepted="The prompts start with two BOS tokens.",
    )  # fmt: skip
    yield Case(
        name="an SFT set whose last message is the answer", suffix=".parquet",
        rows=[{"prompt": [*u.chat(p["question"]), {"role": "assistant", "content":
               f"{p['steps']}\nThe answer is \\boxed{{{p['final']}}}."}], "answer": str(p["final"])}
              for p in u.gsm(500, 3313)],
        reward=BOX, named="DAT111.*end with an assistant",
        accepted="Prompts end with the assistant's answer: it is shown, or continued.",
    )  # fmt: skip


def _lengths() -> Iterator[Case]:
    articles = [a for a, _ in u.news(3000, 3321)]
    reports = [
        {"prompt": u.chat("\n\n".join(articles[at * 6: at * 6 + 1 + at % 6])
                          + "\n\nWhich town is mentioned first? Answer inside \\boxed{}."),
         "answer": articles[at * 6].split(" in ")[1].split()[0]} for at in range(400)
    ]  # fmt: skip
    yield Case(
        name="many prompts are longer than max_prompt_length", rows=reports, reward=BOX,
        run_config=trl(max_prompt_length=512), named="DAT106.*exceed",
        accepted="A part of the prompts exceeds max_prompt_length and is cut.",
    )  # fmt: skip
    worked = [
        {"prompt": u.chat(f"{p['question']} Show all steps.{BOXED}"),
         "answer": str(p["final"]), "solution": f"We read the problem again: {p['question']}\n{p['steps']}\nTo check this, we go "
         f"through the steps once more.\n{p['steps']}\nThe answer is \\boxed{{{p['final']}}}."}
        for p in u.gsm(500, 3322)
    ]  # fmt: skip
    yield Case(
        name="responses may have 96 tokens, the data's solutions need more", rows=worked,
        reward=BOX, run_config=trl(max_completion_length=96), settings={"max_tokens": 96},
        named="LEN101.*longer",
        accepted="The response limit is too small for the solutions.",
    )  # fmt: skip
    yield Case(
        name="prompt and response together exceed vLLM's length", rows=_gsm(500, 3323), reward=BOX,
        run_config=trl(max_completion_length=3072, vllm_mode="colocate", vllm_max_model_length=2048),
        settings={"max_tokens": 3072}, named="CFG025",
        accepted="max_prompt_length + max_completion_length exceed vllm_max_model_length.",
    )  # fmt: skip


def _numbers() -> Iterator[Case]:
    yield Case(
        name="the batch is not a multiple of the group", rows=_gsm(500, 3331), reward=BOX,
        run_config=trl(per_device_train_batch_size=1, gradient_accumulation_steps=4, num_generations=6),
        named="CFG0.*multiple",
        accepted="The batch is not divisible by num_generations.",
    )  # fmt: skip
    yield Case(
        name="sampling at a temperature of 0.1", rows=u.tool_rows(400, 3332), reward=CALL,
        run_config=trl(temperature=0.1), settings={"temperatures": (0.1,)}, named="CFG022", advised="0[.]6",
        accepted="The temperature is too low for different responses in a group.",
    )  # fmt: skip
    yield Case(
        name="LoRA's learning rate for all weights", rows=_gsm(500, 3333), reward=BOX,
        run_config=trl(learning_rate="2.0e-4"), named="CFG050",
        accepted="The learning rate is too high for training all weights.",
    )  # fmt: skip
    yield Case(
        name="verl's GRPO with one response per prompt", suffix=".parquet",
        rows=[{"data_source": "openai/gsm8k", "prompt": u.chat(p["question"] + BOXED),
               "ability": "math", "reward_model": {"style": "rule", "ground_truth": str(p["final"])},
               "extra_info": {"index": at}} for at, p in enumerate(u.gsm(600, 3334))],
        run_config=VERL.replace("n: 8, ", ""), named="CFG006",
        accepted="Groups of one response have no advantage (rollout.n is 1).",
    )  # fmt: skip
