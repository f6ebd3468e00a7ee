from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from grpodoctor.probe.attribution.case import Attribution, Case
from grpodoctor.probe.attribution.investigate import investigate
from grpodoctor.probe.contract import Sampling
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.probe.attribution.cases import measured
from tests.probe.attribution.in_process import InProcess
from tests.probes import models

PROMPTS, SAMPLES, TOKENS = 21, 3, 56

Investigated = tuple[Case, Attribution]
Investigate = Callable[..., Investigated]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


class Directories:
    """Model directories with planted faults, created on first use."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __getattr__(self, kind: str) -> Path:
        return self._made(kind, getattr(models, kind))

    def variant(self, name: str, from_: Path, **options: Any) -> Path:
        return self._made(name, models.variant, from_, **options)

    def _made(self, name: str, make: Callable[..., Path], *arguments: Any, **options: Any) -> Path:
        folder = self.root / name
        return folder if folder.exists() else make(folder, *arguments, **options)


@pytest.fixture(scope="session")
def at(tmp_path_factory: pytest.TempPathFactory) -> Directories:
    return Directories(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    prompts = [{"text": text} for text in models.texts(PROMPTS)]
    with InProcess(tmp_path_factory.mktemp("lab"), prompts) as runner:
        yield runner


@pytest.fixture(scope="session")
def asked(runner: InProcess) -> Investigate:
    """Measures a pair and finds out why it differs."""

    def investigated(
        sampler: EngineSpec, learner: EngineSpec, *, sampling: Any = None, **more: Any
    ) -> Investigated:
        sizes = {"samples": SAMPLES, "max_tokens": TOKENS}
        case = measured(runner, sampler, learner, Sampling(**sizes | (sampling or {})), **more)
        return case, investigate(runner, case)

    return investigated
