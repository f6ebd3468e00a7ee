"""A training of two processes under torchrun."""

import subprocess
import sys
from pathlib import Path

import grpodoctor
from grpodoctor.vocabulary.values import Mean, Rate, scalar

PROGRAM = Path(__file__).parent / "two_ranks.py"
STEPS = 7


def test_two_ranks_make_one_record_and_change_a_knob_together(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    result = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
         "--master-port", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0",
         str(PROGRAM), str(run_dir), str(STEPS)],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    lines = sorted(line for line in result.stdout.splitlines() if line.startswith("rank"))
    of_rank = [line.split(" ", 3)[2:] for line in lines]
    assert of_rank[0] == of_rank[1]  # the same weights, and the same learning rate at each step
    run = grpodoctor.open_run(run_dir)
    assert [record.step for record in run] == list(range(STEPS))
    for record in run:
        assert record.values["reward/mean"] == Mean.of([0.0] * 8 + [1.0] * 8)
        assert record.values["groups/zero_variance_rate"] == Rate(0, 4)
        assert record.values["groups/size"] == Mean.of([4.0] * 4)
        assert scalar(record.values["instruments/failed_parts"]) == 0
    (applied,) = (event for event in run.events if event.kind == "treatment-applied")
    assert applied.step in {4, 5}  # read at step 2 or 3, in force two steps later
    assert not [event for event in run.events if event.kind == "warning"]
    assert len(run.rollouts(3)) == 16
    ids = run.rollouts(3)["sequence_id"].to_pylist()
    assert len(set(ids)) == 16
