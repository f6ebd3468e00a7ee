"""Several processes that train one model: who is who, what they tell each other, who failed.

`torchrun` starts the processes, called ranks, and says in their environment which is which. All
that they exchange goes through `Ranks`; one process alone is the `Ranks` that exchanges nothing.

- A collective call that one rank does not make is a hang. So each rank makes the same calls in the
  same order: what can fail on one of them (a user's reward function, a file, an engine) runs in
  `agree`, `gather` or `first`, which tell every rank, and then all of them raise the same error.
- What fails elsewhere ends that rank alone. The others then lose their connection to it, or wait
  for as long as the process group's time-out says, and raise `RankError`.
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
"""Errors that no rank tells the others; all other ones are raised by each of them."""

_SIGNS_OF_LOSS = ("gloo", "nccl", "connection", "timed out", "timeout", "socket")
"""What torch says where another rank is gone: gloo's errors have no class of their own."""


class Share(NamedTuple):
    """A rank's rows of a batch; every rank has as many, some of them for nothing but that."""

    rows: Tensor
    """Row numbers, contiguous, then the filler: the batch's first row again."""
    real: Tensor
    """bool; false for the filler, which must not count."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among those that train one model; by default it is alone."""

    rank: int = 0
    world: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that writes, and speaks to the user."""
        return self.rank == 0

    def run_all(self, act: Callable[[], _T]) -> _T:
        """Act on each rank; an error of one is raised by all.

        Raises:
            GrpodoctorError: the first rank's that has one.
        """
        value, error = _attempt(act)
        for each in self._exchange(error):
            if each is not None:
                raise each
        return cast("_T", value)

    def gather(self, act: Callable[[], _T]) -> list[_T]:
        """Act on each rank; returns what came of it, rank by rank, and raises as `agree` does."""
        outcomes = self._exchange(_attempt(act))
        for _, error in outcomes:
            if error is not None:
                raise error
        return [cast("_T", value) for value, _ in outcomes]

    def run_first(self, act: Callable[[], _T]) -> _T:
        """Act on the first rank alone; all of them return what came of it, or raise it."""
        outcome = [_attempt(act) if self.is_first else (None, None)]
        if self.world > 1:
            with detecting_lost_ranks():
                distributed.broadcast_object_list(outcome, src=0)
        value, error = outcome[0]
        if error is not None:
            raise error
        return cast("_T", value)

    def is_local_error(self, error: GrpodoctorError) -> bool:
        """Whether an error may be this rank's alone, so that no other one waits for it."""
        return self.world > 1 and isinstance(error, LOCAL_ERRORS)

    def detecting_lost_ranks(self) -> AbstractContextManager[None]:
        """`watching`, where there is another rank to lose."""
        return detecting_lost_ranks() if self.world > 1 else nullcontext()

    def any(self, flag: bool) -> bool:
        """Whether the flag is up on any rank."""
        return any(self._exchange(flag))

    def sum(self, numbers: Tensor) -> Tensor:
        """The sum over ranks, the same to the last bit on each of them."""
        if self.world == 1:
            return numbers
        with detecting_lost_ranks():
            distributed.all_reduce(numbers)
        return numbers

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Give every rank the sum of the gradients that they have of whole parameters."""
        if self.world == 1:
            return
        for each in parameters:
            each.grad = torch.zeros_like(each) if each.grad is None else each.grad
            self.sum(each.grad)

    def rows(self, count: int) -> range:
        """This rank's part of `count` rows: contiguous, as even as can be, maybe empty."""
        return range(self.rank * count // self.world, (self.rank + 1) * count // self.world)

    def share(self, count: int) -> Share:
        """This rank's part of `count` rows, filled up to what the largest part has."""
        own = self.rows(count)
        most = -(-count // self.world)
        rows = torch.zeros(most, dtype=torch.long)
        rows[: len(own)] = torch.arange(own.start, own.stop)
        return Share(rows, torch.arange(most) < len(own))

    def gather_rows(self, part: Tensor, count: int) -> Tensor:
        """What each rank made of its `share(count)`, without the filler, in the batch's order.

        Args:
            part: one entry per row of the share along its first dimension.
            count: rows of the whole batch.
        """
        if self.world == 1:
            return part
        # As bytes: gloo knows only some of the types of numbers.
        own = part.contiguous().flatten().view(torch.uint8)
        everyone = [torch.empty_like(own) for _ in range(self.world)]
        with detecting_lost_ranks():
            distributed.all_gather(everyone, own)
        parts = [each.view(part.dtype).view_as(part) for each in everyone]
        sizes = [len(Ranks(rank, self.world).rows(count)) for rank in range(self.world)]
        return torch.cat([each[:size] for each, size in zip(parts, sizes, strict=True)])

    @torch.no_grad()
    def broadcast_weights(self, model: nn.Module) -> None:
        """Give every rank the first one's weights and buffers."""
        if self.world == 1:
            return
        with detecting_lost_ranks():
            for tensor in (*model.parameters(), *model.buffers()):
                distributed.broadcast(tensor.data, src=0)

    def _exchange(self, mine: _T) -> list[_T]:
        if self.world == 1:
            return [mine]
        everyone = [mine] * self.world
        with detecting_lost_ranks():
            distributed.all_gather_object(everyone, mine)
        return everyone


SINGLE_PROCESS = Ranks()


def _attempt(act: Callable[[], _T]) -> tuple[_T | None, GrpodoctorError | None]:
    try:
        return act(), None
    except LOCAL_ERRORS:
        raise
    except GrpodoctorError as error:
        return None, error


def ranks_from_environment() -> Ranks:
    """Which process this is, as `torchrun` tells it; alone where it was started otherwise."""
    needed = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    if not all(name in os.environ for name in needed):
        return SINGLE_PROCESS
    return Ranks(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))


@contextmanager
def process_group(ranks: Ranks, timeout: float) -> Iterator[None]:
    """The connection between the ranks while the body runs: gloo for the CPU, NCCL for CUDA.

    Args:
        ranks: who takes part.
        timeout: longest wait for another rank, in seconds.

    Raises:
        RankError: if the others cannot be reached.
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
        raise  # the others would be waited for, and are gone or about to lose this one
    except BaseException:
        distributed.destroy_process_group()
        raise
    distributed.destroy_process_group()


@contextmanager
def detecting_lost_ranks() -> Iterator[None]:
    """Say in one line that another rank was lost, for whatever torch says of it.

    Raises:
        RankError: if a connection broke or nothing came in time.
    """
    try:
        yield
    except RuntimeError as error:
        lost = isinstance(error, distributed.DistError)
        if lost or any(sign in str(error).lower() for sign in _SIGNS_OF_LOSS):
            raise RankError(
                "another rank of this run has ended or no longer answers",
                where=f"rank {distributed.get_rank()}" if distributed.is_initialized() else "",
                remedy="see what it said, and go on by --resume from the last checkpoint",
            ) from error
        raise


def leave(ranks: Ranks) -> None:
    """End the process of a rank whose work is done and written; does nothing to one alone.

    Threads that torch keeps beyond its process group have been seen to abort the interpreter on its
    way out (exit code -6), which torchrun would report as a failure of a run that is complete.
    """
    if ranks.world > 1:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
