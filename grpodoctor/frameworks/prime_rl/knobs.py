"""prime-rl: keys of its TOML, checked against v0.8.1.

Its loss takes importance ratios to the sampler and drops tokens whose probabilities under learner
and sampler differ by too much. It therefore has no PPO clip and needs no correction.
"""

from __future__ import annotations

from grpodoctor.frameworks.knob_mapping import (
    KnobMapping,
    KnobTable,
    always,
    nothing_to_set,
    unsupported,
)
from grpodoctor.frameworks.prime_rl.methods import DEFAULTS, FACTS, METHODS
from grpodoctor.frameworks.written_settings import (
    NothingToSet,
    Product,
    Syntax,
    Unsupported,
    WithNote,
)
from grpodoctor.vocabulary.knobs import Setting

_RATIO_TO_SAMPLER = Unsupported(
    "its importance ratios are taken to the sampler, and the loss masks tokens that differ by too "
    "much"
)


_ADVANTAGES: dict[Setting, Setting] = {
    "grpo": "centred",
    "echo": "centred",
    "hierarchical_grpo": "centred",
    "max_rl": "max_rl",
}
"""By algorithm. `rae` has another baseline, and distillation has no advantage."""


def _no_clip(side: str) -> Unsupported:
    key = f"trainer.loss.dppo_mask_{side}"
    return Unsupported(
        f"there is no PPO clip; {key} limits the difference of the probabilities, not their ratio"
    )


_MAPPINGS = (
    KnobMapping("loss", "trainer.loss.type",
        values={"dppo_binary_tv": WithNote("default", "adds trainer.loss.kl_tau log(ratio)^2"),
                "ipo": "ipo"},
        write=Unsupported('write your own loss with trainer.loss.type = "custom"')),
    KnobMapping("clip_low", write=_no_clip("low")),
    KnobMapping("clip_high", write=_no_clip("high")),
    always("aggregation", "token-mean", "prime-rl always averages over all tokens of the batch",
        "the loss is always averaged over all tokens of the batch"),
    KnobMapping("advantage", "orchestrator.algo.type", read=_ADVANTAGES,
        values={"centred": NothingToSet("prime-rl never divides by the standard deviation")},
        write=Unsupported("advantages are always the reward minus the group's mean")),
    KnobMapping("correction", write=_RATIO_TO_SAMPLER),
    KnobMapping("correction_cap", write=_RATIO_TO_SAMPLER),
    KnobMapping("old_logprobs",
        values={"sampler": NothingToSet("prime-rl always uses the sampler's log-probabilities")},
        write=_RATIO_TO_SAMPLER),
    KnobMapping("dynamic_sampling", "orchestrator.train.filter_zero_advantages", reads=False,
        values={True: WithNote(True, "the default"), False: False}),
    always("overlong", "none", "omit orchestrator.algo.length_penalty",
        "orchestrator.algo.length_penalty is prime-rl's own penalty on length"),
    unsupported("overlong_buffer", "see orchestrator.algo.length_penalty"),
    always("kl_coefficient", 0.0, "prime-rl has no KL penalty to a reference model",
        "trainer.loss.kl_tau pulls toward the sampler, not a reference"),
    unsupported("entropy_coefficient", 'add it in your own loss, trainer.loss.type="custom"'),
    KnobMapping("learning_rate", "trainer.optim.lr"),
    KnobMapping("temperature", "orchestrator.train.sampling.temperature"),
    KnobMapping("group_size", "orchestrator.group_size"),
    KnobMapping("prompts_per_batch", "orchestrator.batch_size", reads=False,
        write=Product("group_size", "counts responses")),
    always("updates_per_batch", 1, "prime-rl always makes one update per batch",
        "there is always one update per batch"),
    KnobMapping("max_length", "orchestrator.train.sampling.max_completion_tokens",
        other_keys=("orchestrator.sampling.max_completion_tokens",
                    "orchestrator.sampling.max_tokens")),
    KnobMapping("routing_replay",
        values={"none": {"trainer.enable_router_replay": False},
                "R3": {"trainer.enable_router_replay": True,
                       "inference.vllm.enable_return_routed_experts": WithNote(True,
                           "inference.enable_return_routed_experts up to 0.8.0")}},
        write=Unsupported("trainer.enable_router_replay replays the sampler's routing (R3)")),
    unsupported("sampler_sync_every",
        "the weights are sent after every step; limit staleness with "
        "orchestrator.max_off_policy_steps"),
)

_ENGINE_SETTINGS = (
    KnobMapping("sampler_dtype", "inference.vllm.dtype", note="inference.model.dtype up to 0.8.0"),
    always("learner_dtype", "bfloat16", "prime-rl's trainer always computes in bfloat16",
        "the trainer always computes in bfloat16"),
    KnobMapping("float32_head", "inference.enable_fp32_lm_head", write=True, note="the default"),
    KnobMapping("sampler_tensor_parallel", "inference.vllm.tensor_parallel_size",
        note="inference.parallel.tp up to 0.8.0"),
    nothing_to_set("unquantized_sampler",
        "omit inference.vllm.quantization and serve a checkpoint that is not quantized"),
    KnobMapping("unquantized_cache", "inference.vllm.kv_cache_dtype", write="auto"),
    nothing_to_set("whole_distribution",
        "prime-rl sends top_p 1; check whether orchestrator.train.sampling.extra_body sets top_k "
        "or min_p"),
    nothing_to_set("one_temperature",
        "prime-rl scores at the temperature of the samples; check whether an environment overrides"
        " it"),
    KnobMapping("processed_logprobs", "inference.vllm.logprobs_mode", write="processed_logprobs",
        note="the default"),
    KnobMapping("no_prefix_cache", "inference.vllm.enable_prefix_caching", write=False),
    KnobMapping("small_micro_batch", "trainer.model.seq_len", write="<current value / 2>",
        note="tokens of a micro-batch; at least the longest prompt and response together"),
    KnobMapping("gradient_checkpointing", "trainer.model.ac.freq", write=1),
    KnobMapping("sampler_memory", "inference.vllm.gpu_memory_utilization", write=0.8,
        note="default 0.9; only if trainer and inference share the GPUs"),
    KnobMapping("balanced_routers", "trainer.model.freeze_moe_router", write=True),
)

KNOBS = KnobTable(
    title="prime-rl",
    syntax=Syntax(quotes=True),
    mappings=_MAPPINGS,
    engine_settings=_ENGINE_SETTINGS,
    methods=METHODS,
    facts=FACTS,
    defaults=DEFAULTS,
)
