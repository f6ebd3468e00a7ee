"""Decides which findings become alerts: severity, repetition and rate."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from grpodoctor.hooks.alerts.channel import Alert
from grpodoctor.monitor.alert_settings import AlertSettings
from grpodoctor.rules.base import SEVERITIES, Finding
from grpodoctor.support.safe_text import plain

_HOUR = 3600.0
_LONGEST_SUMMARY = 500
_LONGEST_RUN = 200
_MOST_REMEDIES = 3


class AlertFilter:
    """Compares the findings with those that were sent.

    A finding that the rate limit holds back is sent later, if it is still active then.

    Args:
        settings: severity and limits.
        clock: seconds of a clock that never goes back.
    """

    def __init__(
        self, settings: AlertSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings, self._clock = settings, clock
        self._open: dict[str, Finding] = {}
        """The findings that were sent and are active, by code."""
        self._latest: dict[str, float] = {}
        """When a rule's latest alert was sent."""
        self._times: deque[float] = deque()
        """When the alerts of the last hour were sent."""

    def restart(self) -> None:
        """Forget the findings: another run follows. The limits stay."""
        self._open.clear()

    def alerts(self, findings: Iterable[Finding], step: int, run: str) -> list[Alert]:
        """The alerts to send now.

        Args:
            findings: the findings that count against the run, active or not.
            step: the latest step.
            run: path of the run.
        """
        active = {each.code: each for each in findings if each.active and self._is_severe(each)}
        news = [*self._resolved(active), *self._new(active)]
        admitted = [(kind, each) for kind, each in news if self._admit(kind, each)]
        held_back = len(active.keys() - self._open.keys())
        return [_alert(kind, each, step, run, held_back) for kind, each in admitted]

    def _is_severe(self, finding: Finding) -> bool:
        return _rank(finding) >= SEVERITIES.index(self._settings.min_severity)

    def _resolved(self, active: dict[str, Finding]) -> Iterator[tuple[str, Finding]]:
        for code in [code for code in self._open if code not in active]:
            finding = self._open.pop(code)
            if self._settings.resolved:
                yield "finding-resolved", finding.resolved()

    def _new(self, active: dict[str, Finding]) -> Iterator[tuple[str, Finding]]:
        for code, finding in active.items():
            before = self._open.get(code)
            if before is None:
                yield "finding-raised", finding
            elif _rank(finding) > _rank(before):
                yield "finding-escalated", finding

    def _admit(self, kind: str, finding: Finding) -> bool:
        now, code = self._clock(), finding.code
        while self._times and now - self._times[0] >= _HOUR:
            self._times.popleft()
        waited = now - self._latest.get(code, -_HOUR * 1000)
        is_repetition = kind == "finding-raised" and waited < 60 * self._settings.rule_minutes
        if is_repetition or len(self._times) >= self._settings.per_hour:
            return False
        if finding.active:
            self._open[code] = finding
        self._latest[code] = now
        self._times.append(now)
        return True


def _rank(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


def _alert(kind: str, finding: Finding, step: int, run: str, held_back: int) -> Alert:
    return Alert(
        kind=kind,
        severity=finding.severity,
        code=finding.code,
        name=finding.name,
        summary=plain(finding.summary, limit=_LONGEST_SUMMARY),
        step=step,
        onset_step=finding.onset_step,
        run=plain(run, limit=_LONGEST_RUN),
        remedies=finding.remedies[:_MOST_REMEDIES],
        held_back=held_back,
    )
