"""Keys that the frameworks log: the minimum that a table must have."""

LOGGED = {
    "areal": """
        ppo_actor/task_reward/avg  ppo_actor/final_reward/avg  ppo_actor/advantages/max
        ppo_actor/kl_rewards/avg  ppo_actor/seq_len/avg  ppo_actor/prompt_len/avg
        ppo_actor/correct_seq_len/avg  ppo_actor/incorrect_seq_len/avg  ppo_actor/no_eos_ratios/avg
        ppo_actor/n_seqs  ppo_actor/n_tokens  ppo_actor/n_valid_tokens  ppo_actor/correct_n_seqs
        ppo_actor/incorrect_n_seqs  ppo_actor/update/entropy/avg
        ppo_actor/update/importance_weight/max  ppo_actor/update/approx_kl/avg
        ppo_actor/update/clip_ratio/avg  ppo_actor/update/dual_clip_ratio/avg
        ppo_actor/update/clipped_tokens  ppo_actor/update/dual_clipped_tokens
        ppo_actor/update/logp_diff/avg  ppo_actor/update/logp_abs_diff/avg
        ppo_actor/update/new_logp/avg  ppo_actor/update/old_logp/avg
        ppo_actor/update/behave_imp_weight/avg  ppo_actor/update/behave_approx_kl/avg
        ppo_actor/update/behave_filtered_ratio/avg  ppo_actor/update/rs_filtered_fraction
        ppo_actor/update/masked_token_ratio  ppo_actor/update/compute_logp/kl_div_direct/avg
        ppo_actor/update/compute_logp/kl_div_taylor/avg
        ppo_actor/update/compute_logp/kl_div_dual/avg
        ppo_actor/update/version_stats/sample_staleness_proximal_avg
        ppo_actor/update/version_stats/sample_staleness_theta_max
        ppo_actor/update/version_stats/v_theta  ppo_actor/update/actor_loss/avg
        ppo_actor/update/grad_norm  ppo_actor/update/lr  ppo_actor/update/update_successful
        ppo_actor/update/vocab_min_logits/avg  rollout/accepted  rollout/rejected  rollout/reward
        timeperf/train_step
    """,
    "ms-swift": """
        cispo_clip_ratio  clip_ratio  clip_ratio/high_max  clip_ratio/high_mean
        clip_ratio/low_mean  clip_ratio/low_min  clip_ratio/region_mean
        completions/clipped_ratio  completions/max_length  completions/mean_length
        completions/min_length  entropy/max  entropy/mean  entropy/min  entropy/threshold  epoch
        fipo/mean  frac_reward_zero_std  grad_norm  kl  learning_rate  loss  memory(GiB)
        num_turns  reward  reward_std  rewards/func/mean  rewards/func/std
        rollout_correction/chi2_seq  rollout_correction/chi2_token
        rollout_correction/clipped_frac  rollout_correction/ess
        rollout_correction/is_weight_mean  rollout_correction/k3_kl  rollout_correction/kl
        rollout_correction/log_ppl_diff  rollout_correction/ppl_ratio
        rollout_correction/rollout_ppl  rollout_correction/training_ppl  sdar/mean  teacher_kl
        train_speed(s/it)
    """,
    "nemo-rl": """
        performance/mean  rollout/inflight  timing/train/mean  train/advantages/max
        train/advantages/mean  train/advantages/min  train/advantages/sum  train/approx_entropy
        train/avg_trajectory_age  train/baseline_reward/pct_0  train/baseline_reward/pct_1
        train/baseline_reward/pct_mixed  train/buffer_size
        train/dynamic_sampling_num_discarded_valid_samples
        train/dynamic_sampling_num_gen_batches  train/filtered_reward  train/gen_kl_error
        train/grad_norm  train/is_oob_ratio  train/js_divergence_error  train/kl_penalty
        train/loss  train/lr  train/masked_correct_pct  train/max_gen_tokens_per_sample
        train/max_seq_mult_prob_error  train/max_turns_reached_rate
        train/mean_gen_tokens_per_sample  train/mean_total_tokens_per_sample
        train/moe/aux_loss_name  train/natural_termination_rate
        train/num_masked_seqs_by_logprob_error  train/num_valid_samples  train/policy_kl_error
        train/positive_nll_loss  train/probs_ratio  train/probs_ratio_clamped  train/reward
        train/sampling_importance_ratio  train/token_mult_prob_error  train/truncation_rate
        train/wd  validation/accuracy  validation/avg_length
    """,
    "open-instruct": """
        batch/filtered_prompts  batch/filtered_prompts_pct  batch/filtered_prompts_zero
        batch/percent_solved_mean  batch/total_prompts  debug/vllm_local_reverse_kl
        debug/vllm_vs_local_logprob_diff_mean  learner_tokens_per_second_overall
        learner_tokens_per_second_step  loss/kl_avg  loss/policy_avg  loss/total_avg  lr
        model_step_max  model_step_mean  model_step_min  num_steps_off_policy
        objective/dataset_correct_rate  objective/dataset_reward  objective/kl0_avg
        objective/verifiable_correct_rate  objective/verifiable_reward  optim/grad_norm
        packed_ratio  policy/clipfrac_avg  policy/entropy_avg  real_batch_size_ratio  scores
        time/mean  unsolved_batch_size_ratio  val/actor_tokens_per_second  val/advantages_mean
        val/ratio  val/ratio_var  val/rho_clipfrac  val/rho_drop_frac  val/rho_drop_high_frac
        val/rho_drop_low_frac  val/rho_weight  val/sequence_lengths  val/sequence_lengths_solved
        val/sequence_lengths_unsolved  val/stop_rate
    """,
    "openrlhf": """
        actor_grad_norm  actor_lr  dynamic_filtering_pass_rate  entropy_loss
        eval/eval_dataset_pass1  group_reward_std  kl  logprobs_diff  policy_loss
        ppo_clip_ratio  ppo_kl  response_clip_ratio  response_length  return  reward
        rollout/num_samples  rollout/response_length_mean  rollout/reward_mean
        rollout/reward_std  rollout/truncated_rate  score  timing/broadcast  timing/generation
        timing/make_experience  timing/ppo_train  timing/step_total  total_length  truncated
        vllm_kl
    """,
    "prime-rl": """
        batch/env  dispatcher/inflight/mean  dispatcher/off_policy/mean  entropy/all/mean
        entropy/env/mean  eval/env/all/agent/avg@k  eval/env/effective/agent/avg@k
        eval/env/effective/agent/pass@k  is_masked/mean  is_masked_high/mean  is_masked_low/mean
        kl_ent_ratio/mean  loss/mean  masked_advantage_negative/mean
        masked_advantage_positive/mean  masked_mismatch_kl/mean  max_vio/mean
        mismatch_kl/all/mean  mismatch_kl/env/mean  off_policy/dropped
        off_policy/in_flight/mean  off_policy/in_queue/mean  off_policy/max  off_policy/mean
        optim/grad_norm  optim/lr  perf/mfu  perf/peak_memory  perf/throughput
        perf/throughput_per_gpu  progress/mean  routing_confidence/mean  time/broadcast_weights
        time/forward_backward  time/load_data  time/pack  time/save_ckpt  time/step
        time/wait_for_batch  time/wait_for_policy
        train/agg/all/agent/is_truncated/is_completed/mean
        train/agg/all/agent/is_truncated/is_completed/stop_condition/generation_truncated
        train/agg/all/agent/is_truncated/mean  train/agg/all/agent/reward/mean
        train/agg/all/agent/solved_all  train/agg/all/agent/solved_none
        train/agg/all/agent/solved_some  train/agg/all/num_output_tokens/mean
        train/agg/subset/agent/is_admitted/mean  train/agg/subset/agent/is_trainable/mean
        unmasked_mismatch_kl/mean
    """,
    "roll": """
        actor/approxkl@sum  actor/backward_steps  actor/cispo_cispo_lower_clipfrac
        actor/cispo_clipped_ratio_mean  actor/clipfrac@sum  actor/difficulty_mask_ratio
        actor/is_weight_clipfrac@sum  actor/kl_loss@sum  actor/lr  actor/pg_loss@sum
        actor/policykl@sum  actor/ppo_ratio_clipfrac@sum  actor/ppo_ratio_high_clipfrac
        actor/ppo_ratio_low_clipfrac  actor/ratio_max@max  actor/ratio_mean@sum
        actor/ratio_min@min  actor/sample_weights_mean@mean  actor/samples_used
        actor/tis_lower_clipfrac  actor/topr_positive_samples@sum  actor/total_loss@sum
        actor/train_infer_diff_geometric_mean@sum  actor/train_infer_diff_mean
        actor/train_infer_diff_segment_mean@sum  actor/train_infer_diff_sequence_mean@sum
        actor/train_infer_diff_token_mean@sum  actor/train_infer_final_mask_mean
        actor/train_infer_ratio_geometric_mean@sum  actor/train_infer_ratio_mask_mean
        actor/train_infer_ratio_mean  actor/train_infer_ratio_segment_mean@sum
        actor/train_infer_ratio_sequence_mean@sum  actor/train_infer_ratio_token_mean@sum
        actor/train_infer_token_ratio_mask_mean@sum  actor/valid_sample_ratio@sum
        actor/weighted_pg_loss@sum  actor_train/grad_norm  actor_train/load_balancing_loss
        critic/advantage_clip_frac  critic/advantages/max  critic/advantages/mean
        critic/advantages/min  critic/clipfrac  critic/correct/mean  critic/entropy/mean
        critic/episode_rewards_norm/mean  critic/error  critic/grad_norm  critic/kl
        critic/kl_coef  critic/loss  critic/lr  critic/old_log_prob/mean
        critic/raw_advantages/mean  critic/ref_log_prob/mean  critic/returns/mean
        critic/reward_clip_frac  critic/rewards/mean  critic/right_response/advantages/std
        critic/score/max  critic/score/mean  critic/score/min
        critic/score_distribution/correct_samples_ratio  critic/token_level_rewards_mean/max
        critic/value  critic/values/mean  critic/vpred  env/response_length
        env/FrozenLake/action_is_valid  env/FrozenLake/num_actions  env/FrozenLake/success
        global_seqlen/actor_train/balanced_max  group/advantage_diff/mean
        group/all_correct_groups_ratio  group/all_incorrect_groups_ratio  group/correct_ratio/std
        group/mixed_groups_ratio  group/response_length_diff/max  mask/final_mask_sum_eq_0
        math_rule/actor/final_mask_ratio  math_rule/critic/kl  math_rule/critic/reward_clip_frac
        math_rule/scheduler/math_rule/score/mean  math_rule/scheduler/off_policy_ratio
        math_rule/scheduler/query_use_count  math_rule/time/compute_advantage
        math_rule/token/response_length/mean  memory/cpu/actor_train/train_step/end/rss
        rollout/non_prompt_length/max  rollout/response_length/mean  rollout/score/mean
        scheduler/group_filter_count  student_train/grad_norm  system/actor_infer/tps_gpu
        system/batch_add_count  system/batch_size  system/max_memory_allocated@max
        system/samples  system/tps  time/actor_train/train_step/total  time/get_batch_cost_train
        time/ref_log_probs_values  time/step_generate  time/step_model_update  time/step_rollout
        time/step_total  time/step_train  time/step_val  token/error_response_length/mean
        token/prompt_length/mean  token/response_length/diff  token/response_length/max
        token/response_length/mean  token/response_length/min  token/right_response_length/clip
        token/right_response_length/mean  token/total_length/mean
        token/total_response_length/clip  tokens/non_prompt_length/mean
        tokens/prompt_length/mean  tokens/response_length/max  tokens/response_length/mean
        tokens/response_length/min  val/FrozenLake/score/mean  val/score/mean
        val_correct/aime/mean  val_correct/all/mean
    """,
    "skyrl": """
        async/keep_rate  async/num_groups_dropped  async/staleness_mean
        async/staleness_violation_count  environment/mean  eval/source/avg_score
        eval/source/mean_positive_reward  eval/source/pass_at_n  generate/avg_assistant_tokens
        generate/avg_num_tokens  generate/avg_tokens_non_zero_rewards
        generate/avg_tokens_zero_rewards  generate/batch_num_seq  generate/max_assistant_tokens
        generate/min_assistant_tokens  generate/std_assistant_tokens
        generate/tokens_per_turn_max  generate/tokens_per_turn_mean
        generate/tokens_per_turn_std  generate/trajectory_time_x_max
        generate/trajectory_time_x_mean  generate/trajectory_time_x_p90  loss/avg_final_rewards
        loss/avg_kl  loss/avg_kl_max  loss/avg_raw_advantages  loss/avg_raw_advantages_abs
        loss/kl_loss_coef  policy/aux_loss_name  policy/final_loss  policy/grad_norm
        policy/loss_metrics/cispo/ratio_clamped_mean  policy/loss_metrics/cispo/ratio_max
        policy/loss_metrics/cispo/ratio_mean  policy/loss_metrics/cispo/ratio_min
        policy/loss_metrics/clip_ratio  policy/loss_metrics/is_ratio_max
        policy/loss_metrics/is_ratio_mean  policy/loss_metrics/is_ratio_min
        policy/loss_metrics/is_ratio_std  policy/loss_metrics/tis_token_clip_high_ratio
        policy/moe/name_layer_3  policy/policy_entropy  policy/policy_kl  policy/policy_loss
        policy/policy_lr  policy/response_length  policy/rollout_train_logprobs_abs_diff_max
        policy/rollout_train_logprobs_abs_diff_mean  policy/rollout_train_logprobs_abs_diff_min
        policy/rollout_train_logprobs_abs_diff_std  reward/avg_pass_at_4  reward/avg_raw_reward
        reward/mean_positive_reward  reward/num_zero_variance_filtered  reward_dropped/mean
        timing/mean  trainer/epoch  trainer/global_step  trainer/tokens_per_second_per_gpu
    """,
    "slime": """
        eval/dataset  eval/dataset-truncated_ratio
        multi_turn/raw_response_length/response_length_clip_ratio
        multi_turn/raw_response_length/response_length_max
        multi_turn/raw_response_length/response_length_mean
        multi_turn/raw_response_length/response_length_min
        multi_turn/wo_obs_response_length/mean  passrate/pass@8  perf/actor_train_tflops
        perf/actor_train_tok_per_s  perf/longest_sample_tokens_per_sec  perf/rollout_time
        perf/step_time  perf/tokens_per_gpu_per_sec  perf/wait_time_ratio  rollout/advantages
        rollout/dynamic_filter/drop_reason  rollout/entropy  rollout/error_cat/mean
        rollout/log_probs  rollout/prefix_cache_hit_rate  rollout/raw_reward
        rollout/ref_log_probs  rollout/repetition_frac  rollout/response_len/max
        rollout/response_len/mean  rollout/response_len/median  rollout/response_len/min
        rollout/response_lengths  rollout/returns  rollout/rewards  rollout/rollout_log_probs
        rollout/spec_mean  rollout/total_lengths  rollout/truncated  rollout/truncated_ratio
        rollout/zero_std/count_reward  train/entropy_loss  train/global_batch_size
        train/grad_norm  train/kl_loss  train/loss  train/lr-pg_0  train/mtp_loss  train/ois
        train/opd_reverse_kl  train/opsm_clipfrac  train/pg_clipfrac  train/pg_loss
        train/ppo_kl  train/tis  train/tis_abs  train/tis_clipfrac
        train/train_rollout_logprob_abs_diff
    """,
    "tinker-cookbook": """
        env/all/ac_tokens_per_turn  env/all/by_group/frac_all_bad
        env/all/by_group/frac_all_good  env/all/by_group/frac_mixed  env/all/ob_tokens_per_turn
        env/all/reward/total  env/all/total_ac_tokens  env/all/total_episodes
        env/all/turns_per_episode  kl_policy_base  kl_pre_post_v1  kl_pre_post_v2  optim/entropy
        optim/kl_sample_train_v1  optim/kl_sample_train_v2  optim/lr  progress/batch
        progress/done_frac  rollout_errors/mean  sampling_client/step_mean  time/mean
        training_client/step
    """,
    "trl": """
        aux_loss  cispo_clip_ratio  clip_ratio  clip_ratio/high_max  clip_ratio/high_mean
        clip_ratio/low_mean  clip_ratio/low_min  clip_ratio/region_mean
        completions/clipped_ratio  completions/max_length  completions/max_terminated_length
        completions/mean_length  completions/mean_terminated_length  completions/min_length
        completions/min_terminated_length  entropy  entropy_coef  epoch  frac_reward_zero_std
        grad_norm  kl  learning_rate  loss  num_tokens  policy_loss  reward  reward_std
        rewards/func/mean  rewards/func/std  sampling/importance_sampling_ratio/max
        sampling/importance_sampling_ratio/mean  sampling/importance_sampling_ratio/min
        sampling/sampling_logp_difference/max  sampling/sampling_logp_difference/mean  step_time
        tools/call_frequency  tools/failure_frequency  vespo/phi_seq_mean
    """,
    "verl": """
        actor/entropy  actor/entropy_loss  actor/grad_norm  actor/kl_coef  actor/kl_loss
        actor/loss  actor/lr  actor/pg_clipfrac  actor/pg_clipfrac_lower  actor/pg_loss
        actor/ppo_kl  actor/reward_kl_penalty  actor/reward_kl_penalty_coeff
        critic/kl  critic/kl_coeff
        critic/advantages/max  critic/advantages/mean  critic/advantages/min
        critic/returns/mean  critic/rewards/max  critic/rewards/mean  critic/rewards/min
        critic/score/max  critic/score/mean  critic/score/min
        fully_async/count/current_param_version  fully_async/count/dropped_stale_samples
        fully_async/count/stale_samples_processed  fully_async/count/stale_trajectory_processed
        fully_async/count/total_generated_samples  fully_async/partial/mean
        fully_async/rollouter/idle_ratio  fully_async/trainer/idle_ratio  global_seqlen/mean
        num_turns/mean  perf/max_memory_mean  perf/mfu/actor  perf/throughput
        perf/time_per_step  perf/total_num_tokens  prompt_length/mean  response/aborted_ratio
        response_length/clip_ratio  response_length/max  response_length/mean
        response_length/min  response_length_non_aborted/mean  rollout/moe/max_vio/avg
        rollout/moe/max_vio/layer_3  rollout/moe/max_vio/max
        rollout/moe/routed_expert_assignments  rollout/moe/routed_experts_found
        rollout_corr/chi2_seq  rollout_corr/chi2_token  rollout_corr/k3_kl  rollout_corr/kl
        rollout_corr/log_ppl_abs_diff  rollout_corr/log_ppl_diff  rollout_corr/log_ppl_diff_max
        rollout_corr/log_ppl_diff_min  rollout_corr/ppl_ratio  rollout_corr/rollout_is_max
        rollout_corr/rollout_is_mean  rollout_corr/rollout_is_ratio_fraction_high
        rollout_corr/rollout_is_seq_max  rollout_corr/rollout_is_seq_max_deviation
        rollout_corr/rollout_is_seq_mean  rollout_corr/rollout_is_seq_min
        rollout_corr/rollout_is_seq_std  rollout_corr/rollout_log_ppl  rollout_corr/rollout_ppl
        rollout_corr/rollout_rs_masked_fraction  rollout_corr/rollout_rs_option_mean
        rollout_corr/training_log_ppl  rollout_corr/training_ppl  timing_per_token_ms/mean
        timing_s/mean  tool_call_counts/mean  train/num_gen_batches  training/epoch
        training/filter_groups/discarded_surplus_samples  training/filter_groups/evicted_samples
        training/global_step  training/num_turns/mean  training/off_policy/evicted_samples
        training/off_policy/trajectory_staleness/max
        training/off_policy/trajectory_staleness/mean
        training/off_policy/trajectory_staleness/min
        training/off_policy/trajectory_staleness/trajectory_staleness_worst/mean
        training/off_policy/trajectory_staleness/trajectory_staleness_worst/trajectory_spans/mean
        training/rollout_actor_probs_pearson_corr  training/rollout_failure/evicted_samples
        training/rollout_probs_diff_mean  val-core/source/var/mean@N
    """,
}
"""Keys by framework, separated by white space; `~` stands for a space within a key."""
