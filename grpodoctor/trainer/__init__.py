"""The bundled GRPO trainer.

Packages from the lowest to the highest. A package imports only packages listed above it:

    moe            routers and recorded routes of mixtures of experts
    distributed    ranks and sharded weights
    samples        a batch of sampled responses as tensors
    section        base class of configuration sections
    task           tasks, problems and rewards as types
    algorithms     losses, advantages, corrections, filters, batches; pure functions
    config         configuration, knobs, presets
    rewards        reward functions
    data           tasks and prompts
    model          policy, tokenizer, LoRA, critic, reference, checkpoints, export
    engines        the built-in sampler and vLLM
    loop, learner, rollout, recording and the other modules of this package
"""
