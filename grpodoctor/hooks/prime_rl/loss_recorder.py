"""Records the rows of prime-rl's trainer with what its loss sees."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from grpodoctor.frameworks.prime_rl.metrics import FRAMEWORK
from grpodoctor.hooks.arrays import to_host
from grpodoctor.hooks.logged_steps import LoggedSteps, note_version, package_version
from grpodoctor.hooks.run_hook import RunHook, hook_options, timestamped_directory
from grpodoctor.measure.mismatch import TokenPairs, pair_readings
from grpodoctor.vocabulary.values import Max, Rate, Reading

VERIFIED = ("0.8.1",)


@dataclass(frozen=True, slots=True)
class Sample:
    """The tokens of a training sample that are in the loss; shape (T,) before the mask."""

    learner_T: Any
    sampler_T: Any
    advantages_T: Any
    mask_T: Any


class LossRecorder:
    """The hook in one rank of the trainer.

    Args:
        loss: prime-rl's name of the loss.
        run_dir: directory to record in; `runs/<time>` if None.
        settings: settings of the loss.
    """

    def __init__(self, loss: str, run_dir: str | None, settings: dict[str, Any]) -> None:
        options = hook_options(run_dir, "none", "off", 0)
        self.hook = RunHook("prime-rl", options, Path(timestamped_directory()))
        version = package_version("prime-rl")
        self._steps = LoggedSteps(self.hook, FRAMEWORK, version)
        self._samples: list[Sample] = []
        self._has_rows = False
        self._is_closed = False
        note_version(self.hook, FRAMEWORK.title, version, VERIFIED)
        self.hook.missing(
            "rewards and texts", "prime-rl's trainer does not receive them; its log has them"
        )
        self._steps.begin({"trainer": {"loss": {"type": loss, **settings}}})
        import_module("prime_rl.monitors").MONITORS.append(RowMonitor(self))

    def observe(self, inputs: Any, outputs: Any) -> None:  # noqa: ARG002 - what a loss has
        """Keep a sample: its tensors are copied when the step ends, so that the GPU need not wait.

        Args:
            inputs: prime-rl's `LossInputs`.
            outputs: prime-rl's `LossOutputs`.
        """
        self.hook.guard.run("tokens", self._observe, inputs)

    def _observe(self, inputs: Any) -> None:
        if self._has_rows:  # the rows of a step come after its last loss
            self._has_rows = False
            self._steps.end_step()
        learner, sampler = inputs.trainer_logprobs.detach(), inputs.inference_logprobs.detach()
        self._samples.append(Sample(learner, sampler, inputs.advantages.detach(), inputs.loss_mask))

    def row(self, row: dict[str, Any], step: int) -> None:
        """A row that the trainer logs; the first one of a step ends its tokens.

        Args:
            row: metrics by prime-rl's keys; empty on ranks that log nothing.
            step: the trainer's step.
        """
        if self._is_closed:
            return
        samples, self._samples = self._samples, []
        self._has_rows = True
        self._steps.add(step, row)
        if samples:
            readings = self.hook.guard.run("tokens", token_readings, samples, step, self.hook.rank)
            self._steps.add_measured(step, readings or {})

    def close(self) -> None:
        """End the run."""
        self._is_closed = True
        self._steps.close()


class RowMonitor:
    """Receives what prime-rl logs; has the methods that its `monitors` module calls.

    Args:
        recorder: gets the rows.
    """

    def __init__(self, recorder: LossRecorder) -> None:
        self._recorder = recorder

    async def log(self, data: object, step: int, kind: str = "train", subset: str = "all") -> None:  # noqa: ARG002 - prime-rl's signature
        """Rows of metrics; episodes are not read."""
        if isinstance(data, dict):
            self._recorder.hook.guard.run("log", self._recorder.row, data, step)

    async def finalize(self) -> None:
        """The training is complete."""
        self._recorder.hook.guard.run("end", self._recorder.close)


def token_readings(samples: list[Sample], step: int, rank: int) -> dict[str, Reading]:
    """The mismatch of sampler and learner, and the advantages, over the tokens in the loss.

    Args:
        samples: those of the step.
        step: number of the step, for ids.
        rank: rank of this process, for ids.
    """
    ids = [f"{step}-{rank}-{row}" for row in range(len(samples))]
    masks = [to_host(each.mask_T).astype(bool) for each in samples]
    learner, sampler, advantages = (
        [to_host(getattr(each, name))[mask] for each, mask in zip(samples, masks, strict=True)]
        for name in ("learner_T", "sampler_T", "advantages_T")
    )
    lengths = [len(each) for each in learner]
    pairs = TokenPairs.select(
        np.repeat(np.arange(len(samples)), lengths),
        np.concatenate([np.arange(length) for length in lengths]),
        np.concatenate(learner),
        np.concatenate(sampler),
    )
    per_token = np.concatenate(advantages)
    largest = [float(np.abs(each).max()) if each.size else 0.0 for each in advantages]
    return {
        **pair_readings(pairs, ids),
        "advantage/abs_max": Max.of(np.array(largest), ids),
        "advantage/positive_rate": Rate.of(per_token > 0),
        "advantage/zero_rate": Rate.of(per_token == 0),
    }
