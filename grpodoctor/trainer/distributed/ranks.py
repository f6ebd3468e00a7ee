"""Several processes (ranks) that train one model: collective calls and error handling.

`torchrun` starts the processes and numbers them through environment variables. They communicate
only through `Ranks`; with a single process, `Ranks` communicates nothing.

- A collective call that one rank skips hangs the others. Therefore each rank makes the same calls
  in the same order. Whatever can fail on one rank (a user's reward function, a file, an engine)
  runs in `run_all`, `gather` or `run_first`, which broadcast the error, so that all ranks raise it.
- Any other failure ends only that rank. The others lose the connection to it, or reach the process
  group's timeout, and raise `RankError`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, TypeVar, cast

import torch
from torch import Tensor, distributed, nn

from grpodoctor.errors import GrpodoctorError, OutOfMemoryError, RankError

_T = TypeVar("_T")

LOCAL_ERRORS = (RankError, OutOfMemoryError)
"""Errors that stay local to one rank; all other errors are raised by every rank."""

_LOST_RANK_PHRASES = ("gloo", "nccl", "connection", "timed out", "timeout", "socket")
"""Parts of torch's message when another rank is gone: gloo's errors do not have their own class."""


class Share(NamedTuple):
    """A rank's rows of a batch, padded so that every rank has the same number."""

    rows: Tensor
    """Row numbers: contiguous, then filler (the batch's first row, repeated)."""
    real: Tensor
    """bool; false for filler, which must not count."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process and the number of processes that train together; one by default."""

    rank: int = 0
    world: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that writes files and messages."""
        return self.rank == 0

    def run_all(self, action: Callable[[], _T]) -> _T:
        """Call `action` on every rank; if it fails on one, all ranks raise the error.

        Raises:
            GrpodoctorError: the error of the lowest rank that failed.
        """
        value, error = _attempt(action)
        for rank_error in self._exchange(error):
            if rank_error is not None:
                raise rank_error
        return cast("_T", value)

    def gather(self, action: Callable[[], _T]) -> list[_T]:
        """Call `action` on every rank; returns all ranks' results and raises like `run_all`."""
        results = self._exchange(_attempt(action))
        for _, error in results:
            if error is not None:
                raise error
        return [cast("_T", value) for value, _ in results]

    def run_first(self, action: Callable[[], _T]) -> _T:
        """Call `action` on the first rank only; all ranks return its result or raise its error."""
        result = [_attempt(action) if self.is_first else (None, None)]
        if self.world > 1:
            with detecting_lost_ranks():
                distributed.broadcast_object_list(result, src=0)
        value, error = result[0]
        if error is not None:
            raise error
        return cast("_T", value)

    def is_local_error(self, error: Exception) -> bool:
        """Whether an error may have occurred on this rank only."""
        is_shared = isinstance(error, GrpodoctorError) and not isinstance(error, LOCAL_ERRORS)
        return self.world > 1 and not is_shared

    def detecting_lost_ranks(self) -> AbstractContextManager[None]:
        """`detecting_lost_ranks` if there are several ranks."""
        return detecting_lost_ranks() if self.world > 1 else nullcontext()

    def any(self, flag: bool) -> bool:
        """Whether the flag is true on any rank."""
        return any(self._exchange(flag))

    def sum(self, numbers: Tensor) -> Tensor:
        """The sum over ranks, bit-identical on each rank."""
        if self.world == 1:
            return numbers
        with detecting_lost_ranks():
            distributed.all_reduce(numbers)
        return numbers

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace the gradients of unsharded parameters by their sum over ranks."""
        if self.world == 1:
            return
        for weight in parameters:
            weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
            self.sum(weight.grad)

    def rows(self, count: int) -> range:
        """This rank's part of `count` rows: contiguous, of nearly equal size, possibly empty."""
        return range(self.rank * count // self.world, (self.rank + 1) * count // self.world)

    def share(self, count: int) -> Share:
        """This rank's part of `count` rows, padded to the size of the largest part."""
        own = self.rows(count)
        largest = -(-count // self.world)
        rows = torch.zeros(largest, dtype=torch.long)
        rows[: len(own)] = torch.arange(own.start, own.stop)
        return Share(rows, torch.arange(largest) < len(own))

    def gather_rows(self, part: Tensor, count: int) -> Tensor:
        """Gather the ranks' results for their `share(count)`, without filler, in batch order."""
        if self.world == 1:
            return part
        # As bytes: gloo supports only some dtypes.
        own = part.contiguous().flatten().view(torch.uint8)
        gathered = [torch.empty_like(own) for _ in range(self.world)]
        with detecting_lost_ranks():
            distributed.all_gather(gathered, own)
        parts = [content.view(part.dtype).view_as(part) for content in gathered]
        sizes = [len(Ranks(rank, self.world).rows(count)) for rank in range(self.world)]
        return torch.cat([rows[:size] for rows, size in zip(parts, sizes, strict=True)])

    @torch.no_grad()
    def broadcast_weights(self, model: nn.Module) -> None:
        """Copy the first rank's weights and buffers to every rank."""
        if self.world == 1:
            return
        with detecting_lost_ranks():
            for tensor in (*model.parameters(), *model.buffers()):
                distributed.broadcast(tensor.data, src=0)

    def _exchange(self, mine: _T) -> list[_T]:
        if self.world == 1:
            return [mine]
        gathered = [mine] * self.world
        with detecting_lost_ranks():
            distributed.all_gather_object(gathered, mine)
        return gathered


SINGLE_PROCESS = Ranks()


def _attempt(action: Callable[[], _T]) -> tuple[_T | None, GrpodoctorError | None]:
    try:
        return action(), None
    except LOCAL_ERRORS:
        raise
    except GrpodoctorError as error:
        return None, error


def ranks_from_environment() -> Ranks:
    """The ranks that `torchrun` started; a single process if it was started in another way."""
    needed = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    if not all(name in os.environ for name in needed):
        return SINGLE_PROCESS
    return Ranks(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))


@contextmanager
def process_group(ranks: Ranks, timeout: float) -> Iterator[None]:
    """Connect the ranks while the body runs: gloo on the CPU, NCCL on CUDA.

    Raises:
        RankError: if the other ranks cannot be reached.
    """
    if ranks.world == 1:
        yield
        return
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        backend = "cpu:gloo,cuda:nccl"
    with detecting_lost_ranks():
        distributed.init_process_group(backend, timeout=timedelta(seconds=timeout))
    try:
        with detecting_lost_ranks():
            yield
    except LOCAL_ERRORS:
        raise  # closing the group would wait for ranks that are gone or about to lose this one
    except BaseException:
        distributed.destroy_process_group()
        raise
    distributed.destroy_process_group()


@contextmanager
def detecting_lost_ranks() -> Iterator[None]:
    """Report a lost rank in one line, instead of torch's exception.

    Raises:
        RankError: if a connection broke or timed out.
    """
    try:
        yield
    except RuntimeError as error:
        lost = isinstance(error, distributed.DistError)
        if lost or any(phrase in str(error).lower() for phrase in _LOST_RANK_PHRASES):
            raise RankError(
                "another rank of this run has ended or no longer answers",
                where=f"rank {distributed.get_rank()}" if distributed.is_initialized() else "",
                remedy="read that rank's output, then continue from the last checkpoint: --resume",
            ) from error
        raise


def exit_rank(ranks: Ranks) -> None:
    """End this rank's process after its work is written; does nothing with a single process.

    torch threads that outlive the process group have been seen to abort the interpreter at exit
    (exit code -6). torchrun would report a completed run as failed.
    """
    if ranks.world > 1:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
