"""The canary in a training with TRL that samples from a real vLLM."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

import grpodoctor
from grpodoctor.vocabulary.values import scalar
from tests.hooks.trl.conftest import save_model

ROOT = Path(__file__).parents[3]
PYTHON = Path(os.environ.get("GRPODOCTOR_VLLM_PYTHON", ROOT / ".venv-vllm/bin/python"))
PACKAGES = (
    "trl", "accelerate", "datasets", "pandas", "multiprocess", "xxhash", "dateutil", "six.py",
)  # fmt: skip
"""What TRL needs and vLLM's environment lacks."""


def packages_of_trl(folder: Path) -> Path:
    """A folder with links to the packages in this environment, and to their versions."""
    folder.mkdir()
    for name in PACKAGES:
        (package,) = [each / name for each in library_folders() if (each / name).exists()][:1]
        (folder / name).symlink_to(package)
        for facts in package.parent.glob(f"{name.removesuffix('.py')}-*.dist-info"):
            (folder / facts.name).symlink_to(facts)
    return folder


def library_folders() -> list[Path]:
    """The folders of installed packages: this environment's, and those that it refers to."""
    own = Path(sysconfig.get_path("purelib"))
    import trl

    return [own, Path(trl.__file__).parents[1]]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("sync", ["deliver", "forget"])
def test_weights_that_vllm_does_not_receive_are_named(tmp_path: Path, sync: str) -> None:
    if not PYTHON.exists():
        pytest.skip("run: make venv-vllm")
    model = save_model(tmp_path / "model", width=64)  # vLLM wants 32 dimensions a head
    paths = [str(ROOT), str(packages_of_trl(tmp_path / "packages"))]
    result = subprocess.run(
        [PYTHON, Path(__file__).with_name("train_with_vllm.py"), model, tmp_path, sync],
        capture_output=True, text=True, check=False, timeout=1100,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    run = grpodoctor.open_run(tmp_path / "grpodoctor")
    first = run.records[0].values
    assert [record.step for record in run] == [1, 2, 3, 4, 5, 6]
    assert 0 < scalar(first["delivery/gap"]) < 0.05  # the engines compute with other numbers
    assert {scalar(record.values["instruments/failed_parts"]) for record in run} == {0}
    findings = grpodoctor.check(tmp_path / "grpodoctor").findings
    found = [each for each in findings if each.code in ("SYN006", "SYN007")]
    if sync == "deliver":
        assert found == []
    else:
        (finding,) = found
        assert (finding.code, finding.severity, finding.onset_step) == ("SYN006", "critical", 2)
