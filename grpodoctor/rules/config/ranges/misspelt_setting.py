"""CFG061."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class MisspeltSetting(ConfigRule):
    """A key of the config is no setting, and resembles one that the config lacks.

    What it sees:
        A key that the framework's table does not have and that differs from one that it has, in
        the same section, by one of eight letters or less. The setting that is meant must not be in
        the config. If TRL or verl is installed next to grpodoctor, all settings of the installed
        version are known too; its files are read, and it is not imported.

    Why it matters:
        Hydra refuses an unknown key only without `+`, and many scripts pass keys on without a
        check. The run then uses the default in place of the value.

    Evidence it needs:
        The run's config. Nothing else.

    Remedies:
        Correct the name.

    When it is wrong:
        The framework, or a fork of it, has both names.

    References:
        Damerau 1964, A technique for computer detection and correction of spelling errors: four of
        five errors are one letter wrong, missing, extra, or two exchanged.
    """

    code = "CFG061"
    name = "misspelt-setting"
    summary = "A key of the config is no setting, and resembles one that the config lacks."
    needs = ()
    remedies = ()
    references = ("doi.org/10.1145/363958.363994",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Name the first key, and count the others."""
        pairs = list(settings.misspelt.items())
        if not pairs:
            return None
        key, meant = pairs[0]
        more = f", and {len(pairs) - 1} more" if len(pairs) > 1 else ""
        text = f"{key} is no known setting; did you mean {meant}{more}?"
        return ConfigFault("warning", text)
