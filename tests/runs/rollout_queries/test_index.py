"""Filters, orders and pages over the responses of our recorder and of every framework's dumps."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grpodoctor.frameworks.rollout_formats.registry import dumps_among
from grpodoctor.runs.rollout_dumps import runners
from grpodoctor.runs.rollout_dumps.dump_reader import DumpReader
from grpodoctor.runs.rollout_queries.dumped_parts import DumpedParts
from grpodoctor.runs.rollout_queries.index import RolloutIndex, RolloutQuery
from grpodoctor.runs.rollout_queries.recorded_parts import RecordedParts
from grpodoctor.runs.rollouts import rollouts_file, write_rollouts
from grpodoctor.support.files.regular_files import files_below
from tests.runs.rollout_dumps.samples import RESPONSES, STEPS, WRITERS, batch, own, responses


@pytest.fixture
def index(tmp_path: Path) -> RolloutIndex:
    own(tmp_path)
    return RolloutIndex(RecordedParts(tmp_path))


def dumped(root: Path, shard_bytes: int = 2000) -> RolloutIndex:
    found = dumps_among(files_below(root))
    reader = DumpReader(found, runner=runners.in_process, shard_bytes=shard_bytes)
    assert list(reader.steps())
    return RolloutIndex(DumpedParts(reader.dumped_responses))


def test_all_responses_are_listed_page_by_page(index: RolloutIndex) -> None:
    pages = [index.page(RolloutQuery(), number, 20) for number in range(4)]
    assert {page.total for page in pages} == {RESPONSES * len(STEPS)}
    assert [len(page.figures) for page in pages] == [20, 20, 8, 0]
    listed = [(each["step"], each["sequence_id"]) for page in pages for each in page.figures]
    assert listed == sorted(listed, key=lambda pair: pair[0])
    assert len(set(listed)) == RESPONSES * len(STEPS)


@pytest.mark.parametrize("is_descending", [True, False])
@pytest.mark.parametrize("order", ["length", "reward", "logprob_diff_max"])
def test_responses_are_ordered(index: RolloutIndex, order: str, is_descending: bool) -> None:
    page = index.page(RolloutQuery(order=order, is_descending=is_descending), 0, 1000)
    values = [each[order] for each in page.figures]
    assert values == sorted(values, reverse=is_descending)


def test_filters_are_combined(index: RolloutIndex) -> None:
    query = RolloutQuery(
        steps=(2, 3), correct=False, truncated=True, bounds=(("length", (10, 20)),)
    )
    expected = {
        f"{step}/{place}"
        for step in (2, 3)
        for place, row in enumerate(responses(step))
        if not row["reward"] and row["truncated"] and 10 <= row["length"] <= 20
    }
    assert expected
    assert {each["sequence_id"] for each in index.page(query, 0, 100).figures} == expected


def test_a_bound_on_one_side_leaves_the_other_open(index: RolloutIndex) -> None:
    query = RolloutQuery(bounds=(("advantage", (None, -0.5)),))
    assert {each["advantage"] for each in index.page(query, 0, 100).figures} == {-1.0}


@pytest.mark.parametrize("text", ["WHAT IS 2 + 1", "  what is 2 + 1 "])
def test_a_text_is_searched_in_prompts_and_responses(index: RolloutIndex, text: str) -> None:
    found = index.page(RolloutQuery(text=text), 0, 100)
    assert {each["step"] for each in found.figures} == {1}
    assert found.total == 4
    (one, *_) = responses(2)
    words = " ".join(one["text"].split()[3:12])
    assert "2/0" in {
        each["sequence_id"] for each in index.page(RolloutQuery(text=words), 0, 9).figures
    }


@pytest.mark.parametrize("text", ["(", ".*", "\\", "%", "[bold]", "zzz"])
def test_a_searched_text_is_no_pattern(index: RolloutIndex, text: str) -> None:
    assert index.page(RolloutQuery(text=text), 0, 10).total == 0


def test_a_response_and_its_group_are_read_in_full(index: RolloutIndex) -> None:
    found = index.find("2/5")
    assert found is not None
    group = index.in_full(index.group(found))
    assert [each["sequence_id"] for each in group] == ["2/4", "2/5", "2/6", "2/7"]
    expected = responses(2)[5]
    (one,) = (each for each in group if each["sequence_id"] == "2/5")
    assert one["text"] == expected["text"]
    assert one["prompt"] == expected["prompt"]
    assert one["token_ids"] == expected["tokens"]
    assert one["learner_logprobs"] == pytest.approx(expected["learner"])
    assert one["components"] == {"task": expected["reward"]}
    assert index.find("no such response") is None
    assert index.find("2/5", step=1) is None


def test_a_live_run_is_read_again_only_where_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own(tmp_path)
    parts = RecordedParts(tmp_path)
    index = RolloutIndex(parts)
    index.refresh()
    read: list[str] = []
    figures = parts.figures
    monkeypatch.setattr(parts, "figures", lambda key: read.append(key.path.name) or figures(key))
    write_rollouts(tmp_path, batch(4), depth="full")
    index.refresh()
    index.refresh()
    assert read == [rollouts_file(tmp_path, 4, 0).name]
    assert index.steps() == [1, 2, 3, 4]


def test_a_broken_file_costs_its_responses_only(tmp_path: Path) -> None:
    own(tmp_path)
    rollouts_file(tmp_path, 2, 0).write_bytes(b"PAR1 not really")
    index = RolloutIndex(RecordedParts(tmp_path))
    assert index.page(RolloutQuery(text="what"), 0, 100).total == 2 * RESPONSES
    (why,) = index.unreadable.values()
    assert "step-000002" in why


def test_a_file_that_vanishes_costs_its_texts_only(index: RolloutIndex, tmp_path: Path) -> None:
    page = index.page(RolloutQuery(), 0, 100)
    rollouts_file(tmp_path, 2, 0).unlink()
    assert {each["step"] for each in index.in_full(page.figures)} == {1, 3}


def test_a_run_without_rollouts_has_no_responses(tmp_path: Path) -> None:
    index = RolloutIndex(RecordedParts(tmp_path))
    assert index.page(RolloutQuery(text="x", order="reward"), 0, 10).total == 0
    assert index.range_of("reward") is None


def test_texts_are_not_loaded_for_a_list(tmp_path: Path) -> None:
    """A page of figures needs a small part of the memory that the texts would take."""
    own(tmp_path)
    path = rollouts_file(tmp_path, 1, 0)
    table = pq.read_table(path, partitioning=None)
    long = table.set_column(
        table.schema.get_field_index("text"), "text", [["x" * 1_000_000] * table.num_rows]
    )
    pq.write_table(long, path, compression="zstd")
    index = RolloutIndex(RecordedParts(tmp_path))
    before = pa.total_allocated_bytes()
    index.page(RolloutQuery(order="reward"), 0, 10)
    assert pa.total_allocated_bytes() - before < 2_000_000


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_the_dumps_of_every_framework_can_be_listed(tmp_path: Path, name: str) -> None:
    if name == "slime details":
        pytest.importorskip("torch")
    WRITERS[name](tmp_path)
    index = dumped(tmp_path)
    query = RolloutQuery(order="length", is_descending=True)
    page = index.page(query, 0, 1000)
    assert page.total >= RESPONSES * len(STEPS)
    assert len({(each["step"], each["sequence_id"]) for each in page.figures}) == page.total
    lengths = [each["length"] for each in page.figures if each["length"] is not None]
    assert lengths == sorted(lengths, reverse=True)
    (one,) = index.in_full(page.figures[:1])
    assert one["sequence_id"] == page.figures[0]["sequence_id"]
    assert not any(isinstance(value, float) and math.isnan(value) for value in one.values())


def test_a_dump_is_searched_and_read_like_our_own_files(tmp_path: Path) -> None:
    WRITERS["verl rollouts"](tmp_path)
    index = dumped(tmp_path)
    page = index.page(RolloutQuery(text="What is 2 + 1", order="reward"), 0, 100)
    assert page.total == 4
    group = index.in_full(index.group(page.figures[0]))
    assert len(group) == 4
    expected = {row["text"] for row in responses(1) if row["group"] == 2}
    assert {each["text"] for each in group} == expected


def test_text_and_tokens_in_two_files_are_one_response(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    WRITERS["slime details"](tmp_path)
    index = dumped(tmp_path)
    found = index.find("2.pt#5")
    assert found is not None
    (one,) = index.in_full([found])
    assert one["text"]
    assert one["learner_logprobs"]


def test_a_dump_that_vanishes_is_reported(tmp_path: Path) -> None:
    WRITERS["verl rollouts"](tmp_path)
    index = dumped(tmp_path)
    for path in list(files_below(tmp_path)):
        path.unlink()
    index.refresh()
    assert index.table.num_rows == 0
    assert index.unreadable


def test_components_of_another_type_are_left_out(tmp_path: Path) -> None:
    own(tmp_path)
    for path in (tmp_path / "rollouts").glob("*.parquet"):
        table = pq.read_table(path)
        place = table.column_names.index("components")
        switches = pa.array([True] * table.num_rows)
        pq.write_table(table.set_column(place, "components", switches), path)
    index = RolloutIndex(RecordedParts(tmp_path))
    found = index.find("2/5")
    assert found is not None
    assert [each["components"] for each in index.in_full([found])] == [{}]
    assert dumped(tmp_path).page(RolloutQuery(), 0, 10).total == RESPONSES * len(STEPS)
