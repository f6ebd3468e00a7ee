"""What published trials show about a rule or a remedy, in sentences for its page.

`python -m grpodoctor.trials.evidence.published_runs DIR` writes the table.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

TABLE = Path(__file__).with_name("trial_table.json")
_EFFECTS = {
    "helps": "Helps",
    "harms": "Does harm",
    "not shown": "No effect is shown",
    "no interval": "There is no interval",
}


def rule_trials(code: str) -> list[str]:
    """One sentence for each published trial of a rule; empty if it has none."""
    return [
        _rule_sentence(trial, rule)
        for trial in _trials()
        for rule in trial["rules"]
        if rule["code"] == code
    ]


def remedy_trials(remedy_id: str) -> list[str]:
    """One sentence for each published arm with a remedy; empty if it has none."""
    return [
        _remedy_sentence(trial, remedy)
        for trial in _trials()
        for remedy in trial["remedies"]
        if remedy["remedy"] == remedy_id
    ]


@lru_cache(maxsize=1)
def _trials() -> list[dict[str, Any]]:
    trials: list[dict[str, Any]] = orjson.loads(TABLE.read_bytes())["trials"]
    return trials


def _rule_sentence(trial: dict[str, Any], rule: dict[str, Any]) -> str:
    fired, controls = rule["fired"], rule["false_alarms"]
    delay = rule["median_delay"]
    when = "" if delay is None else f", {delay:g} steps (median) after the onset"
    return (
        f"{trial['trial']}: fired in {fired['hits']} of {fired['runs']} diseased runs{when}, "
        f"and in {controls['hits']} of {controls['runs']} controls."
    )


def _remedy_sentence(trial: dict[str, Any], remedy: dict[str, Any]) -> str:
    gain, variant = remedy["gain"], remedy["variant"]
    name = f"{trial['trial']}, {variant}" if variant else trial["trial"]
    if gain is None:
        return f"{name}: no result."
    interval = "" if gain["low"] is None else f" (95 %: {gain['low']:+.2f} to {gain['high']:+.2f})"
    control = remedy["control"]
    healthy = "" if control is None else f", {control:.2f} in the control"
    return (
        f"{name}: {_EFFECTS[remedy['effect']]}. Held-out accuracy {remedy['untreated']:.2f} "
        f"untreated, {remedy['treated']:.2f} treated{healthy}; "
        f"gain {gain['mean']:+.2f}{interval} in {gain['pairs']} pairs."
    )
