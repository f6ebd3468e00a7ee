"""Functions that slime calls with the samples of each rollout, in its rollout manager.

`--custom-rollout-log-function-path` and `--custom-eval-rollout-log-function-path` name them. They
return False, so that slime logs as usual.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpodoctor.frameworks.slime.metrics import FRAMEWORK
from grpodoctor.hooks.guard import Guard
from grpodoctor.hooks.logged_steps import LoggedSteps, note_version, package_version
from grpodoctor.hooks.plain_config import plain_config
from grpodoctor.hooks.run_hook import RunHook, hook_options, timestamped_directory
from grpodoctor.hooks.slime.samples import rollout_batch

VERIFIED = ("0.3.1",)
_LEARNER = "log-probabilities of the learner, advantages, gradients"


class RolloutRecorder:
    """The hook in the rollout manager.

    Args:
        args: slime's arguments.
    """

    def __init__(self, args: Any) -> None:
        folder = getattr(args, "save", None)
        default = Path(folder) / "grpodoctor" if folder else timestamped_directory()
        self.hook = RunHook("slime", hook_options(None, "none", "summary", 8), default)
        version = package_version("slime")
        self._steps = LoggedSteps(self.hook, FRAMEWORK, version)
        note_version(self.hook, FRAMEWORK.title, version, VERIFIED)
        self.hook.missing(_LEARNER, "slime computes them in other processes; its log has means")
        model, seed = str(getattr(args, "hf_checkpoint", "") or ""), getattr(args, "seed", None)
        self._steps.begin(plain_config(args), model=model, seed=seed)

    def record(self, step: int, args: Any, samples: Sequence[Any], seconds: float) -> None:
        """Record the samples of a rollout, after slime's dynamic sampling.

        Args:
            step: number of the rollout.
            args: slime's arguments.
            samples: slime's `Sample` objects.
            seconds: time of the rollout.
        """
        rollouts = self.hook.guard.run("samples", rollout_batch, step, args, samples)
        self._steps.add(step, {"perf/rollout_time": seconds})
        self._steps.end_step(rollouts)

    def evaluated(self, step: int, data: Mapping[str, Mapping[str, Any]]) -> None:
        """Record the mean reward of each evaluation set, as slime computes it.

        Args:
            step: number of the rollout.
            data: rewards of each set.
        """
        rewards = {name: each["rewards"] for name, each in data.items() if each["rewards"]}
        means = {f"eval/{name}": sum(each) / len(each) for name, each in rewards.items()}
        self._steps.add(step, means)


_recorders: list[RolloutRecorder | None] = []
"""The recorder of this process, once slime has called; None if it could not be made."""


def _recorder(args: Any) -> RolloutRecorder | None:
    if not _recorders:
        _recorders.append(Guard().run("grpodoctor", RolloutRecorder, args))
    return _recorders[0]


def log_rollout(
    rollout_id: int,
    args: Any,
    samples: Sequence[Any],
    rollout_extra_metrics: Mapping[str, Any] | None,  # noqa: ARG001 - slime's signature, here and below
    rollout_time: float,
) -> bool:
    """Record a rollout.

    Args:
        rollout_id: its number.
        args: slime's arguments.
        samples: its samples.
        rollout_extra_metrics: metrics of the rollout function.
        rollout_time: its seconds.
    """
    recorder = _recorder(args)
    if recorder is not None:
        recorder.hook.guard.run("log", recorder.record, rollout_id, args, samples, rollout_time)
    return False


def log_evaluation(
    rollout_id: int,
    args: Any,
    data: Mapping[str, Mapping[str, Any]],
    extra_metrics: Mapping[str, Any] | None,  # noqa: ARG001
) -> bool:
    """Record an evaluation.

    Args:
        rollout_id: number of the rollout.
        args: slime's arguments.
        data: results by set.
        extra_metrics: metrics of the rollout function.
    """
    recorder = _recorder(args)
    if recorder is not None:
        recorder.hook.guard.run("evaluation", recorder.evaluated, rollout_id, data)
    return False
