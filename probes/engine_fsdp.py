"""The engine program of transformers under torchrun: FSDP2 and tensor parallelism.

    torchrun --nproc-per-node 2 probes/engine_fsdp.py REQUEST

and over several hosts by torchrun's own flags; the request and the folders that it names are then
on a file system that all of them see. The division of weights is transformers' own
(`DistributedConfig`): tensors are divided while they are read, no rank holds the whole model. Ranks
of `fsdp` divide the responses too, those of `tensor_parallel` all see the same ones.

Options: those of `engine_transformers` but `device`, `quantise…` and `weights…`; and `fsdp`,
`tensor_parallel`, whose product is the number of processes; without both, `fsdp` is it.
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

_ALTERATIONS = ("quantise", "quantise_only", "quantise_skip", "weights", "weights_only")
_GRACE_SECONDS = 3.0


def load(model: str, options: Mapping[str, Any]) -> Engine:
    """The engine that a request asks for, on each rank.

    Raises:
        RefusalError: if it cannot be had.
        ImportError: if torch or a transformers that divides models is not installed here.
    """
    import torch
    from hf.engine import TransformersEngine
    from hf.loading import Settings, load_model

    settings = Settings.of(options, without=("device", *_ALTERATIONS))
    if settings.threads:
        torch.set_num_threads(settings.threads)
    fsdp, tensor = _degrees(settings.fsdp, settings.tensor_parallel)
    loaded = load_model(model, settings, distributed_config=_layout(fsdp, tensor))
    _check_heads(loaded.config.get_text_config(), tensor)
    ranks = Division(fsdp, tensor)
    return TransformersEngine("fsdp", model, loaded, settings, ranks.device, ranks)


def _degrees(fsdp: int, tensor: int) -> tuple[int, int]:
    """Degrees of both, as asked for and as the number of processes has it.

    Raises:
        RefusalError: if they do not make up the processes that were started.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    tensor = max(1, tensor)
    fsdp = fsdp or max(1, world // tensor)
    if fsdp * tensor != world:
        raise RefusalError(
            f"fsdp={fsdp} times tensor_parallel={tensor} is not the number of processes, {world}",
            f"start {fsdp * tensor} by torchrun --nproc-per-node, or processes={fsdp * tensor}",
        )
    return fsdp, tensor


def _check_heads(config: Any, tensor: int) -> None:
    """Refuse to cut through an attention head, which fails in the first forward pass.

    Raises:
        RefusalError: if the model's plan divides heads that are not a multiple of the ranks.
    """
    plan = getattr(config, "base_model_tp_plan", None) or {}
    heads = int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)
    divided = any(name.endswith("k_proj") and style == "colwise" for name, style in plan.items())
    if divided and heads % tensor:
        raise RefusalError(
            f"{heads} heads of keys and values cannot be divided among {tensor} ranks",
            "set a tensor_parallel that divides them",
        )


def _layout(fsdp: int, tensor: int) -> Any:
    import transformers

    try:
        from transformers.distributed.configuration_utils import DistributedConfig

        return DistributedConfig(fsdp_size=fsdp, tp_size=tensor)
    except (ImportError, TypeError) as error:
        raise RefusalError(
            f"transformers {transformers.__version__} cannot divide a model as it is read",
            "install transformers>=5.23 for this engine",
        ) from error


class Division:
    """How ranks divide the work: neighbours are of one tensor-parallel group.

    Args:
        fsdp: ranks that have responses of their own.
        tensor: ranks that share each of these.
    """

    def __init__(self, fsdp: int, tensor: int) -> None:
        import torch

        self.layout = {"fsdp": fsdp, "tensor_parallel": tensor}
        rank = int(os.environ.get("RANK", "0"))
        self._groups, self._group = fsdp, rank // tensor
        self._tells = rank % tensor == 0
        self._first, self._world = rank == 0, fsdp * tensor
        local = int(os.environ.get("LOCAL_RANK", "0"))
        self.device = torch.device("cpu")
        if torch.cuda.is_available():
            self.device = torch.device("cuda", local % torch.cuda.device_count())

    def share(self, lots: list[list[int]]) -> list[tuple[list[int], bool]]:
        """Each group's lots, filled up with the first one: all gather layers equally often."""
        if not lots:
            return []
        most = -(-len(lots) // self._groups)
        own = lots[self._group :: self._groups]
        filler = [(lots[0], False)] * (most - len(own))
        return [(lot, self._tells) for lot in own] + filler

    def collect(self, found: dict[int, Any]) -> dict[int, Any]:
        """All that was found, on the first rank; on the others their own."""
        from torch import distributed

        if self._world == 1:
            return found
        everyone: list[dict[int, Any] | None] | None = [None] * self._world if self._first else None
        distributed.gather_object(found, everyone)
        return {row: told for part in everyone or [found] for row, told in (part or {}).items()}

    def alike(self, ids: Tensor) -> Tensor:
        """The first rank's tokens."""
        from torch import distributed

        if self._world > 1:
            distributed.broadcast(ids, src=0)
        return ids

    def close(self) -> None:
        """Part with the others, unless an error ends this rank: they may wait for it for ever."""
        from torch import distributed

        if distributed.is_initialized() and sys.exc_info()[0] is None:
            distributed.destroy_process_group()


def _barrier() -> None:
    from torch import distributed

    if distributed.is_initialized():
        distributed.barrier()


def main() -> None:
    """Serve, and end without the interpreter's way out, where torch's threads may abort it."""
    code = 0
    try:
        serve(load, is_writer=os.environ.get("RANK", "0") == "0", barrier=_barrier)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
        if os.environ.get("RANK", "0") != "0":
            # torchrun ends all ranks when one has: the one that writes shall have said why.
            time.sleep(_GRACE_SECONDS)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
