"""A run whose reward rises shows that a suspicious setting did no harm."""

import json
import random

import pytest

from tests.cli.in_process import run


@pytest.mark.parametrize(
    ("rise", "severity", "kind"), [(0.6, "info", "healthy"), (0.0, "warning", "sick")]
)
def test_a_missing_baseline_is_a_note_if_the_reward_rises(tmp_path, rise, severity, kind):
    noise = random.Random(1)
    rows = []
    for step in range(60):
        reward = 0.2 + rise * step / 60 + noise.gauss(0, 0.02)
        rows.append(
            {
                "step": step,
                "critic/score/mean": reward,
                "critic/score/max": 1.0,
                "critic/score/min": 0.0,
                "critic/advantages/mean": reward,
                "critic/advantages/max": 1.0,
                "critic/advantages/min": 0.0,
                "actor/entropy": 0.5,
                "actor/grad_norm": 0.3,
                "response_length/mean": 200.0,
            }
        )
    log = tmp_path / "metrics.jsonl"
    log.write_text(
        "".join(json.dumps({"step": row.pop("step"), "data": row}) + "\n" for row in rows)
    )
    report = json.loads(run("check", str(log), "--json").stdout)
    assert {finding["code"]: finding["severity"] for finding in report["findings"]}[
        "GRP005"
    ] == severity
    assert report["verdict"]["kind"] == kind
