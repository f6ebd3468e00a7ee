"""Facts about a run's configuration that rules read and that no remedy changes.

They complete the knobs: a rule about the configuration may require both. A row has the form of a
knob, and `FACTS` of `grpodoctor.frameworks.<framework>.methods` says how a framework's config
contains it. A fact that a config does not contain is unknown, never assumed.
"""

from __future__ import annotations

from grpodoctor.vocabulary.knobs import KNOBS, Knob

CONFIG_FACTS: dict[str, Knob] = {
    fact.name: fact
    for fact in (
        Knob("learner_temperature", "Temperature of the learner's log-probabilities.", 0, 100),
        Knob("greedy_sampling", "Training samples are the most likely tokens."),
        Knob("top_p", "Nucleus sampling of training samples; 1 samples from all tokens.", 0, 1),
        Knob(
            "top_k",
            "Number of tokens to sample from; 0 or -1 samples from all.",
            -1,
            1e9,
            integer=True,
        ),
        Knob("min_p", "Least probability of a sampled token, relative to the likeliest.", 0, 1),
        Knob("repetition_penalty", "The sampler's penalty on repeated tokens; 1 is none.", 0, 100),
        Knob(
            "blocked_ngrams",
            "Length of n-grams that the sampler never repeats; 0 blocks none.",
            0,
            1e6,
            integer=True,
        ),
        Knob("ignores_end_token", "The sampler goes on after the end token."),
        Knob("least_length", "Tokens before which no response may end.", 0, 1e9, integer=True),
        Knob("kl_in_reward", "Weight of the KL penalty in the reward.", 0, 10),
        Knob("kl_in_loss", "Weight of the KL penalty in the loss.", 0, 10),
        Knob(
            "kl_estimator", "Estimator of the KL penalty in the loss.", choices=("k1", "k2", "k3")
        ),
        Knob("reference_loaded", "The run has a reference model."),
        Knob("unprotected_bfloat16", "Weights are in bf16, and the optimizer has no float32 copy."),
        Knob("sampler_quantized", "The sampler's weights are quantized."),
        Knob("staleness_limit", "Largest age of a sample, in steps; 0 is synchronous.", 0, 1e9),
        Knob("lora_rank", "Rank of LoRA adapters; 0 trains all weights.", 0, 1e6, integer=True),
        Knob("padded_denominator", "The loss is divided by the batch's padded width."),
        Knob(
            "responses_per_process",
            "Responses that one process samples for a batch.",
            1,
            1e9,
            integer=True,
        ),
        Knob("sampler_apart", "The sampler runs as a server, on separate devices."),
        Knob("max_prompt_length", "Longest prompt, in tokens.", 1, 1e9, integer=True),
        Knob(
            "context_length", "Longest prompt plus response of the sampler.", 1, 1e9, integer=True
        ),
        Knob(
            "punishment_limit",
            "Length at which the overlong punishment is complete.",
            1,
            1e9,
            integer=True,
        ),
        Knob("router_loss", "Weight of the routers' auxiliary loss.", 0, 100),
        Knob("dual_clip", "Largest ratio of a token with a negative advantage.", 0, 1e9),
        Knob("weight_cap", "Largest weight of a token with CISPO.", 0, 1e9),
        Knob("sequence_ratio_weights_tokens", "Response-level ratios with a mean over all tokens."),
        Knob("critic_pretraining", "Steps in which only the critic learns.", 0, 1e9, integer=True),
        Knob("tool_tokens_in_loss", "Tokens of tools and environments are in the loss."),
        Knob("batch_responses", "Responses of a rollout batch.", 1, 1e9, integer=True),
        Knob("update_responses", "Responses of one optimizer step.", 1, 1e9, integer=True),
        Knob("learner_devices", "Devices that share an optimizer step.", 1, 1e9, integer=True),
        Knob(
            "device_responses", "Responses of one pass of a learner's device.", 1, 1e9, integer=True
        ),
        Knob(
            "learner_length", "Longest prompt plus response of the learner.", 1, 1e9, integer=True
        ),
        Knob("total_steps", "Optimizer steps or batches of the run.", 1, 1e9, integer=True),
        Knob("warmup_steps", "Steps in which the learning rate rises.", 0, 1e9, integer=True),
        Knob("warmup_share", "Share of the run in which the learning rate rises.", 0, 1),
        Knob("adam_beta1", "Decay of Adam's average of gradients.", 0, 1),
        Knob("adam_beta2", "Decay of Adam's average of squared gradients.", 0, 1),
        Knob("adam_epsilon", "What Adam adds to the root of the second moment.", 0, 1e9),
        Knob("epochs", "Passes over the prompts.", 0, 1e9),
        Knob("evaluation_interval", "Steps from one evaluation to the next.", 1, 1e9, integer=True),
        Knob("removes_columns", "The trainer removes columns that it does not know."),
        Knob("shuffled_data", "The data loader shuffles the prompts."),
        Knob("sampler_batch_tokens", "Tokens of one pass of the sampler.", 1, 1e9, integer=True),
        Knob("chunked_prefill", "The sampler splits long prompts over several passes."),
        Knob("pretrained_model", "The run starts from a pretrained model."),
    )
}


def setting_named(name: str) -> Knob:
    """The knob or fact of that name.

    Raises:
        KeyError: if there is none.
    """
    return KNOBS[name] if name in KNOBS else CONFIG_FACTS[name]
