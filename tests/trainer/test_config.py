"""Configurations: layers, bounds, near misses, contradictions; presets are what they claim."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from grpodoctor.errors import ConfigError
from grpodoctor.trainer.config import load_config
from grpodoctor.trainer.presets import preset_names, preset_of


def test_later_layers_win(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[loss]\nclip_high = 0.3\nclip_low = 0.1\n")
    config = load_config(
        preset_of("dapo").settings, file=file, assignments=["loss.clip_low=0.15", "seed=3"]
    )
    assert config.loss.aggregation == "token-mean"
    assert config.loss.clip_high == 0.3
    assert config.loss.clip_low == 0.15
    assert config.seed == 3


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("loss.kind=ppo-clip", "did you mean ppo_clip"),
        ("advantage.kind=grup", "did you mean group"),
        ("correction.kind=tis", "tis_token"),
        ("loss.cliphigh=0.2", "did you mean loss.clip_high"),
        ("loss.clip_low=2", "loss.clip_low cannot be '2'"),
        ("seed=-1", "seed cannot be"),
        ("loss.clip_low", "has no value"),
        ("rollout.group_size=1", "group_size"),
        ("optimiser.epochs=3", "do not divide into"),
        ("optimiser.updates_per_batch=64", "a prompt's responses stay together"),
        ("model.heads=5", "do not fit a width"),
        ("loss=3", "loss is a section, not a setting; set loss.kind"),
        ("elsewhere=3", "no setting elsewhere; sections: advantage, "),
        ("optimiser.max_grad_norm=inf", "finite number"),
        ("seed=1\nsteps=3", "seed cannot be '1"),
    ],
)
def test_a_bad_setting_is_one_line_that_names_it(assignment: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as caught:
        load_config(assignments=[assignment])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "assignments",
    [
        ["correction.kind=tis_token", "engine.old_logprobs=sampler"],
        ["overlong.kind=soft-punishment", "overlong.buffer=30"],
    ],
)
def test_settings_that_contradict_are_refused(assignments: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"set engine|use at most"):
        load_config(assignments=assignments)
    for assignment in assignments:
        load_config(assignments=[assignment])


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean dr_grpo"):
        preset_of("drgrpo")


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_says_all_that_it_sets(name: str) -> None:
    preset = preset_of(name)
    assert load_config(preset.settings) == load_config(assignments=preset.assignments())
    assert load_config(preset.settings) != load_config()


def test_checking_a_configuration_does_not_import_torch() -> None:
    program = (
        "import sys; from grpodoctor.trainer.config import load_config; "
        "from grpodoctor.trainer.presets import preset_of; "
        "load_config(preset_of('dapo').settings); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_message_names_the_file_that_is_to_blame_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_bytes(b"\xef\xbb\xbfsteps = 7\n[loss]\nclip_low = 0.1\n")
    assert load_config(file=file).steps == 7
    with pytest.raises(ConfigError) as of_assignment:
        load_config(file=file, assignments=["loss.clip_low=2"])
    assert of_assignment.value.where == ""
    file.write_text("[loss]\nclip_low = 2\n")
    with pytest.raises(ConfigError) as of_file:
        load_config(file=file, assignments=["loss.clip_high=0.3"])
    assert of_file.value.where == str(file)
