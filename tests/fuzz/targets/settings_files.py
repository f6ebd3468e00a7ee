"""Files and words that people write: configs, settings, grids, templates."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

from grpodoctor.cli.preflight_options import _read_template
from grpodoctor.cli.suggest_map import MapTarget, write_mapping
from grpodoctor.frameworks.registry import configurable_framework_named
from grpodoctor.frameworks.run_config import read_file, read_settings
from grpodoctor.monitor.project_settings import find_settings, load_settings
from grpodoctor.preflight.inputs.chat_template import read_json_config
from grpodoctor.probe.inputs.plan import read_plan
from grpodoctor.trainer.config.train_config import load_config
from tests.fuzz.mutations import texts
from tests.fuzz.targets.base import Target

_VERL = {
    "data": {"train_batch_size": 128, "max_response_length": 2048},
    "actor_rollout_ref": {
        "actor": {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "use_kl_loss": True,
                  "loss_agg_mode": "token-mean", "optim": {"lr": 1e-6}},
        "rollout": {"n": 8, "temperature": 1.0, "name": "vllm"},
    },
    "algorithm": {"adv_estimator": "grpo", "filter_groups": {"enable": False}},
    "trainer": {"logger": ["console", "wandb"], "total_epochs": 1},
}  # fmt: skip

_VERL_TOML = """[data]
train_batch_size = 128
[actor_rollout_ref.actor]
clip_ratio_high = 0.28
loss_agg_mode = "token-mean"
[actor_rollout_ref.rollout]
n = 8
[trainer]
logger = ["console", "wandb"]
"""

_TRAIN = """steps = 20
seed = 3
[task]
name = "sorting"
[model]
warm_start_steps = 10
[rollout]
prompts_per_batch = 4
group_size = 4
temperature = 1.0
[optimizer]
learning_rate = 0.001
[loss]
kind = "ppo_clip"
clip_high = 0.28
[record]
depth = "full"
"""

_SETTINGS = """select = ["ENT", "LEN002"]
ignore = ["ENT002"]
framework = "verl"
extend-safe-fixes = ["overlong-mask"]
[map]
"my/entropy" = "entropy/mean"
[severities]
LEN002 = "info"
[thresholds.LEN002]
warning_share = 0.7
min_readings = 3
[alerts]
min-severity = "warning"
per-hour = 12
[[alerts.channels]]
kind = "webhook"
url-env = "HOOK"
"""

_GRID = """model = "model"
limit = 8
[sampling]
samples = 8
max_tokens = [128, 512]
temperature = 1.0
[[sampler]]
engine = "vllm"
options = { dtype = ["bfloat16", "float32"], tensor_parallel_size = [1, 2] }
[[learner]]
engine = "transformers"
options = { dtype = ["float32", "bfloat16"] }
"""

_ASSIGNMENTS = """steps=10
loss.kind=cispo
optimizer.learning_rate=0.01
task.name=sorting
rollout.group_size=4
"""


def targets() -> list[Target]:
    """Everything that a user configures."""
    return [
        Target("run config: JSON", "config.json", _as_json, _run_config, texts.json_document),
        Target("run config: YAML", "config.yaml", _as_yaml, _run_config, texts.yaml_document),
        Target("run config: TOML", "config.toml", _encoded(_VERL_TOML), _run_config,
               texts.toml_assignments),
        Target("train config", "train.toml", _encoded(_TRAIN), _train_config,
               texts.toml_assignments),
        Target("train --set", "assignments", _encoded(_ASSIGNMENTS), _assignments,
               texts.toml_assignments),
        Target("settings file", "grpodoctor.toml", _encoded(_SETTINGS), _settings,
               texts.toml_assignments),
        Target("settings in pyproject.toml", "pyproject.toml", _in_pyproject, _settings,
               texts.toml_assignments),
        Target("settings with --write-map", "grpodoctor.toml", _encoded(_SETTINGS), _write_map,
               texts.toml_assignments),
        Target("probe grid", "grid.toml", _encoded(_GRID), read_plan, texts.toml_assignments),
        Target("preflight template", "template.txt", _encoded("Question: {prompt}\nAnswer: "),
               _template, texts.words),
        Target("model config.json", "config.json", _model_config, read_json_config,
               texts.json_document),
    ]  # fmt: skip


def _encoded(text: str) -> Callable[[], bytes]:
    return text.encode


def _as_json() -> bytes:
    return json.dumps(_VERL, indent=1).encode()


def _as_yaml() -> bytes:
    import yaml

    return yaml.safe_dump(_VERL).encode()


def _model_config() -> bytes:
    return json.dumps({"model_type": "qwen2", "vocab_size": 64, "eos_token_id": [1, 2]}).encode()


def _run_config(path: Path) -> None:
    """As `--run-config` names it, and as it is found next to a log."""
    verl = configurable_framework_named("verl")
    read_settings(path.parent, verl)
    verl.knobs.read(read_settings(path.parent, verl, user_file=path))
    read_file(path)


def _train_config(path: Path) -> None:
    load_config(file=path).warnings()


def _assignments(path: Path) -> None:
    words = path.read_bytes().decode("utf-8", "surrogateescape").splitlines()
    load_config(assignments=words).warnings()


def _settings(path: Path) -> None:
    find_settings(path.parent)
    load_settings(path).rules()


def _in_pyproject() -> bytes:
    tables = re.sub(r"^(\[+)", r"\1tool.grpodoctor.", _SETTINGS, flags=re.MULTILINE)
    return f"[tool.grpodoctor]\n{tables}".encode()


def _write_map(path: Path) -> None:
    write_mapping({"my/key": "entropy/mean"}, MapTarget(path, write=True))
    load_settings(path)
    assert tomllib.loads(path.read_text())["map"]["my/key"] == "entropy/mean"


def _template(path: Path) -> None:
    _read_template(f"plain={path}")
