"""What the user asks a preflight to examine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from grpodoctor.errors import ConfigError
from grpodoctor.preflight.inputs.filtered_rows import check_output_path
from grpodoctor.preflight.inputs.prompt_rows import PromptColumns
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.probe.inputs.engine_spec import EngineSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightRequest:
    """The user's options."""

    model: Path | None = None
    """Directory of the model; None to check the prompts, the reward or the config alone."""
    prompts: Path | None = None
    held_out: Path | None = None
    columns: PromptColumns = field(default_factory=PromptColumns)
    """The columns that the user names; both files may have them."""
    reward: str | None = None
    reward_seconds: float = 60.0
    sampler: EngineSpec | None = None
    learner: EngineSpec | None = None
    reference: EngineSpec | None = None
    templates: Mapping[str, str] = field(default_factory=dict)
    control: Path | None = None
    run_config: Path | None = None
    """Config file of the run, which the rules about the configuration read."""
    framework: str | None = None
    """Framework of the config file; None to recognize it by its keys."""
    folder: Path
    """Folder for the output of engines."""
    budget: float | None = None
    """Time limit for engines, seconds."""
    filtered: Path | None = None
    """File for the prompts of suitable difficulty."""
    settings: RunSettings

    def validate(self) -> None:
        """Refuse, before anything runs, options that need another option.

        Raises:
            ConfigError: if an option is missing, or filtered prompts cannot be written.
        """
        if self.model is None and self.prompts is None and self.run_config is None:
            raise ConfigError(
                "no model, no prompts and no config were given",
                remedy="pass --model DIR, --prompts FILE or --run-config FILE",
            )
        pairs = (
            ("--control", self.control, "--model", self.model),
            ("--sampler", self.sampler, "--prompts", self.prompts),
            ("--sampler", self.sampler, "--model", self.model),
            ("--held-out", self.held_out, "--prompts", self.prompts),
            ("--reward", self.reward, "--prompts", self.prompts),
            ("--learner", self.learner, "--sampler", self.sampler),
            ("--reference", self.reference, "--learner", self.learner),
            ("--template", self.templates or None, "--sampler", self.sampler),
        )
        for option, value, required_option, required_value in pairs:
            if value is not None and required_value is None:
                raise ConfigError(
                    f"{option} requires {required_option}, but no {required_option} was given",
                    remedy=f"add {required_option}",
                )
        if self.filtered is None:
            return
        if None in (self.sampler, self.prompts, self.reward):
            raise ConfigError(
                "prompts cannot be filtered without their pass rates",
                where="--write-filtered",
                remedy="pass --sampler, --prompts and --reward",
            )
        check_output_path(self.filtered, self.prompts)
