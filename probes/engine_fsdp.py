"""Engine program: transformers under torchrun, with FSDP2 and tensor parallelism.

    torchrun --nproc-per-node 2 probes/engine_fsdp.py REQUEST

For several hosts, use torchrun's own flags and a shared file system for the request and its
folders. Transformers shards the weights (`DistributedConfig`) while it reads them, so no rank holds
the whole model. FSDP ranks also divide the responses; tensor-parallel ranks all get the same ones.

Options: those of `engine_transformers` except `device`, `quantise…` and `weights…`; and `fsdp` and
`tensor_parallel`, whose product is the number of processes. Without both, `fsdp` is that number.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from contract import Engine, RefusalError, serve

if TYPE_CHECKING:
    from torch import Tensor

_WEIGHT_CHANGES = (
    *("quantise", "quantise_only", "quantise_skip", "weights", "weights_only"),
    *("adapter", "adapter_use"),
)
_GRACE_SECONDS = 3.0


def load(model: str, options: Mapping[str, Any]) -> Engine:
    """Load the engine of a request, on each rank.

    Raises:
        RefusalError: if the model, an option or the number of processes is invalid.
        ImportError: if torch or transformers is not installed.
    """
    import torch
    from hf.engine import TransformersEngine
    from hf.loading import Settings, load_model

    settings = Settings.of(options, without=("device", *_WEIGHT_CHANGES))
    if settings.threads:
        torch.set_num_threads(settings.threads)
    fsdp, tensor = _degrees(settings.fsdp, settings.tensor_parallel)
    loaded = load_model(model, settings, distributed_config=_layout(fsdp, tensor))
    _check_heads(loaded.config.get_text_config(), tensor)
    ranks = ShardedRanks(fsdp, tensor)
    return TransformersEngine("fsdp", model, loaded, settings, ranks.device, ranks)


def _degrees(fsdp: int, tensor: int) -> tuple[int, int]:
    """Both parallel degrees, completed from the number of processes.

    Raises:
        RefusalError: if their product is not the number of processes.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    tensor = max(1, tensor)
    fsdp = fsdp or max(1, world // tensor)
    if fsdp * tensor != world:
        raise RefusalError(
            f"fsdp={fsdp} times tensor_parallel={tensor} is not the number of processes, {world}",
            f"start {fsdp * tensor} with torchrun --nproc-per-node or processes={fsdp * tensor}",
        )
    return fsdp, tensor


def _check_heads(config: Any, tensor: int) -> None:
    """Refuse to split an attention head, which would fail in the first forward pass.

    Raises:
        RefusalError: if the number of key-value heads is not a multiple of the ranks.
    """
    plan = getattr(config, "base_model_tp_plan", None) or {}
    heads = int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)
    is_split = any(name.endswith("k_proj") and style == "colwise" for name, style in plan.items())
    if is_split and heads % tensor:
        raise RefusalError(
            f"{heads} key-value heads cannot be divided among {tensor} ranks",
            f"set a tensor_parallel that divides {heads}",
        )


def _layout(fsdp: int, tensor: int) -> Any:
    import transformers

    try:
        from transformers.distributed.configuration_utils import DistributedConfig

        return DistributedConfig(fsdp_size=fsdp, tp_size=tensor)
    except (ImportError, TypeError) as error:
        raise RefusalError(
            f"transformers {transformers.__version__} cannot shard a model while loading it",
            "install transformers>=5.23 for this engine",
        ) from error


class ShardedRanks:
    """Divides the work among ranks; neighboring ranks form a tensor-parallel group.

    Args:
        fsdp: number of groups, each with its own responses.
        tensor: number of ranks per group.
    """

    def __init__(self, fsdp: int, tensor: int) -> None:
        import torch

        self.layout = {"fsdp": fsdp, "tensor_parallel": tensor}
        rank = int(os.environ.get("RANK", "0"))
        self._groups, self._group = fsdp, rank // tensor
        self._is_reporter = rank % tensor == 0
        self._first, self._world = rank == 0, fsdp * tensor
        local = int(os.environ.get("LOCAL_RANK", "0"))
        self.device = torch.device("cpu")
        if torch.cuda.is_available():
            self.device = torch.device("cuda", local % torch.cuda.device_count())

    def share(self, batches: list[list[int]]) -> list[tuple[list[int], bool]]:
        """This group's batches, padded with the first: all ranks gather layers equally often."""
        if not batches:
            return []
        count = -(-len(batches) // self._groups)
        own = batches[self._group :: self._groups]
        padding = [(batches[0], False)] * (count - len(own))
        return [(batch, self._is_reporter) for batch in own] + padding

    def collect(self, readings: dict[int, Any]) -> dict[int, Any]:
        """The readings of all ranks on the first rank; on the others their own."""
        from torch import distributed

        if self._world == 1:
            return readings
        gathered: list[dict[int, Any] | None] | None = [None] * self._world if self._first else None
        distributed.gather_object(readings, gathered)
        return {
            row: values for part in gathered or [readings] for row, values in (part or {}).items()
        }

    def broadcast(self, ids: Tensor) -> Tensor:
        """The first rank's tokens."""
        from torch import distributed

        if self._world > 1:
            distributed.broadcast(ids, src=0)
        return ids

    def close(self) -> None:
        """Leave the process group, unless an error ends this rank: others may wait forever."""
        from torch import distributed

        if distributed.is_initialized() and sys.exc_info()[0] is None:
            distributed.destroy_process_group()


def _barrier() -> None:
    from torch import distributed

    if distributed.is_initialized():
        distributed.barrier()


def main() -> None:
    """Run the request, and skip the interpreter's shutdown, which torch's threads may abort."""
    code = 0
    try:
        serve(load, is_writer=os.environ.get("RANK", "0") == "0", barrier=_barrier)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
        if os.environ.get("RANK", "0") != "0":
            # torchrun ends all ranks when one ends: let the writing rank write the reason first.
            time.sleep(_GRACE_SECONDS)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
