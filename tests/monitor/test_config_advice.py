"""Findings about settings name the lines that end them, also in a run."""

from __future__ import annotations

import json
from pathlib import Path

from grpodoctor.monitor.replay import replay
from grpodoctor.runs.reading.read_options import ReadOptions

SCRIPT = """
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\
  actor_rollout_ref.rollout.n=5 data.train_batch_size=60 \\
  actor_rollout_ref.actor.ppo_mini_batch_size=60 trainer.n_gpus_per_node=8 trainer.nnodes=1 \\
  algorithm.use_kl_in_reward=True actor_rollout_ref.actor.use_kl_loss=True
"""


def test_each_finding_about_settings_has_lines_to_paste(tmp_path: Path) -> None:
    log, script = tmp_path / "log.jsonl", tmp_path / "run.sh"
    rows = [
        {"step": step, "data": {"critic/score/mean": 0.3 + step / 200, "actor/pg_loss": 0.01,
                                "actor/grad_norm": 0.2, "response_length/mean": 90.0}}
        for step in range(1, 40)
    ]  # fmt: skip
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    script.write_text(SCRIPT)
    report = replay(log, options=ReadOptions(None, script)).report
    lines = {
        finding.code: [line.line for line in report.advice[finding.remedies[0]].settings]
        for finding in report.findings
        if finding.code in ("CFG017", "CFG041")
    }
    assert lines == {
        "CFG017": [
            "data.train_batch_size=64",
            "actor_rollout_ref.actor.ppo_mini_batch_size=64",
        ],
        "CFG041": ["algorithm.use_kl_in_reward=False"],
    }
