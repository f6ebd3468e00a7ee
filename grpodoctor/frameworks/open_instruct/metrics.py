"""open-instruct's grpo_fast and grpo, checked after v0.3."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.log_keys import Framework, KnobMeaning, Meaning
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.vocabulary.knobs import Setting

_TOKENS = "tokens of the updates"
_PROMPTS = "prompts drawn"
_LAST = "the last micro-batch alone: each response overwrites the one before"


def _correction(setting: Setting, others: Mapping[str, Setting]) -> Setting | None:
    if setting is not True:
        return "none"
    return "icepop" if others.get("rho_mask_upper_bound", 0) else "tis_token"


FRAMEWORK = Framework(
    name="open-instruct",
    title="open-instruct",
    dumps="set save_traces=True",
    family=("olmo",),
    row_keys=RowKeys(step=("training_step", "step", "global_step", "_step")),
    signature=(
        "policy/clipfrac_avg",
        "objective/kl2_avg",
        "val/sequence_lengths",
        "val/rho_weight",
        "batch/filtered_prompts",
        "debug/vllm_vs_local_logprob_diff_mean",
        "unsolved_batch_size_ratio",
    ),
    version_key="open_instruct_version",
    defaults={"loss_fn": "dapo"},
    meanings=(
        Meaning(key="scores", metric="reward/mean", over="responses",
                lie="a correct answer gives 10 by default, not 1"),
        Meaning(key="objective/verifiable_reward", over="responses"),
        Meaning(key="objective/verifiable_correct_rate", metric="accuracy/train",
                over="responses"),
        Meaning(key="policy/entropy_avg", metric="entropy/mean", over=_TOKENS, policies="learner",
                how="set record_entropy=True"),
        Meaning(key="policy/clipfrac_avg", metric="clip/any_rate", over=_TOKENS,
                policies="learner / old", when={"loss_fn": ("dapo",)}),
        Meaning(key="policy/clipfrac_avg", metric="clip/high_rate", over=_TOKENS,
                policies="learner / old", when={"loss_fn": ("cispo",)},
                lie="tokens whose weight is bounded; they keep their gradient"),
        Meaning(key="val/ratio", metric="ratio/mean", over=_TOKENS, policies="learner / old"),
        Meaning(key="val/ratio_var", lie="of the micro-batches' means, not of tokens"),
        Meaning(key="objective/kl0_avg", metric="kl/reference/k1", estimator="k1", over=_TOKENS,
                policies="learner | reference"),
        Meaning(key="objective/kl1_avg", metric="kl/reference/k2", estimator="k2", over=_TOKENS,
                policies="learner | reference", lie="k2, not k1: the name counts from 0"),
        Meaning(key="objective/kl2_avg", metric="kl/reference/k3", estimator="k3", over=_TOKENS,
                policies="learner | reference", lie="k3, not k2: the name counts from 0"),
        Meaning(key="objective/kl3_avg", policies="learner | reference",
                lie="ratio times k1, not k3"),
        Meaning(key="objective/<source>_reward", metric="reward/component/<source>/mean",
                over="responses of that source"),
        Meaning(key="objective/<path>"),
        Meaning(key="loss/policy_avg"),
        Meaning(key="loss/kl_avg", lie="times the coefficient"),
        Meaning(key="loss/total_avg", metric="optimizer/loss"),
        Meaning(key="val/rho_weight", metric="correction/weight_mean", over=_TOKENS,
                lie="after the clamp"),
        Meaning(key="val/rho_clipfrac", metric="correction/capped_rate", over=_TOKENS),
        Meaning(key="val/rho_drop_frac", over=_TOKENS),
        Meaning(key="debug/vllm_vs_local_logprob_diff_mean", metric="mismatch/logprob_diff_mean",
                over=_LAST, policies="old - sampler"),
        Meaning(key="debug/vllm_vs_local_logprob_diff_max",
                metric="mismatch/logprob_diff_max/worst_sequence", over=_LAST,
                policies="old - sampler"),
        Meaning(key="debug/vllm_local_reverse_kl", lie="no estimator of a divergence"),
        Meaning(key="debug/<path>"),
        Meaning(key="val/sequence_lengths", metric="length/mean", over="responses",
                lie="a training metric, whatever its prefix"),
        Meaning(key="val/sequence_lengths_max", metric="length/max", over="responses"),
        Meaning(key="val/sequence_lengths_solved", metric="length/correct",
                over="responses with the highest possible score"),
        Meaning(key="val/sequence_lengths_unsolved", metric="length/incorrect",
                over="all other responses"),
        Meaning(key="val/stop_rate", metric="length/truncated_rate", formula="one-minus",
                over="responses"),
        Meaning(key="batch/percent_solved_mean", over=_PROMPTS),
        Meaning(key=("batch/filtered_prompts", "batch/total_prompts"),
                metric="groups/zero_variance_rate", formula="ratio", over=_PROMPTS),
        Meaning(key=("batch/filtered_prompts_zero", "batch/total_prompts"),
                metric="groups/all_incorrect_rate", formula="ratio", over=_PROMPTS),
        Meaning(key=("batch/filtered_prompts_solved", "batch/total_prompts"),
                metric="groups/all_correct_rate", formula="ratio", over=_PROMPTS),
        Meaning(key="batch/<path>", lie="a count"),
        Meaning(key="num_steps_off_policy", metric="staleness/mean", unit="training steps"),
        Meaning(key="optim/grad_norm", metric="optimizer/grad_norm", over="updates"),
        Meaning(key="lr", metric="optimizer/learning_rate"),
        Meaning(key="time/total", metric="time/step", unit="s"),
        Meaning(key="eval/scores", metric="reward/heldout", over="evaluation responses"),
        *(Meaning(key=key) for key in (
            "real_batch_size_ratio", "unsolved_batch_size_ratio", "packed_ratio", "episode",
            "model_step_min", "model_step_max", "model_step_mean", "val/<path>", "time/<path>",
            "eval/<path>", "learner_tokens_per_second_overall", "learner_tokens_per_second_step")),
    ),
    knobs=(
        KnobMeaning(key="loss_fn", knob="loss", of={"dapo": "ppo_clip", "cispo": "cispo"},
                    default="dapo"),
        KnobMeaning(key="clip_lower", knob="clip_low"),
        KnobMeaning(key="clip_higher", knob="clip_high"),
        KnobMeaning(key="loss_denominator", knob="aggregation", of={"token": "token-mean"}),
        KnobMeaning(key="advantage_normalization_type", knob="advantage",
                    of={"centered": "centred", "standard": "group"}),
        KnobMeaning(key="active_sampling", knob="dynamic_sampling"),
        KnobMeaning(key="mask_truncated_completions", knob="overlong",
                    of={True: "mask", False: "none"}),
        KnobMeaning(key="use_rho_correction", knob="correction", of=_correction),
        KnobMeaning(key="rho_clamp_upper_bound", knob="correction_cap"),
        KnobMeaning(key="beta", knob="kl_coefficient"),
        KnobMeaning(key="num_samples_per_prompt_rollout", knob="group_size"),
        KnobMeaning(key="num_unique_prompts_rollout", knob="prompts_per_batch"),
        KnobMeaning(key="num_mini_batches", knob="updates_per_batch"),
        KnobMeaning(key="learning_rate", knob="learning_rate"),
        KnobMeaning(key="response_length", knob="max_length"),
        KnobMeaning(key="temperature", knob="temperature"),
    ),
)
