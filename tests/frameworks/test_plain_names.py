"""Names that people choose in their own scripts, and logs of other kinds of training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from grpodoctor.errors import RunError
from grpodoctor.frameworks.detection import guess_frameworks
from grpodoctor.frameworks.key_meaning import SharedRows, all_normalized, normalized
from grpodoctor.frameworks.objective import other_objective
from grpodoctor.frameworks.registry import framework_named, generic_framework, logging_frameworks
from grpodoctor.frameworks.translation import Translator
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.vocabulary.values import scalar

NAMES: Mapping[str, str] = {
    "reward/mean": """reward mean_reward avg_reward average_reward reward_mean train_reward
        rollout_reward batch_reward_mean episode_return score mean_score raw_reward task_reward
        total_reward""",
    "accuracy/train": """accuracy acc train_acc answer_accuracy win_rate winrate success_rate
        solve_rate correct_rate pass_rate frac_correct fraction_correct exact_match task_success
        rollout_accuracy mean_accuracy""",
    "accuracy/heldout": """eval_accuracy val_acc test_accuracy_mean validation_success_rate
        heldout_accuracy dev_acc eval/accuracy val/win_rate test/pass_rate eval/pass@1""",
    "reward/heldout": "eval_reward val_score_mean test_mean_reward validation_reward eval/reward",
    "entropy/mean": """entropy token_entropy policy_entropy mean_token_entropy entropy_mean
        avg_entropy actor_entropy per_token_entropy""",
    "length/mean": """response_length avg_response_token_length completion_len
        mean_completion_tokens
        gen_len tokens_per_response output_length_mean avg_gen_tokens answer_length rollout_length
        mean_response_tokens""",
    "pass_at_k/8": "pass@8 train/pass@8 train_pass@8 pass_at_8 eval/pass@8 Pass@8",
    "length/max": "max_response_length response_length_max max_completion_tokens gen_len_max",
    "length/truncated_rate": """frac_truncated truncation_rate truncated_ratio overlong_rate
        no_eos_rate max_length_hit_rate truncated_fraction""",
    "groups/zero_variance_rate": """zero_advantage_frac zero_std_ratio frac_zero_std
        degenerate_ratio degenerate_group_rate skipped_groups_frac uniform_groups_rate
        dead_group_ratio zero_variance_rate zvf""",
    "groups/effective_rate": "frac_mixed effective_groups_ratio informative_group_rate",
    "groups/all_incorrect_rate": "all_wrong_rate frac_all_incorrect all_fail_rate",
    "groups/all_correct_rate": "all_correct_rate frac_all_pass",
    "clip/any_rate": "clip_fraction fraction_clipped clip_frac clipfrac clip_ratio pg_clipfrac",
    "clip/high_rate": "clip_ratio_high clip_frac_upper",
    "kl/reference/k1": "kl_ref ref_kl kl_to_reference mean_kl_ref",
    "mismatch/logprob_diff_mean": "logprob_abs_diff rollout_logprob_abs_diff abs_logp_diff_mean",
    "staleness/mean": "staleness mean_staleness policy_lag",
    "advantage/max": "adv_max max_advantage",
    "reward/max": "reward_max max_reward reward/max",
    "reward/min": "reward_min reward/min",
    "optimizer/grad_norm": "grad_norm gradient_norm global_grad_norm grad_norm_mean",
    "optimizer/learning_rate": "lr learning_rate policy_lr",
    "optimizer/loss": "loss policy_loss pg_loss grpo_loss loss:sum",
    "time/step": "step_time seconds_per_step iter_time",
    "tools/failure_rate": "tool_failure_rate tool_error_rate tool_call_failure_frac",
    "environment/invalid_action_rate": "invalid_action_rate invalid_actions_frac illegal_move_rate",
    "environment/turns_mean": "num_turns avg_turns episode_len_mean steps_per_episode",
    "rollouts/aborted_rate": "aborted_ratio timeout_rate",
    "reward/component/format/mean": "format_reward reward_format rewards/format",
    "critic/explained_variance": "explained_variance",
}


def readings(row: Mapping[str, float]) -> dict[str, float | None]:
    translator = Translator(generic_framework(), generic=generic_framework())
    return {name: scalar(value) for name, value in translator.readings(row).items()}


@pytest.mark.parametrize(
    ("metric", "name"),
    [(metric, name) for metric, names in NAMES.items() for name in names.split()],
)
def test_a_plain_name_has_its_usual_meaning(metric: str, name: str) -> None:
    assert readings({name: 0.25}) == {metric: 0.25}


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("valid_action_rate", "environment/invalid_action_rate"),
        ("eos_rate", "length/truncated_rate"),
        ("tool_success_rate", "tools/failure_rate"),
    ],
)
def test_a_share_of_the_opposite_is_inverted(name: str, metric: str) -> None:
    assert readings({name: 0.75}) == {metric: 0.25}


def test_skipped_groups_are_a_share_of_all_groups() -> None:
    assert readings({"groups_skipped": 2.0, "groups_total": 8.0}) == {
        "groups/zero_variance_rate": 0.25
    }
    assert readings({"groups_skipped": 2.0}) == {}


@pytest.mark.parametrize("name", ["kl", "approx_kl", "reward_std", "skipped_rate", "kl_divergence"])
def test_an_ambiguous_name_is_rejected_with_a_reason(name: str) -> None:
    translator = Translator(generic_framework())
    assert translator.readings({name: 0.5}) == {}
    assert translator.unused.rejected[name]


@pytest.mark.parametrize("name", ["completion_tokens", "response_tokens", "generated_tokens"])
def test_a_sum_over_the_batch_is_no_length(name: str) -> None:
    assert readings({name: 90_000.0}) == {}


def test_a_row_of_a_common_name_is_made_when_it_is_needed() -> None:
    """The table has thousands of names; a row of each would take longer than reading a log."""
    table = generic_framework()
    assert isinstance(table.meanings, SharedRows)
    shared = {id(row) for _, row in table.meanings.items()}
    assert len(table.meanings) > 10 * len(shared)
    assert [row.keys[0] for row in table.meanings] == [key for key, _ in table.meanings.items()]
    assert [row.key for row, _ in table.meanings_of("avg_reward")] == ["avg_reward"]


def test_many_keys_are_normalized_as_each_alone() -> None:
    keys = ["eval/pass@1", "loss:sum", "_Reward__mean_", "kl", "", "/", "Länge/Mittel"]
    assert all_normalized(keys) == [normalized(key) for key in keys]


def test_the_first_of_several_names_counts() -> None:
    assert readings({"task_reward": 0.2, "reward": 0.5, "score": 0.9}) == {"reward/mean": 0.5}


@pytest.mark.parametrize("name", ["pass@8_std", "pass@k", "pass_at_8_max"])
def test_a_pass_rate_has_a_number_of_samples(name: str) -> None:
    assert readings({name: 0.25}) == {}


@pytest.mark.parametrize("value", [47.0, -0.5])
def test_a_number_outside_0_to_1_is_no_share(value: float) -> None:
    translator = Translator(generic_framework())
    assert translator.readings({"frac_truncated": value}) == {}
    assert "no shares" in translator.unused.rejected["frac_truncated"]


@pytest.mark.parametrize(
    ("key", "metric"),
    [
        ("episode_rewards", "reward/mean"),
        ("mean_rewards", "reward/mean"),
        ("eval_scores", "reward/heldout"),
        ("policy_losses", "optimizer/loss"),
        ("value_losses", "critic/loss"),
        ("train_accuracies", "accuracy/train"),
        ("policy_entropies", "entropy/mean"),
        ("response_lengths", "length/mean"),
        ("grad_norms", "optimizer/grad_norm"),
        ("format_rewards", "reward/component/format/mean"),
    ],
)
def test_a_list_per_key_has_the_plural_of_the_name(key: str, metric: str) -> None:
    assert Translator(generic_framework()).readings({key: 0.25}).keys() == {metric}


def test_the_plural_of_an_ambiguous_name_is_ambiguous() -> None:
    generic = Translator(generic_framework())
    assert generic.readings({"approx_kls": 0.25}) == {}
    assert "approx_kls" in generic.unused.rejected


def test_no_plain_name_is_a_frameworks_signature() -> None:
    """Otherwise a log of that framework would look like a custom one."""
    generic = generic_framework()
    shared = {
        key
        for framework in logging_frameworks()
        for key in framework.signature
        if isinstance(key, str) and generic.knows(key)
    }
    assert shared == {"group_reward_std"}


OTHERS = {
    "supervised fine-tuning": (
        "loss grad_norm learning_rate entropy num_tokens mean_token_accuracy epoch",
        "train/loss train/lr(1e-3) val/loss",
        "train_mean_nll learning_rate num_sequences progress/done_frac",
        "loss eval_loss perplexity learning_rate",
    ),
    "preference optimization": (
        "loss rewards/chosen rewards/rejected rewards/margins rewards/accuracies logps/chosen",
        "loss grad_norm rewards/chosen rewards/rejected logits/chosen logits/rejected",
        "A/loss A/chosen_reward A/rejected_reward A/reward_margin A/accuracy",
        "loss train_accuracy train_reward_margin chosen_logps rejected_logps",
        "total_steps loss accuracy lr epoch percentage",  # LLaMA-Factory
        "Rewards/chosen Rewards/rejected Rewards/accuracies Logps/chosen",  # table of a notebook
    ),
    "supervised fine-tuning or preference optimization": (
        "total_steps loss lr epoch percentage throughput total_tokens",
    ),
    "reward modeling": ("loss accuracy margin min_reward mean_reward max_reward learning_rate",),
}


@pytest.mark.parametrize(
    ("objective", "keys"), [(kind, keys) for kind, logs in OTHERS.items() for keys in logs]
)
def test_other_kinds_of_training_are_named_and_not_examined(
    objective: str, keys: str, tmp_path: Path
) -> None:
    path = tmp_path / "log.jsonl"
    rows = ({"step": step, **dict.fromkeys(keys.split(), 0.5)} for step in range(1, 80))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(RunError, match=f"a log of {objective}"):
        list(open_run(path).steps)
    assert list(open_run(path, ReadOptions(format="generic")).steps)
    mapped = ReadOptions(mapping={min(keys.split()): "reward/mean"})
    assert "reward/mean" in next(iter(open_run(path, mapped).steps)).values


@pytest.mark.parametrize(
    "keys",
    [
        "reward reward_std completions/mean_length loss eval_loss kl learning_rate",
        "loss reward val_loss",
        "total_steps loss reward lr epoch percentage",
        "loss accuracy lr epoch",
        "rewards/chosen rewards/rejected reward completions/mean_length",
        "critic/score/mean actor/pg_loss val/loss",
        "loss mean_reward min_reward max_reward line/min_reward line/max_reward line/mean_reward",
    ],
)
def test_a_log_with_a_reward_is_of_reinforcement_learning(keys: str) -> None:
    framework = guess_frameworks(keys.split())[0].framework
    assert other_objective(framework, keys.split()) == ""


def test_lists_of_rewards_give_the_groups(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    groups = [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1], [0.5, 0.5, 0.5, 0.5]]
    rows = ({"step": step, "loss": 0.1, "rewards": groups} for step in range(1, 20))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    first = next(iter(open_run(path).steps))
    values = {name: scalar(value) for name, value in first.values.items()}
    assert values == {
        "optimizer/loss": 0.1,
        "reward/mean": 0.5,
        "groups/zero_variance_rate": 0.75,
        "groups/all_incorrect_rate": 0.25,
        "groups/all_correct_rate": 0.25,
        "groups/reward_std": 0.125,
    }


@pytest.mark.parametrize(
    "rewards",
    [
        [],
        [[]],
        [[1.0]],
        [0.5, 1.0],
        [[1, "a"]],
        [[1, None]],
        [[1e300, 2.0]],
        "text",
        [[True, False]],
    ],
)
def test_other_lists_are_no_groups(rewards: object, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rows = ({"step": step, "loss": 0.1, "rewards": rewards} for step in range(1, 20))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert set(next(iter(open_run(path).steps)).values) == {"optimizer/loss"}


def test_distillation_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    row = {"env/all/reward/total": 0.0, "optim/entropy": 0.5, "teacher_kl": 0.3,
           "progress/done_frac": 0.1}  # fmt: skip
    path.write_text("".join(json.dumps({"step": step, **row}) + "\n" for step in range(30)))
    run = open_run(path)
    list(run.steps)
    assert any("on-policy distillation" in note for note in run.notes)


def test_the_asynchronous_trainer_of_trl_has_its_own_meanings() -> None:
    row = {"kl": 0.01, "reward_std": 0.4, "ratio": 1.0, "reward": 0.5}
    trl = framework_named("trl")
    assert trl.infer_settings is not None
    for more, metric in (({"perf/weight_sync_time_s": 3.0}, "mismatch/kl_k3"),
                         ({"step_time": 3.0}, "kl/reference/k3")):  # fmt: skip
        values = {**row, **more}
        translator = Translator(trl, trl.infer_settings([values]), version="1.16.0")
        assert metric in translator.readings(values)


def test_a_limit_is_inferred_from_lengths_that_recur() -> None:
    verl = framework_named("verl")
    assert verl.infer_settings is not None
    key = "data.max_response_length"
    for lengths, limit in (([900.0, 2048.0, 2048.0, 2048.0], 2048), ([900.0, 901.0, 905.0], None),
                           ([37.0, 37.0, 37.0], None)):  # fmt: skip
        rows = [{"response_length/clip_ratio": 0.1, "response_length/max": length}
                for length in lengths]  # fmt: skip
        assert verl.infer_settings(rows).get(key) == limit


def test_proxy_and_gold_rewards_show_overoptimization(tmp_path: Path) -> None:
    """The gold reward peaks and falls while the proxy rises, as in Gao et al. 2022."""
    path = tmp_path / "log.csv"
    rows = (f"{step},{step / 40 - 0.5},{step / 40 * (1.9 - step / 60)}\n" for step in range(120))
    path.write_text("step,proxy,gold\n" + "".join(rows))
    records = list(open_run(path).steps)
    assert {"reward/mean", "reward/heldout"} <= set(records[0].values)


def test_a_bare_ratio_has_no_stated_meaning() -> None:
    generic = generic_framework()
    assert [row.metric for row, _ in generic.meanings_of("ratio")] == [""]
    assert [row.metric for row, _ in generic.meanings_of("ratio_mean")] == ["ratio/mean"]


def test_trls_ppo_is_not_taken_for_a_framework_with_other_settings(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    row = {"objective/kl": 5.0, "objective/scores": 0.4, "objective/rlhf_reward": 0.1,
           "policy/entropy_avg": 0.5, "policy/clipfrac_avg": 0.1, "loss/value_avg": 2.0,
           "val/ratio": 1.0, "val/num_eos_tokens": 8, "lr": 1e-6, "eps": 2}  # fmt: skip
    log.write_text("".join(f"{json.dumps({'step': step, **row})}\n" for step in range(1, 6)))
    run = open_run(log)
    values = list(run.steps)[-1].values
    assert run.manifest.framework == "generic"
    assert scalar(values["reward/mean"]) == 0.4
    assert scalar(values["critic/loss"]) == 2.0
    assert not any(name.startswith("kl/reference") for name in values)
