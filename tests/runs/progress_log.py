"""A progress receiver for tests."""

from __future__ import annotations


class ProgressLog:
    """Keeps all updates as (completed, total)."""

    def __init__(self) -> None:
        self.updates: list[tuple[float, float | None]] = []
        self.detail = ""

    def update(
        self, completed: float, *, total: float | None = None, detail: str | None = None
    ) -> None:
        self.updates.append((completed, total))
        self.detail = detail or self.detail
