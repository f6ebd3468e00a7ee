"""TRL with a real vLLM in its own process; run by `test_real_vllm.py` in vLLM's environment.

python train_with_vllm.py MODEL OUTPUT deliver|forget

On a CPU, vLLM packs the weights of linear layers in a form that it cannot load again. TRL loads
weights into the running model, so the packing is replaced by torch's plain product. Nothing is
compiled, because vLLM cannot compile for a CPU without a compiler.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


def without_packing() -> None:
    import torch
    from trl.generation import vllm_generation
    from vllm.model_executor.layers import utils

    def plain(layer: Any, *_: Any, **__: Any) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = plain
    vllm_generation.LLM = functools.partial(vllm_generation.LLM, enforce_eager=True)


def share_of_sevens(completions: list[str], **_: Any) -> list[float]:
    return [text.count("7") / 16 for text in completions]


def main() -> None:
    model, output, sync = sys.argv[1:]
    without_packing()
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    import grpodoctor

    trainer = GRPOTrainer(
        model=model,
        reward_funcs=share_of_sevens,
        args=GRPOConfig(
            output, max_steps=6, per_device_train_batch_size=16, num_generations=4,
            max_completion_length=16, learning_rate=1e-2, lr_scheduler_type="constant",
            use_cpu=True, bf16=False, gradient_checkpointing=False, disable_tqdm=True,
            save_strategy="no", report_to="none", use_vllm=True, vllm_mode="colocate",
            vllm_gpu_memory_utilization=0.05, vllm_max_model_length=64,
        ),
        train_dataset=Dataset.from_dict({"prompt": [f"{n}+{n}=" for n in range(10, 42)]}),
    )  # fmt: skip
    if sync == "forget":
        trainer.vllm_generation.sync_weights = lambda: None
    grpodoctor.attach(trainer)
    trainer.train()


if __name__ == "__main__":
    main()
