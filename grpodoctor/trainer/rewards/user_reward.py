"""Users' reward functions, for `train` and `preflight` alike.

The function runs in its own process, which is started once, kept, and killed when it takes too
long. Both commands accept the same functions, call them in the same way and check the returned
values in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from grpodoctor.errors import DataError
from grpodoctor.support.worker_process import WorkerProcess
from grpodoctor.trainer.rewards.returned_values import RewardValues

_MAX_TIMEOUTS = 2
"""Timeouts after which the function is not called again: each cost the user the whole wait."""


class RewardInput(Protocol):
    """What a reward function may need to know about a prompt."""

    @property
    def prompt(self) -> str:
        """The prompt's text."""

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        """The conversation; empty if the data has plain text."""

    @property
    def answer(self) -> str | None:
        """The reference answer."""

    @property
    def columns(self) -> Mapping[str, Any]:
        """The row of the data."""


class UserReward:
    """A user's reward function.

    Args:
        spec: `FILE.py:function` or `module:function`. The names of its parameters decide how it is
            called; see `call_forms`. It may be async or a generator.
        seconds: time limit for one batch, on the clock. The first call includes the import.
        columns: names of the data's columns.
        check_form: refuse at once a function whose parameters do not fit the columns.
        option: the option or key that holds `spec`, for error messages.
        seconds_option: the option or key that holds `seconds`.
        show_output: let the function print to stderr.

    Raises:
        DataError: if the function cannot be imported or called.
    """

    def __init__(
        self,
        spec: str,
        *,
        seconds: float,
        columns: Collection[str] = (),
        check_form: bool = False,
        option: str = "task.reward",
        seconds_option: str = "task.reward_seconds",
        show_output: bool = False,
    ) -> None:
        self.spec, self._seconds, self._columns = spec, seconds, sorted(columns)
        self._option, self._seconds_option = option, seconds_option
        self._worker = WorkerProcess(
            "grpodoctor.trainer.rewards.reward_worker", show_output=show_output
        )
        self._timeouts = 0
        form = self._request({"check_form": check_form})
        self.form: str = form["name"]
        """`trl`, `verl`, `verl batch` or `grpodoctor`."""
        self.description = f"reward {spec}: called {form['description']}"
        """One line that says how the function is called."""
        self.parameters: tuple[str, ...] = tuple(form["parameters"])
        """Names of its parameters that may be columns."""
        self.keywords: tuple[str, ...] = tuple(form["keywords"])
        """Keys that its source reads from `**kwargs`."""

    def __call__(
        self,
        inputs: Sequence[RewardInput],
        texts: Sequence[str],
        *,
        most_seconds: float = math.inf,
    ) -> RewardValues:
        """The rewards of completions, one input each.

        Args:
            inputs: what each completion answers.
            texts: the completions.
            most_seconds: time limit of this call, if it is below the usual one.

        Raises:
            DataError: if the function raises, takes too long, ends its process, or returns anything
                but one finite number per completion.
        """
        return RewardValues(**self._request(_batch(inputs, texts), most_seconds))

    def scored(self, inputs: Sequence[RewardInput], texts: Sequence[str]) -> list[bool]:
        """Whether the function returns a reward for each completion, and not None.

        TRL's functions return None for rows of a task that other functions score.

        Raises:
            DataError: if the function raises, takes too long or ends its process.
        """
        scored: list[bool] = self._request({**_batch(inputs, texts), "scored": True})["scored"]
        return scored

    def edited_arguments(self, inputs: Sequence[RewardInput], texts: Sequence[str]) -> list[str]:
        """The names of the arguments that the function changes in place.

        Raises:
            DataError: as for a call.
        """
        edited: list[str] = self._request({**_batch(inputs, texts), "edits": True})["edited"]
        return edited

    def with_reply(
        self, inputs: Sequence[RewardInput], texts: Sequence[str], reply: str
    ) -> RewardValues | None:
        """The rewards if the function's judge model replies with this text to every request.

        Returns:
            None if the function's module has no client and no helper of a judge.

        Raises:
            DataError: as for a call.
        """
        values = self._request({**_batch(inputs, texts), "reply": reply})["values"]
        return None if values is None else RewardValues(**values)

    @property
    def has_timed_out(self) -> bool:
        """Whether a call took too long."""
        return self._timeouts > 0

    def close(self) -> None:
        """Kill the process; the next call starts a new one."""
        self._worker.close(wait_seconds=0.0)

    def _request(self, request: dict[str, Any], most_seconds: float = math.inf) -> dict[str, Any]:
        if self._timeouts >= _MAX_TIMEOUTS:
            raise self._timeout_error(
                self._seconds, f" {self._timeouts} times and is not called again"
            )
        seconds = min(self._seconds, most_seconds)
        message = {"spec": self.spec, "columns": self._columns, **request}
        try:
            reply: dict[str, Any] = self._worker.request(message, seconds)
        except TimeoutError:
            self._timeouts += 1
            raise self._timeout_error(seconds) from None
        except EOFError:
            raise self._error("ended its process", "fix the code that exits or crashes") from None
        if "error" in reply:
            raise self._error(reply["error"], reply["remedy"])
        return reply

    def _timeout_error(self, seconds: float, more: str = "") -> DataError:
        return self._error(
            f"took longer than {seconds:g} seconds{more}",
            f"make it faster, or raise {self._seconds_option}",
        )

    def _error(self, what: str, remedy: str) -> DataError:
        return DataError(
            f"the reward function {self.spec[:200]} {what}", where=self._option, remedy=remedy
        )


def _batch(inputs: Sequence[RewardInput], texts: Sequence[str]) -> dict[str, Any]:
    """The request for a batch of completions, one input each."""
    entries = [
        {
            "prompt": each.prompt,
            "messages": [dict(message) for message in each.messages],
            "answer": each.answer,
            "columns": dict(each.columns),
        }
        for each in inputs
    ]
    return {"inputs": entries, "texts": list(texts)}
