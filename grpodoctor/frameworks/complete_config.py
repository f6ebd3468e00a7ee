"""A run's whole configuration: its knobs, the facts that its config contains, and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grpodoctor.errors import ConfigError
from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.knob_mapping import KnobTable, OutOfRange
from grpodoctor.frameworks.launch_command import FRAMEWORK_KEY, LIKELY_FRAMEWORK_KEY
from grpodoctor.frameworks.misspelt_keys import misspelt_keys
from grpodoctor.frameworks.package_settings import package_settings
from grpodoctor.frameworks.registry import configurable_frameworks, find_framework
from grpodoctor.frameworks.run_config import flattened
from grpodoctor.frameworks.training_method import other_method
from grpodoctor.vocabulary.knobs import Setting


@dataclass(frozen=True, slots=True)
class CompleteConfig:
    """What is known about a run's configuration besides its current knobs."""

    found: bool = False
    """Whether the run's config was found; without it, knobs are defaults or guesses."""
    framework: str = ""
    facts: Mapping[str, Setting] = field(default_factory=dict)
    """Facts by name; also knobs that a config determines together with other settings."""
    defaults: Mapping[str, Setting] = field(default_factory=dict)
    """The framework's values of knobs that the config does not contain."""
    out_of_range: tuple[OutOfRange, ...] = ()
    """Settings outside the range of their knob; `knobs` and `facts` lack them."""
    other_method: str = ""
    """What the config trains by, if it is not reinforcement learning."""
    misspelt: Mapping[str, str] = field(default_factory=dict)
    """Keys that are no setting, with the setting whose name they resemble."""

    def settings(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """All known settings, given the knobs in force."""
        return {**self.defaults, **knobs, **self.facts}


def complete_config(
    framework_name: str,
    config: Mapping[str, Any],
    knobs: Mapping[str, Setting],
    changes: Mapping[str, Setting] | None = None,
) -> CompleteConfig:
    """The configuration of a run.

    Args:
        framework_name: framework that wrote the run; may be unknown.
        config: the framework's config, nested or with dotted keys.
        knobs: the run's knobs at its start.
        changes: knobs that were changed since, with their values.
    """
    framework = find_framework(framework_name, configurable_frameworks())
    if framework is None:
        return CompleteConfig(found=bool(knobs))
    table, settings = framework.knobs, dict(flattened(config))
    found = table.reads_any_of(settings) or bool(knobs.keys() - table.read({}).keys())
    if not found:
        return CompleteConfig(framework=framework.name)
    return CompleteConfig(
        True,
        framework.name,
        table.read_facts(settings, changes),
        _certain_defaults(table, settings),
        table.out_of_range(settings),
        other_method(framework.name, settings),
        misspelt_keys(settings, table.all_keys | package_settings(framework.name)),
    )


_RESOLVED = 60
"""Settings of a config that was printed with all of its defaults; an override list is shorter."""


def _certain_defaults(table: KnobTable, settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """The framework's defaults, without those of knobs whose value is another or unknown.

    A knob is unknown if the config sets it to what no reader understands, such as an estimator of
    the user's own. A config printed to a console loses the lines that another process overwrites:
    if a whole section is missing, its values are unknown, and not the defaults.
    """
    lost = table.not_understood(settings)
    if len(settings) >= _RESOLVED:
        sections = {key.rpartition(".")[0] for key in settings}
        lost |= {
            row.knob
            for row in table.mappings
            if (section := row.key.rpartition(".")[0]) and not _has_section(sections, section)
        }
    return {knob: value for knob, value in table.defaults.items() if knob not in lost}


def _has_section(sections: set[str], wanted: str) -> bool:
    return any(section == wanted or section.startswith(f"{wanted}.") for section in sections)


def framework_of_config(settings: Mapping[str, Setting]) -> Framework:
    """The framework of a config.

    It is the one that the command of a launch script names; otherwise the one whose keys the config
    contains: those of knobs, and those of facts if it ties.

    Raises:
        ConfigError: if it contains those of none, or equally many of several.
    """
    named = find_framework(str(settings.get(FRAMEWORK_KEY, "")), configurable_frameworks())
    if named is not None:
        return named
    counts = [
        (each, (each.knobs.count_keys(settings), each.knobs.count_fact_keys(settings)))
        for each in configurable_frameworks()
    ]
    most = max(count for _, count in counts)
    likely = [framework for framework, count in counts if count == most]
    by_command = [each for each in likely if each.name == settings.get(LIKELY_FRAMEWORK_KEY)]
    likely = by_command or likely
    if most[0] == 0 or len(likely) > 1:
        names = ", ".join(framework.name for framework in likely)
        raise ConfigError(
            "the config contains no setting of a known framework"
            if most[0] == 0
            else f"the config may be of {names}",
            where="--run-config",
            remedy="name its framework with --framework",
        )
    return likely[0]
