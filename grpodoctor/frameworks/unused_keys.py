"""Keys of a log that a table does not translate."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class UnusedKeys:
    """Keys of a log that the table does not translate, with the reasons."""

    unmapped: dict[str, int] = field(default_factory=dict)
    """Keys that the table lacks, with the number of rows that hold them."""
    rejected: dict[str, str] = field(default_factory=dict)
    """Keys that do not hold what their name suggests, with the table's caveat."""
    ambiguous: dict[str, str] = field(default_factory=dict)
    """Keys whose meaning depends on an unknown setting or version, with its name."""
    generic: dict[str, str] = field(default_factory=dict)
    """Keys that the user's code added, with the metrics that the generic table gives for them.
    These are translated."""
    by_last_part: dict[str, str] = field(default_factory=dict)
    """Keys with an unknown prefix, with the metrics that their last parts are common names for.
    These are translated."""
    components: tuple[str, ...] = ()
    """Keys of the reward's components, if no key holds the reward. These are translated."""
