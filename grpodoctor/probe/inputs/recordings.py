"""Where a run has its recording."""

from __future__ import annotations

from pathlib import Path

from grpodoctor.runs.records import MANIFEST


def recording_in(run: Path) -> Path:
    """The only recording in a trainer's output directory, or the directory itself."""
    if not run.is_dir() or (run / MANIFEST).exists():
        return run
    recordings = [manifest.parent for manifest in run.glob(f"*/{MANIFEST}")]
    return recordings[0] if len(recordings) == 1 else run
