"""What is looked into at length is drawn alike whoever measures."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from pathlib import Path

import pytest

from grpodoctor.frameworks.rollout_formats.registry import dumps_among
from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.measure.subsample import COMPRESSED_RESPONSES, SEARCHED_RESPONSES
from grpodoctor.measure.text import text_readings
from grpodoctor.runs.rollout_dumps import runners
from grpodoctor.runs.rollout_dumps.dump_reader import DumpReader
from grpodoctor.runs.rollouts import Depth, write_rollouts
from grpodoctor.support.files.regular_files import files_below
from grpodoctor.vocabulary.values import merge_all, scalar
from tests.runs.rollout_dumps.samples import text

OF_TEXTS = ("text/reflection_rate", "text/compression_ratio")


def ranks(make_batch: Callable[..., RolloutBatch]) -> list[RolloutBatch]:
    """Two ranks' responses of one step, more of them than are looked into."""
    source = random.Random(0)
    batches = []
    for rank in range(2):
        made = make_batch(step=3 + rank, count=200, width=30)
        texts = [
            text(source) + source.choice([" Wait, no.", ""]) if row % 9 else ""
            for row in range(200)
        ]
        batches.append(replace(made, step=3, texts=texts))
    return batches


@pytest.mark.parametrize("depth", ["summary", "full"])
def test_live_and_offline_select_the_same_responses(
    tmp_path: Path, make_batch: Callable[..., RolloutBatch], depth: Depth
) -> None:
    batches = ranks(make_batch)
    (tmp_path / "rollouts").mkdir()
    for rank, batch in enumerate(batches):
        write_rollouts(tmp_path, batch, depth=depth, rank=rank)
    reader = DumpReader(
        dumps_among(files_below(tmp_path)), runner=runners.in_process, shard_bytes=1
    )
    ((_, offline),) = reader.steps()
    live = reduce(merge_all, map(text_readings, batches))
    names = (*OF_TEXTS, "text/unique_ngram_rate") if depth == "full" else OF_TEXTS
    assert {name: offline[name] for name in names} == {name: live[name] for name in names}
    assert live["text/reflection_rate"].count == 2 * SEARCHED_RESPONSES  # type: ignore[union-attr]
    assert live["text/compression_ratio"].count == 2 * COMPRESSED_RESPONSES  # type: ignore[union-attr]


def test_the_subsample_mean_is_near_the_full_mean(
    make_batch: Callable[..., RolloutBatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = ranks(make_batch)[0]
    some = text_readings(batch)
    monkeypatch.setattr("grpodoctor.measure.text.SEARCHED_RESPONSES", 1000)
    monkeypatch.setattr("grpodoctor.measure.text.COMPRESSED_RESPONSES", 1000)
    every = text_readings(batch)
    for name in OF_TEXTS:
        assert scalar(some[name]) == pytest.approx(scalar(every[name]), rel=0.2)
