"""Numbers whose keys give no metric are kept on request, and only then."""

import gzip
from pathlib import Path

import orjson
import pytest

from grpodoctor.runs.reading.opening import follow
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.vocabulary.values import scalar

LOG = Path(__file__).parent.parent / "data" / "logs" / "sushantmehta_metrics.jsonl.gz"


def steps_of(path, **options):
    follower, steps = follow(path, ReadOptions(**options)), []
    while True:
        poll = follower.poll(final=True)
        steps += poll.steps
        if not poll.more:
            return steps


def test_each_number_is_a_reading_or_a_logged_number():
    steps = steps_of(LOG, keep_unread_keys=True)
    kept = {key for record in steps for key in record.logged}
    assert "test/env/all/pass_rate" in kept
    assert not any(key.startswith("_") for key in kept)
    assert b"test/env/all/pass_rate" in gzip.decompress(LOG.read_bytes())
    plain = steps_of(LOG)
    assert [record.values for record in plain] == [record.values for record in steps]
    assert not any(record.logged for record in plain)


@pytest.mark.parametrize("name", ["value", "\x1b[31mred", "a" * 5000])
def test_any_key_can_be_kept(tmp_path, name):
    log = tmp_path / "log.jsonl"
    rows = [{"step": step, "reward": 0.5, "entropy": 1.0, name: step / 7} for step in range(5)]
    log.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    steps = steps_of(log, format="generic", keep_unread_keys=True)
    assert [record.logged.get(name) for record in steps] == [row[name] for row in rows]


def test_names_that_a_tinker_environment_gives_are_read_by_their_last_part(tmp_path):
    log = tmp_path / "metrics.jsonl"
    rows = [
        {"step": step, "env/all/reward/total": 0.3, "progress/done_frac": step / 5,
         "env/all/by_group/frac_mixed": 1.0, "env/all/format_eos": 0.75,
         "test/env/all/format_eos": 0.5}
        for step in range(5)
    ]  # fmt: skip
    log.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    (reading,) = {scalar(each.values["length/truncated_rate"]) for each in steps_of(log)}
    assert reading == 0.25


def entropies_of(path, **keys):
    rows = [{"step": step, "reward": 0.5, **keys} for step in range(5)]
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    return {
        scalar(each.values["entropy/mean"]) if "entropy/mean" in each.values else None
        for each in steps_of(path, format="generic")
    }


def test_of_two_keys_with_one_last_part_the_one_above_the_other_is_read(tmp_path):
    nested = {"stats/loss/entropy": 0.9, "stats/entropy": 0.5, "stats/a/b/entropy": 0.7}
    assert entropies_of(tmp_path / "nested.jsonl", **nested) == {0.5}
    apart = {"one/entropy": 0.5, "two/entropy": 0.9}
    assert entropies_of(tmp_path / "apart.jsonl", **apart) == {None}
    deeper = {"one/entropy": 0.5, "two/loss/entropy": 0.9}
    assert entropies_of(tmp_path / "deeper.jsonl", **deeper) == {None}
