"""The base class of rules that read the run's configuration instead of metrics."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from grpodoctor.frameworks.knob_mapping import OutOfRange
from grpodoctor.rules.base import Evidence, Need, Rule, RuleResult, Severity, Sighting
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import NotApplicable


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """What a rule saw in a configuration."""

    severity: Severity
    summary: str
    """One sentence of at most 20 words that contains the decisive setting."""
    remedies: tuple[str, ...] | None = None
    """Remedy ids, best first, if they depend on the finding. None: the rule's own remedies."""
    values: Mapping[str, float] = field(default_factory=dict)
    """Further settings as evidence, by name."""


@dataclass(frozen=True, slots=True)
class Undecided(NotApplicable):
    """The known settings are a fault unless an unknown one excuses them."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The known settings of a run: knobs, facts and the framework's defaults."""

    values: Mapping[str, Setting]
    out_of_range: tuple[OutOfRange, ...] = ()
    """Settings of the config outside the range of their knob; `values` lacks them."""
    misspelt: Mapping[str, str] = field(default_factory=dict)
    """Keys of the config that are no setting, with the setting whose name they resemble."""

    def get(self, name: str) -> Setting | None:
        """A setting; None if it is unknown."""
        return self.values.get(name)

    def number(self, name: str) -> float | None:
        """A setting as a number; None if it is unknown or not a number."""
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value)

    def amount(self, name: str) -> float:
        """A setting as a number; 0 if it is unknown or not a number."""
        return self.number(name) or 0.0

    def is_one_of(self, name: str, *values: Setting) -> bool:
        """Whether a setting is known and has one of these values."""
        return self.values.get(name) in values


class ConfigRule(Rule):
    """Base class of the rules about the configuration.

    They need no metric and no memory: a fault is seen at the first step, and resolved by a change
    of a knob. A rule is a page, its identity, what it `needs`, and `find_fault`.
    """

    needs: ClassVar[tuple[str, ...]]
    """Knobs and `CONFIG_FACTS` that the rule requires."""
    inputs: ClassVar[tuple[Need, ...]] = ()
    condition: ClassVar[Condition] = "wrong-settings"
    reads_config: ClassVar[bool] = True
    judged_by_outcome: ClassVar[bool] = True
    judges_any_method: ClassVar[bool] = False
    """Whether the fault is one in supervised fine-tuning, DPO and distillation, too."""
    persistence: ClassVar[int] = 1
    clearance: ClassVar[int] = 1

    def examine(self, chart: Chart) -> RuleResult:
        """Examine the configuration in force at the chart's current step."""
        config = chart.config
        if config.other_method and not self.judges_any_method:
            return NotApplicable(
                f"the config is of {config.other_method}, not of reinforcement learning"
            )
        known = config.settings(chart.knobs)
        settings = Settings(known, config.out_of_range, config.misspelt)
        unknown = [name for name in self.needs if settings.get(name) is None]
        if unknown:
            return NotApplicable(f"the config does not determine {', '.join(unknown)}")
        fault = self.find_fault(settings)
        if fault is None or isinstance(fault, Undecided):
            return fault
        numbers = {name: settings.number(name) for name in self.needs} | dict(fault.values)
        evidence = tuple(
            Evidence(name, max(chart.step, 0), value)
            for name, value in numbers.items()
            if value is not None
        )
        return Sighting(fault.severity, fault.summary, evidence, fault.remedies)

    @abstractmethod
    def find_fault(self, settings: Settings) -> ConfigFault | Undecided | None:
        """The fault of a configuration in which all `needs` are known; None if there is none."""
