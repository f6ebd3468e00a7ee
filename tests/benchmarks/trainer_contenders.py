"""The program that `bench_trainer` runs in separate processes: a trainer that runs steps on demand.

Each line of standard input is a number of steps. The reply on standard output is a JSON object with
the seconds per step (wall-clock and CPU time) and the peak memory so far of the process and its
children.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from grpodoctor.trainer.loop import Trainer
    from grpodoctor.trainer.samples import Samples

GROUP, COMPLETIONS, LENGTH = 8, 64, 48
PROMPT = 5
"""Tokens of most prompts."""
LEARNING_RATE = 1e-5
CONTENDERS = ["TRL", "recorded", "unrecorded", "lean", "compiled", "modules", "products", "growth"]
SIZES = [
    *((count, LENGTH) for count in (64, 128, 256, 512, 1024)),
    *((COMPLETIONS, length) for length in (96, 192, 384, 512)),
]
"""Completions and tokens of the batches for which time must not grow faster than the batch."""


def share_of_digits(text: str) -> float:
    """The reward: cheap to compute, and different within a group."""
    return sum(map(str.isdigit, text)) / LENGTH


def our_reward(prompts: object, completions: Sequence[str], answers: object) -> list[float]:
    """The reward with the signature of the bundled trainer."""
    return list(map(share_of_digits, completions))


def trl_reward(completions: Sequence[str], completion_ids: Sequence[Any], **_: Any) -> list[float]:
    """The reward with the signature of TRL; it also checks the lengths."""
    lengths = set(map(len, completion_ids))
    if lengths != {LENGTH} or len(completions) != COMPLETIONS:
        raise SystemExit(f"TRL generated {len(completions)} completions of {lengths} tokens")
    return list(map(share_of_digits, completions))


def peak_memory() -> int:
    """Sum of the largest resident sets of this process and its children, in bytes."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    return sum(_high_water_mark(process) for process in ["self", *children])


def _high_water_mark(process: str) -> int:
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(match[1]) * 1024 if match else 0


def clocks() -> np.ndarray:
    """Wall-clock seconds and CPU seconds."""
    return np.array([time.perf_counter(), time.process_time()])


def reply(**figures: Any) -> None:
    """Send figures to the parent process through standard output."""
    print(json.dumps(figures), flush=True)


def requested_steps() -> int:
    """The next number of steps; 0 at the end."""
    return int(sys.stdin.readline() or 0)


def run_ours(model: Path, prompts: Path, folder: Path, *, record: bool) -> None:
    """Run steps with the bundled trainer."""
    trainer = our_trainer(model, prompts, folder, COMPLETIONS, LENGTH, record=record)
    reply(peak=peak_memory())
    while steps := requested_steps():
        started = clocks()
        for _ in range(steps):
            trainer.train_step()
        reply(seconds=((clocks() - started) / steps).tolist(), peak=peak_memory())
    trainer.recording.close(finished=True)


def our_trainer(
    model: Path, prompts: Path, folder: Path, completions: int, length: int, *, record: bool
) -> Trainer:
    """A run with the same settings as in `run_trl`."""
    from grpodoctor.trainer.config.train_config import load_config
    from grpodoctor.trainer.loop import Trainer

    settings = {
        "steps": 1_000_000,
        "model": {"name": str(model)},
        "task": {"data": str(prompts), "reward": "trainer_contenders:our_reward"},
        "rollout": {
            "prompts_per_batch": completions // GROUP,
            "group_size": GROUP,
            "max_length": length,
        },
        "advantage": {"std": "unbiased", "epsilon": 1e-4},
        "loss": {"kind": "ppo_clip", "aggregation": "token-mean"},
        "optimizer": {"learning_rate": LEARNING_RATE, "updates_per_batch": 1, "beta2": 0.999},
        "evaluation": {"every": 0},
        "record": {"enabled": record},
    }
    trainer = Trainer(load_config(settings), folder)
    trainer.train_step()
    return trainer


def run_trl(model: Path, prompts: Path, folder: Path) -> None:
    """Run steps with TRL's trainer without logging, saving and gradient checkpointing."""
    from datasets import load_dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    class StepOnDemand(TrainerCallback):
        """Waits for the next request when the requested steps are done."""

        left, taken, started = 1, 0, clocks()

        def on_step_end(self, *arguments: Any, **_: Any) -> None:
            self.left -= 1
            if self.left:
                return
            if self.taken:
                seconds = (clocks() - self.started) / self.taken
                reply(seconds=seconds.tolist(), peak=peak_memory())
            else:
                reply(peak=peak_memory())
            self.left = self.taken = requested_steps()
            arguments[-1].should_training_stop = not self.taken  # the TrainerControl
            self.started = clocks()

    settings = GRPOConfig(
        str(folder),
        max_steps=1_000_000,
        per_device_train_batch_size=COMPLETIONS,
        steps_per_generation=1,
        num_generations=GROUP,
        max_completion_length=LENGTH,
        loss_type="dapo",
        beta=0.0,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        generation_kwargs={"use_cache": True},
        dataloader_pin_memory=False,
        disable_tqdm=True,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
    )
    GRPOTrainer(
        str(model),
        reward_funcs=trl_reward,
        args=settings,
        train_dataset=load_dataset("json", data_files=str(prompts), split="train"),
        callbacks=[StepOnDemand()],
    ).train()


def run_growth(model: Path, prompts: Path, folder: Path) -> None:
    """Time one step of every size in turn, for each request."""
    trainers = {
        size: our_trainer(model, prompts, folder / f"{size[0]}x{size[1]}", *size, record=True)
        for size in SIZES
    }
    reply(peak=peak_memory())
    while requested_steps():
        seconds = []
        for (count, length), trainer in trainers.items():
            started = clocks()
            trainer.train_step()
            stepped = clocks()
            attend_alone(trainer.policy.model, count, length)
            seconds.append([*(stepped - started).tolist(), *(clocks() - stepped).tolist()])
        reply(seconds=seconds, peak=peak_memory())
    for trainer in trainers.values():
        trainer.recording.close(finished=True)


def attend_alone(model: PreTrainedModel, count: int, length: int) -> None:
    """The attention of a step and nothing else: the only part that grows faster than the tokens.

    Forward and backward pass over all tokens, and one query per row and generated token.
    """
    config = model.config
    heads, layers = config.num_attention_heads, config.num_hidden_layers
    width = config.hidden_size // heads
    shape = (count, heads, length + PROMPT, width)
    queries, keys, values = (torch.zeros(shape, requires_grad=True) for _ in range(3))
    for _ in range(layers):
        attended = scaled_dot_product_attention(queries, keys, values, is_causal=True)
        attended.sum().backward()
    # In a long decode, the layers together read more than the processor's caches hold. So they take
    # turns, as in a model, and each has written memory of its own.
    caches = [torch.rand(2, count * heads, shape[2], width) for _ in range(layers)]
    with torch.inference_mode():
        for columns in range(PROMPT, length + PROMPT):
            for cache in caches:
                read_keys, read_values = cache[:, :, :columns]
                scores = torch.bmm(read_keys[:, :1], read_keys.transpose(1, 2))
                torch.bmm(scores.softmax(-1), read_values)


def run_lean(model: Path, prompts: Path, folder: Path, *, modules: bool) -> None:
    """Decode the tokens of a step once, then run one forward and backward pass over them.

    Without rewards, sampling, optimizer and records. The passes are those of the bundled trainer,
    or those of the modules of transformers.
    """
    trainer = our_trainer(model, prompts, folder, COMPLETIONS, LENGTH, record=False)
    samples = sampled_batch(trainer)
    reply(peak=peak_memory())
    while steps := requested_steps():
        started = clocks()
        for _ in range(steps):
            decode(trainer.policy.model, samples, modules=modules)
            learn(trainer.policy.model, samples, modules=modules)
        reply(seconds=((clocks() - started) / steps).tolist(), peak=peak_memory())


def compile_layers() -> None:
    """Have torch.compile translate the layers of the learner's pass; needs a C++ compiler."""
    from grpodoctor.trainer.model.plain import scoring

    scoring._layer = torch.compile(scoring._layer)  # type: ignore[assignment]


def run_products(model: Path, prompts: Path, folder: Path) -> None:
    """Compute the matrix products and the attention of a step, and nothing else.

    A trainer with the same products in the same precision cannot be much faster: it could only join
    products that have the same input.
    """
    trainer = our_trainer(model, prompts, folder, COMPLETIONS, LENGTH, record=False)
    policy = trainer.policy.model
    reply(peak=peak_memory())
    while steps := requested_steps():
        started = clocks()
        for _ in range(steps):
            multiply_alone(policy, COMPLETIONS, LENGTH)
            attend_alone(policy, COMPLETIONS, LENGTH)
        reply(seconds=((clocks() - started) / steps).tolist(), peak=peak_memory())


@torch.inference_mode()
def multiply_alone(model: PreTrainedModel, count: int, length: int) -> None:
    """The products of a step with the layers' weights: decode, forward pass, both gradients."""
    tokens = count * (length + PROMPT - 1)
    for layer in model.modules():
        if not isinstance(layer, torch.nn.Linear):
            continue
        weight = layer.weight
        decoded, learned = (torch.zeros(rows, weight.shape[1]) for rows in (count, tokens))
        for _ in range(length - 1):
            torch.mm(decoded, weight.t())
        output = torch.mm(learned, weight.t())
        torch.mm(output, weight)
        torch.mm(output.t(), learned)


def sampled_batch(trainer: Trainer) -> Samples:
    """A batch of the trainer's engine."""
    problems = trainer.task.problems(random.Random(0), COMPLETIONS // GROUP)
    encoded = [trainer.policy.tokenizer.encode(problem.prompt) for problem in problems]
    rows = [ids for ids in encoded for _ in range(GROUP)]
    return trainer.engine.generate(rows, torch.Generator().manual_seed(0))


@torch.inference_mode()
def decode(model: PreTrainedModel, samples: Samples, *, modules: bool) -> None:
    """Read the prompts, then one token per row at a time; each pass gives the next logits."""
    from grpodoctor.trainer.engines.fast_decoding import ModuleStepDecoder, step_decoder_of
    from grpodoctor.trainer.engines.kv_cache import preallocated_cache
    from grpodoctor.trainer.model.forward import positions

    attention = samples.attention_BL[:, : samples.prompt_width]
    firsts = slice(None, None, GROUP)  # each distinct prompt once
    cache = preallocated_cache(model, LENGTH)
    model(
        input_ids=samples.tokens_BL[firsts, : samples.prompt_width],
        attention_mask=attention[firsts].long(),
        position_ids=positions(attention[firsts]),
        past_key_values=cache,
        logits_to_keep=1,
    )
    cache.batch_select_indices(torch.arange(COMPLETIONS, device=attention.device) // GROUP)
    decoder = (ModuleStepDecoder if modules else step_decoder_of)(model, cache, attention, LENGTH)
    lengths = attention.sum(dim=1)
    for index in range(LENGTH - 1):
        decoder.step(samples.response_BT[:, index], lengths + index)


def learn(model: PreTrainedModel, samples: Samples, *, modules: bool) -> None:
    """One forward and backward pass over the tokens of a batch."""
    from grpodoctor.trainer.model.forward import response_logits
    from grpodoctor.trainer.model.plain.scoring import plain_logits
    from grpodoctor.trainer.model.plain.weights import plain_weights

    weights = None if modules else plain_weights(model)
    if weights is None:
        batch = (samples.tokens_BL, samples.attention_BL, samples.prompt_width)
        logits = response_logits(model, *batch)[samples.mask_BT]
    else:
        logits = plain_logits(weights, samples)
    cross_entropy(logits, samples.response_BT[samples.mask_BT]).backward()
    model.zero_grad(set_to_none=True)


def save_model(folder: Path) -> None:
    """Save the built-in architecture with random weights that never generate the end token.

    No layer adds to the first entry of the hidden state, so it is the same for all tokens. The
    head's weight for the end token reads this entry and makes the token's probability zero.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

    from grpodoctor.trainer.config.train_config import load_config
    from grpodoctor.trainer.data.loading import build_task
    from grpodoctor.trainer.model.policy import load_policy
    from grpodoctor.trainer.model.tokenizer import ALPHABET

    config = load_config({"model": {"warm_start_steps": 0}})
    architecture = load_policy(config, build_task(config.task)).model.config
    architecture.tie_word_embeddings = False
    architecture.eos_token_id = 1
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(architecture)
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = 1.0
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[0] = 0.0
            layer.mlp.down_proj.weight[0] = 0.0
        model.lm_head.weight[:, 0] = 0.0
        model.lm_head.weight[1, 0] = -1000.0
    model.save_pretrained(folder)
    words = {word: index for index, word in enumerate(["<pad>", "<end>", *ALPHABET])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))  # noqa: S106 - a token's name
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<pad>",  # noqa: S106 - as above; without it the loader adds one of its own
        pad_token="<pad>",  # noqa: S106 - as above
        eos_token="<end>",  # noqa: S106 - as above
    ).save_pretrained(folder)


def save_prompts(file: Path) -> None:
    """Save addition problems."""
    rng = np.random.default_rng(0)
    pairs = rng.integers(1, 100, (256, 2)).tolist()
    lines = [json.dumps({"prompt": f"{a}+{b}=", "answer": str(a + b)}) for a, b in pairs]
    file.write_text("\n".join(lines), encoding="utf-8")


def main() -> None:
    """Run one of the trainers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=CONTENDERS)
    parser.add_argument("model", type=Path)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        if arguments.name == "TRL":
            run_trl(arguments.model, arguments.prompts, folder)
        elif arguments.name == "growth":
            run_growth(arguments.model, arguments.prompts, folder)
        elif arguments.name in ("lean", "compiled", "modules"):
            if arguments.name == "compiled":
                compile_layers()
            modules = arguments.name == "modules"
            run_lean(arguments.model, arguments.prompts, folder, modules=modules)
        elif arguments.name == "products":
            run_products(arguments.model, arguments.prompts, folder)
        else:
            run_ours(
                arguments.model, arguments.prompts, folder, record=arguments.name == "recorded"
            )


if __name__ == "__main__":
    main()
