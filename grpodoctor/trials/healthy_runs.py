"""Healthy runs: every built-in task with the settings of several published variants.

No rule may report anything critical in them, and warnings must be rare.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grpodoctor.trials.trial import Arm, Experiment, Treated

TASKS = ("arithmetic", "counting", "sorting")
PRESETS = ("grpo", "dapo", "dr_grpo", "gspo", "cispo")


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthyRuns(Experiment):
    """An arm for each task and variant, without a disease."""

    tasks: tuple[str, ...] = TASKS
    presets: tuple[str, ...] = PRESETS

    @property
    def arms(self) -> Mapping[str, Arm | Treated]:
        """All arms by name: the task, then the variant."""
        return {
            f"{task} {preset}": Arm(settings=(f"task.name={task}",), preset=preset)
            for task in self.tasks
            for preset in self.presets
        }


HEALTHY = HealthyRuns(
    name="healthy-runs",
    question="Does any rule report a healthy run of a built-in task?",
)
