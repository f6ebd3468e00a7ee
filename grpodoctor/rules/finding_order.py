"""The order in which the engine lists findings and their changes."""

from __future__ import annotations

from grpodoctor.rules.base import SEVERITIES, Finding
from grpodoctor.rules.diagnosis import Change

_SYMPTOMS = ("MIS", "GRP", "OPT", "CLP", "KLD", "ENT", "REW")
"""Families in causal order; families that are not listed come first.

Flipped experts cause a sampler mismatch, a mismatch clips tokens, clipped tokens change entropy,
and the reward changes last.
"""


def change_order(change: Change, raised: set[str]) -> tuple[bool, tuple[int, int, int, str]]:
    """News first, except that the end of a finding precedes the milder one that follows it."""
    is_over = change.kind == "resolved" and change.finding.code not in raised
    return is_over, finding_rank(change.finding)


def finding_rank(finding: Finding) -> tuple[int, int, int, str]:
    """The order in which findings are reported."""
    family = finding.code[:3]
    symptom = _SYMPTOMS.index(family) + 1 if family in _SYMPTOMS else 0
    return -SEVERITIES.index(finding.severity), finding.onset_step, symptom, finding.code
