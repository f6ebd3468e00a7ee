"""Engine program: transformers in one process.

Options: `dtype` (float32, bfloat16, float16), `attention` (sdpa, eager, flash_attention_2, …),
`autocast`, `quantise` (int8, int4) with `quantise_only` and `quantise_skip`, `perturb` with `seed`,
`weights` with `weights_only`, `batch_tokens`, `batch_rows`, `device`, `threads`,
`trust_remote_code`; `Settings` in hf/loading.py describes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contract import Engine, serve


def load(model: str, options: Mapping[str, Any]) -> Engine:
    """Load the engine of a request.

    Raises:
        RefusalError: if the model or an option is invalid.
        ImportError: if torch or transformers is not installed.
    """
    import torch  # here, so that a missing package becomes an answer
    from hf.engine import TransformersEngine
    from hf.loading import Settings, device_of, load_model

    settings = Settings.of(options, without=("fsdp", "tensor_parallel"))
    if settings.threads:
        torch.set_num_threads(settings.threads)
    device = device_of(settings)
    loaded = load_model(model, settings).to(device)
    return TransformersEngine("transformers", model, loaded, settings, device)


if __name__ == "__main__":
    serve(load)
