"""Configurations: layers, bounds, suggestions, conflicts; presets set what they claim."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from grpodoctor.errors import ConfigError
from grpodoctor.rules.lint import lint
from grpodoctor.trainer.algorithms.losses.sequence_level.gspo import Gspo
from grpodoctor.trainer.config.key_names import _OTHER_TRAINERS
from grpodoctor.trainer.config.knobs import knobs_of
from grpodoctor.trainer.config.loss import loss_settings
from grpodoctor.trainer.config.presets import preset_names, preset_of
from grpodoctor.trainer.config.train_config import TrainConfig, known_keys, load_config, load_preset


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
        ("loss.tau_positive=2", "it belongs to sapo"),
        ("loss.taupositive=2", "did you mean loss.tau_positive"),
        ("loss=2", "loss is a section"),
        ("seed=-1", "seed cannot be"),
        ("loss.clip_low", "has no value"),
        ("rollout.group_size=1", "group_size"),
        ("optimizer.epochs=3", "cannot be split evenly into"),
        ("optimizer.updates_per_batch=64", "a prompt's responses stay together"),
        ("model.heads=5", "do not fit a width"),
        ("loss=3", "loss is a section, not a setting; set loss.kind"),
        ("xyzzy=3", "unknown setting xyzzy; sections: advantage, "),
        ("foo=1", "unknown setting foo; sections: advantage, "),
        ("los.kind=ppo_clip", r"did you mean loss\.kind"),
        ("loss.clip_hi=0.3", r"did you mean loss\.clip_high\?"),
        (
            "optimizer.lr=1",
            "unknown setting optimizer.lr; did you mean optimizer.learning_rate.",
        ),
        ("loss.beta=0.1", r"did you mean loss\.kl_coefficient\?"),
        ("num_generations=4", r"did you mean rollout\.group_size\?"),
        ("max_new_tokens=4", r"did you mean rollout\.max_length\?"),
        ("optimizer.batch_size=4", "did you mean rollout.prompts_per_batch or optimizer.micro"),
        ("rollout.epochs=4", "did you mean optimizer.epochs or steps"),
        ("loss.epsilon=0.2", "did you mean loss.clip_low or loss.clip_high"),
        ("actor_rollout_ref.actor.clip_ratio_high=0.2", r"did you mean loss\.clip_high\?"),
        ("algorithm.kl_ctrl.kl_coef=0.1", r"did you mean loss\.kl_coefficient\?"),
        ("los.clip_high=0.2", r"unknown setting los\.clip_high; did you mean loss\.clip_high\?"),
        ("optimzer.learnin_rate=1", r"did you mean optimizer\.learning_rate"),
        ("learningrate=1", r"did you mean optimizer\.learning_rate\?"),
        ("loss.kind=grpo", "grpo is a preset, not a loss .loss.kind.; use --preset grpo"),
        ("optimizer.max_grad_norm=inf", "finite number"),
        ("seed=1\nsteps=3", "seed cannot be '1"),
        ("steps=true", "steps cannot be 'True': it does not take true or false"),
        ("engine.temperature=true", "does not take true or false"),
        ("loss.clip_high=false", "does not take true or false"),
        ("record.enabled=3", "record.enabled cannot be '3'"),
        ("model.device=tpu", "model.device cannot be 'tpu'"),
        ("model.lora_targets=[]", "no layer is named"),
        ("correction.kind=icepop", "with correction.floor=0"),
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
        *(
            ["correction.kind=tis_token", f"loss.kind={kind}"]
            for kind, settings in loss_settings().items()
            if settings.anchored_on_sampler
        ),
        ["correction.kind=tis_token", "loss.kind=gspo"],
        ["correction.kind=geo_mask", "loss.kind=gmpo"],
        ["correction.kind=mis_sequence", "loss.off_policy_limit=0.1"],
        ["overlong.kind=soft-punishment", "overlong.buffer=30"],
    ],
)
def test_settings_that_contradict_are_refused(assignments: list[str]) -> None:
    with pytest.raises(
        ConfigError, match=r"set engine|use at most|set correction|use tis_sequence|use one of"
    ):
        load_config(assignments=assignments)
    for assignment in assignments:
        load_config(assignments=[assignment])


def test_another_loss_begins_with_its_own_settings_and_keeps_the_penalties() -> None:
    config = load_config(
        {"loss": {"clip_low": 0.1, "aggregation": "constant", "kl_coefficient": 0.04}},
        assignments=["loss.kind=gspo", "loss.clip_high=5e-4"],
    )
    assert isinstance(config.loss, Gspo)
    assert (config.loss.clip_low, config.loss.clip_high) == (3e-4, 5e-4)
    assert config.loss.aggregation == "sequence-mean"
    assert config.loss.kl_coefficient == 0.04


@pytest.mark.parametrize("kind", loss_settings())
def test_the_settings_of_any_loss_survive_being_written_and_read(kind: str) -> None:
    kinds = [f"loss.kind={kind}", "model.experts=8"]  # required by rspo
    config = load_config(assignments=[*kinds, "loss.kl_coefficient=0.01"])
    assert type(config.loss) is loss_settings()[kind]
    assert load_config(config.model_dump(mode="json")) == config
    assert TrainConfig.model_validate_json(config.model_dump_json()) == config


def test_a_token_clip_width_on_responses_is_a_fault_of_the_configuration() -> None:
    def faults(*assignments: str) -> list[str]:
        config = load_config(assignments=[*assignments])
        found = lint("grpodoctor", config.model_dump(), knobs_of(config)).findings
        return [finding.code for finding in found]

    assert faults("loss.kind=gspo", "loss.clip_high=0.2") == ["CFG001"]
    assert faults("loss.kind=luspo", "loss.clip_high=0.2") == ["CFG001"]
    assert faults("loss.kind=gspo") == faults("loss.clip_high=0.2") == []


def test_a_loss_with_its_own_denominator_takes_no_other() -> None:
    for kind in ("gspo", "gspo_token", "gmpo"):
        with pytest.raises(ConfigError, match=r"loss\.aggregation cannot be 'token-mean'"):
            load_config(assignments=[f"loss.kind={kind}", "loss.aggregation=token-mean"])


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean dr_grpo"):
        preset_of("dr_gpro")
    assert preset_of("drgrpo") == preset_of("dr-grpo") == preset_of("dr_grpo")


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_says_all_that_it_sets(name: str) -> None:
    preset = preset_of(name)
    assert load_config(preset.settings) == load_config(assignments=preset.assignments())
    assert load_config(preset.settings) != load_config()


FORMER = "optimi" + "ser"  # the former spelling of a section


def test_the_former_spelling_of_a_section_is_accepted_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(f"[{FORMER}]\nlearning_rate = 0.5\nepochs = 2\n")
    config = load_config(file=file, assignments=["optimizer.updates_per_batch=2"])
    assert (config.optimizer.learning_rate, config.optimizer.epochs) == (0.5, 2)
    note = f"note: the section {FORMER} is now spelled optimizer\n"
    assert capsys.readouterr().err == note
    assigned = load_config(
        assignments=[f"{FORMER}.epochs=4", f"{FORMER}.beta1=0.5", "optimizer.epochs=2"]
    )
    assert (assigned.optimizer.epochs, assigned.optimizer.beta1) == (2, 0.5)
    assert capsys.readouterr().err == note
    with pytest.raises(ConfigError, match=r"optimizer\.epochs cannot be '0'"):
        load_config(assignments=[f"{FORMER}.epochs=0"])


def test_a_stored_configuration_of_the_former_spelling_loads_silently(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stored = load_config(assignments=["optimizer.learning_rate=0.5"]).model_dump(mode="json")
    stored[FORMER] = stored.pop("optimizer")
    assert load_config(stored).optimizer.learning_rate == 0.5
    assert TrainConfig.model_validate(stored).optimizer.learning_rate == 0.5
    changed = load_config(stored, assignments=["optimizer.learning_rate=0.25"])
    assert changed.optimizer.learning_rate == 0.25
    assert capsys.readouterr().err == ""


def test_the_configuration_of_a_recorded_run_of_the_former_spelling_loads() -> None:
    recorded = json.loads((Path(__file__).parents[2] / "data" / "run" / "run.json").read_text())
    assert FORMER in recorded["config"]
    former = recorded["config"][FORMER]
    config = TrainConfig.model_validate(recorded["config"])
    assert config.optimizer.learning_rate == former["learning_rate"]
    assert load_config(recorded["config"]) == config


@pytest.mark.parametrize("key", sorted({key for keys in _OTHER_TRAINERS.values() for key in keys}))
def test_every_suggested_key_exists(key: str) -> None:
    assert key in known_keys()


def test_no_key_of_another_trainer_is_a_key_of_ours() -> None:
    fields = {key.rpartition(".")[2] for key in known_keys()}
    assert fields & _OTHER_TRAINERS.keys() <= {"epochs", "epsilon"}


def test_checking_a_configuration_does_not_import_torch() -> None:
    program = (
        "import sys; from grpodoctor.trainer.config.train_config import load_config; "
        "from grpodoctor.trainer.config.presets import preset_of; "
        "load_config(preset_of('dapo').settings); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_an_error_names_only_the_faulty_file(tmp_path: Path) -> None:
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


def test_a_preset_adapts_to_a_run_that_is_too_short_for_it() -> None:
    vapo = preset_of("vapo")
    whole = load_preset(vapo)
    assert (whole.config.critic.pretrain_steps, whole.notes) == (10, [])
    short = load_preset(vapo, assignments=["steps=8"])
    assert short.config.critic.pretrain_steps == 1
    assert short.notes == [
        "vapo pretrains the critic for 10 steps, too many for a run of 8: critic.pretrain_steps=1"
    ]
    # What the user sets is kept, or refused with the reason.
    own = load_preset(vapo, assignments=["steps=8", "critic.pretrain_steps=3"])
    assert (own.config.critic.pretrain_steps, own.notes) == (3, [])
    with pytest.raises(ConfigError, match="leave none of the 8 steps to the policy"):
        load_preset(vapo, assignments=["steps=8", "critic.pretrain_steps=8"])


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_loads_for_a_run_of_one_step(name: str) -> None:
    assert load_preset(preset_of(name), assignments=["steps=1"]).config.steps == 1


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        (("advantage.kind=max_rl", "overlong.kind=soft-punishment"), "which a soft overlong"),
        (("advantage.kind=reinforce_plus_plus_baseline",), "groups without variance"),
    ],
)
def test_settings_that_an_advantage_or_loss_does_not_suit_give_a_warning(
    assignments: tuple[str, ...], expected: str
) -> None:
    (warning,) = load_config(assignments=assignments).warnings()
    assert expected in warning


def test_filtering_groups_silences_the_warning_about_whitening() -> None:
    filtered = ("advantage.kind=reinforce_plus_plus_baseline", "rollout.filter_groups=true")
    assert load_config(assignments=filtered).warnings() == []
