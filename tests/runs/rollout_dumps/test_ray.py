"""The same readings from a Ray cluster: two nodes on this machine, started and ended here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")

PROGRAM = """
import sys
from pathlib import Path
from grpodoctor.support.files.regular_files import files_below
from grpodoctor.runs.rollout_dumps import runners
from grpodoctor.frameworks.rollout_formats.registry import dumps_among
from grpodoctor.runs.rollout_dumps.dump_reader import DumpReader

def read(root, runner):
    reader = DumpReader(dumps_among(files_below(root)), runner=runner, shard_bytes=4000)
    return list(reader.steps()), reader.pass_rates, reader.failed

if __name__ == "__main__":
    import ray
    from ray.cluster_utils import Cluster

    root = Path(sys.argv[1])
    here = read(root, runners.in_process)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        there = read(root, runners.on_ray(cluster.address))
        assert not ray.is_initialized()
    finally:
        cluster.shutdown()
    assert len(here[0]) == 3, here
    assert there == here, (there, here)
    assert len(here[2]) == 1 and "training_input" in here[2][0]
    print("identical")
"""


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_cluster_of_two_nodes_gives_the_same(tmp_path: Path) -> None:
    """A program of its own: Ray leaves threads, signal handlers and warnings behind."""
    from tests.runs.rollout_dumps.samples import WRITERS

    for name in ("verl rollouts", "open-instruct traces", "grpodoctor rollouts"):
        WRITERS[name](tmp_path / "run" / name)
    (tmp_path / "run/global_step_3_training_input.pkl").write_bytes(b"\x80\x04N.")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=170,
        env={**os.environ, "PYTHONPATH": root, "RAY_DEDUP_LOGS": "0"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "identical"
