"""Code from a model's directory runs only if the command line allows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.errors import ConfigError
from grpodoctor.probe.inputs.engine_spec import EngineSpec, check_remote_code
from tests.cli.in_process import run

TRUSTING = "transformers:missing-model?trust_remote_code=true"
PLAIN = "transformers:missing-model?trust_remote_code=false"


def test_an_engine_that_trusts_its_model_needs_the_flag() -> None:
    specs = [EngineSpec.parse(text) for text in (PLAIN, TRUSTING)]
    with pytest.raises(ConfigError, match=r"would run Python code .* add --trust-remote-code"):
        check_remote_code(specs, is_allowed=False)
    check_remote_code(specs, is_allowed=True)
    check_remote_code([specs[0], None], is_allowed=False)


def _grid(folder: Path) -> Path:
    path = folder / "grid.toml"
    path.write_text(
        'model = "missing-model"\n[[sampler]]\nengine = "transformers"\n'
        '[[learner]]\nengine = "transformers"\noptions = { trust_remote_code = [false, true] }\n'
    )
    return path


def test_the_commands_ask_for_the_flag(tmp_path: Path) -> None:
    lines = [
        ["probe", "--sampler", TRUSTING, "--learner", PLAIN],
        ["probe", "--sampler", PLAIN, "--learner", TRUSTING],
        ["probe", _grid(tmp_path)],
        ["preflight", "--model", tmp_path, "--sampler", TRUSTING],
        ["preflight", "--model", tmp_path, "--reference", TRUSTING],
    ]
    for words in lines:
        done = run(*words)
        assert done.returncode == 2
        assert "then add --trust-remote-code to the command" in " ".join(done.stderr.split())
