"""Checks across sections: settings that conflict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from grpodoctor.trainer.config.sections import AllSections
from grpodoctor.trainer.config_section import ConfigSection
from grpodoctor.vocabulary.losses import traits_of


class Conflict(NamedTuple):
    """Settings that exclude each other."""

    present: bool
    """Whether the configuration has the conflict."""
    what: str
    keys: str
    remedy: str


def conflicts(config: AllSections) -> Iterator[Conflict]:
    """The conflicts that a configuration has."""
    checks = (
        _redundant_corrections,
        _redundant_group_filters,
        _kl_in_reward,
        _batch_sizes,
        _bounds,
        _engine,
        _truncated_distribution,
        _rewards,
        _redundant_entropy_remedies,
        _ineffective_reweightings,
        _positive_nll,
        _with_critic,
        _without_critic,
        _mixture_of_experts,
    )
    for check in checks:
        yield from (conflict for conflict in check(config) if conflict.present)


def _redundant_corrections(config: AllSections) -> Iterator[Conflict]:
    """Corrections that another setting repeats or makes useless."""
    correction, loss = config.correction, config.loss
    yield Conflict(
        correction.kind != "none" and config.engine.old_logprobs == "sampler",
        f"{correction.kind} corrects the gap between sampler and learner, which a ratio to the "
        "sampler's own log-probabilities already includes",
        keys="correction.kind and engine.old_logprobs",
        remedy="set engine.old_logprobs=recompute",
    )
    yield Conflict(
        correction.kind != "none" and loss.anchored_on_sampler,
        f"the ratio of {loss.kind} is relative to the sampler: {correction.kind} would correct the "
        "same gap twice",
        keys="correction.kind and loss.kind",
        remedy="set correction.kind=none",
    )
    yield Conflict(
        correction.kind in ("tis_token", "mis_token", "icepop", "geo_mask")
        and loss.one_term_per_response,
        f"{loss.kind} has one term per response, which averages out the token weights of "
        f"{correction.kind}",
        keys="correction.kind and loss.kind",
        remedy="use tis_sequence or mis_sequence, or the loss gspo_token",
    )
    yield Conflict(
        correction.kind in ("mis_sequence", "geo_mask", "error_mask")
        and loss.off_policy_limit is not None,
        f"{correction.kind} and loss.off_policy_limit both mask whole responses",
        keys="correction.kind and loss.off_policy_limit",
        remedy="use one of them",
    )
    yield Conflict(
        correction.kind == "icepop" and correction.floor == 0,
        "with correction.floor=0, icepop equals mis_token",
        keys="correction.kind and correction.floor",
        remedy="set correction.floor=0.5 and correction.cap=5, as in its paper",
    )


def _redundant_entropy_remedies(config: AllSections) -> Iterator[Conflict]:
    """Several remedies for falling entropy, whose effects cannot be distinguished."""
    loss, share = config.loss, config.reweighting.forking_share
    by_covariance = loss.selects_by_covariance
    bonus = loss.entropy_coefficient > 0 or loss.entropy_target is not None
    yield Conflict(
        loss.entropy_target is not None and loss.entropy_coefficient != 0,
        "the entropy coefficient is either fixed or adaptive",
        keys="loss.entropy_target and loss.entropy_coefficient",
        remedy="set loss.entropy_coefficient=0; loss.entropy_coefficient_min is the starting value",
    )
    yield Conflict(
        by_covariance and bonus,
        f"{loss.kind} and an entropy bonus both raise the entropy",
        keys="loss.kind and loss.entropy_coefficient",
        remedy="set loss.entropy_coefficient=0 and remove loss.entropy_target",
    )
    yield Conflict(
        share is not None and (by_covariance or bonus),
        f"{loss.kind if by_covariance else 'an entropy bonus'} and forking tokens both decide "
        "where the policy explores",
        keys="reweighting.forking_share and the loss",
        remedy="remove reweighting.forking_share",
    )


def _ineffective_reweightings(config: AllSections) -> Iterator[Conflict]:
    """Reweightings that have no effect, or that cancel each other."""
    active, share = config.reweighting.active, config.reweighting.forking_share
    yield Conflict(
        bool(active) and config.loss.one_term_per_response,
        f"{config.loss.kind} has one term per response, so {' and '.join(active)} cannot weight "
        "single tokens",
        keys="reweighting and loss.kind",
        remedy="use a token-level loss, such as ppo_clip or gspo_token",
    )
    yield Conflict(
        share is not None and len(active) > 1,
        "forking tokens mask the likely tokens, which the other reweightings favor",
        keys="reweighting.forking_share and reweighting.alpha or reweighting.lopti_threshold",
        remedy="use one of them",
    )
    yield Conflict(
        config.advantage.kind == "dcpo_sas" and config.rollout.dynamic_sampling,
        "dcpo_sas learns from groups without variance, which dynamic sampling discards",
        keys="advantage.kind and rollout.dynamic_sampling",
        remedy="set rollout.dynamic_sampling=false",
    )


def _redundant_group_filters(config: AllSections) -> Iterator[Conflict]:
    """Two ways to handle groups without variance."""
    rollout = config.rollout
    yield Conflict(
        rollout.filter_groups and rollout.dynamic_sampling,
        "filtering drops groups without variance, and dynamic sampling replaces them: both solve "
        "the same problem",
        keys="rollout.filter_groups and rollout.dynamic_sampling",
        remedy="use one of them",
    )
    yield Conflict(
        rollout.filter_groups and config.advantage.kind == "dcpo_sas",
        "dcpo_sas learns from groups without variance, which filtering drops",
        keys="advantage.kind and rollout.filter_groups",
        remedy="set rollout.filter_groups=false",
    )


def _kl_in_reward(config: AllSections) -> Iterator[Conflict]:
    """Settings that exclude a KL penalty in the reward."""
    loss = config.loss
    in_reward = loss.kl_placement == "reward"
    yield Conflict(
        in_reward and loss.kl_estimator != "k1",
        f"{loss.kl_estimator} is never negative, so in the reward it would also punish tokens that "
        "became less likely",
        keys="loss.kl_placement and loss.kl_estimator",
        remedy="set loss.kl_estimator=k1, or loss.kl_placement=loss",
    )
    yield Conflict(
        in_reward and loss.kl_coefficient > 0 and config.advantage.kind == "gdpo",
        "gdpo standardizes the components of the reward, and a KL penalty is not a component",
        keys="loss.kl_placement and advantage.kind",
        remedy="set loss.kl_placement=loss",
    )
    yield Conflict(
        in_reward and loss.kl_coefficient > 0 and config.advantage.kind == "dcpo_sas",
        "dcpo_sas compares with earlier rewards, whose KL penalty belongs to an earlier policy",
        keys="loss.kl_placement and advantage.kind",
        remedy="set loss.kl_placement=loss",
    )
    yield Conflict(
        in_reward and loss.kl_coefficient > 0 and config.advantage.kind == "max_rl",
        "max_rl divides by the group's mean reward, which a KL penalty makes negative at times",
        keys="loss.kl_placement and advantage.kind",
        remedy="set loss.kl_placement=loss",
    )


def _batch_sizes(config: AllSections) -> Iterator[Conflict]:
    """Sizes of batches and models that do not divide."""
    optimizer, rollout, model = config.optimizer, config.rollout, config.model
    batches, remainder = divmod(optimizer.updates_per_batch, optimizer.epochs)
    yield Conflict(
        remainder != 0,
        f"{optimizer.updates_per_batch} updates cannot be split evenly into "
        f"{optimizer.epochs} epochs",
        keys="optimizer.updates_per_batch and optimizer.epochs",
        remedy="make the first a multiple of the second",
    )
    yield Conflict(
        batches > rollout.prompts_per_batch,
        f"{batches} updates per epoch need more than the {rollout.prompts_per_batch} prompts of a "
        "batch: a prompt's responses stay together",
        keys="optimizer.updates_per_batch and rollout.prompts_per_batch",
        remedy="use fewer updates, more epochs or more prompts",
    )
    yield Conflict(
        model.width % (2 * model.heads) != 0,
        f"{model.heads} heads of even size do not fit a width of {model.width}",
        keys="model.heads and model.width",
        remedy="make the width a multiple of twice the number of heads",
    )


def _bounds(config: AllSections) -> Iterator[Conflict]:
    """Bounds in the wrong order, or larger than what they bound."""
    overlong, max_length = config.overlong, config.rollout.max_length
    optimizer = config.optimizer
    yield Conflict(
        optimizer.schedule != "constant"
        and optimizer.final_learning_rate > optimizer.learning_rate,
        "the final learning rate is above the learning rate",
        keys="optimizer.final_learning_rate and optimizer.learning_rate",
        remedy="set the first below the second",
    )
    yield Conflict(
        overlong.punishes and overlong.buffer > max_length,
        f"a buffer of {overlong.buffer} tokens is longer than the responses",
        keys="overlong.buffer and rollout.max_length",
        remedy=f"use at most {max_length}",
    )
    yield Conflict(
        config.difficulty.low > config.difficulty.high,
        f"no pass rate is between {config.difficulty.low} and {config.difficulty.high}",
        keys="difficulty.low and difficulty.high",
        remedy="set the first below the second",
    )
    yield Conflict(
        config.loss.entropy_coefficient_min > config.loss.entropy_coefficient_max,
        "the smallest entropy coefficient is above the largest",
        keys="loss.entropy_coefficient_min and loss.entropy_coefficient_max",
        remedy="set the first below the second",
    )


def _truncated_distribution(config: AllSections) -> Iterator[Conflict]:
    yield Conflict(
        config.rollout.truncates_distribution and config.loss.sampler_top_tokens() > 0,
        f"{config.loss.kind} compares the sampler's whole distribution with the learner's, and "
        "top-p or top-k truncates the sampler's",
        keys="loss.kind and rollout.top_p or rollout.top_k",
        remedy="set rollout.top_p=1 and rollout.top_k=0, or use dppo_binary_tv",
    )


def _engine(config: AllSections) -> Iterator[Conflict]:
    """Settings of one kind of engine."""
    engine = config.engine
    yield Conflict(
        (engine.kind == "server") != bool(engine.url),
        "engine.kind=server and engine.url require each other",
        keys="engine.kind and engine.url",
        remedy="set engine.kind=server and engine.url=http://HOST:PORT, or neither",
    )
    yield Conflict(
        engine.kind == "server" and engine.precision != "learner",
        "a server sets its own precision",
        keys="engine.kind and engine.precision",
        remedy="start the server with the --dtype that you want",
    )
    yield Conflict(
        engine.kind == "vllm" and engine.precision in ("int8", "int4"),
        f"{engine.precision} is simulated by the built-in engine only",
        keys="engine.kind and engine.precision",
        remedy="use learner or bf16",
    )


def _mixture_of_experts(config: AllSections) -> Iterator[Conflict]:
    replay, loss, model = config.engine.routing_replay, config.loss, config.model
    requested_by = "loss.kind" if loss.needs_router_shift else "engine.routing_replay"
    yield Conflict(
        replay != "none" and traits_of(loss.kind).handles_router_shift,
        f"{replay} fixes the experts of each token, and {loss.kind} handles experts that change: "
        "one of them is enough",
        keys="engine.routing_replay and loss.kind",
        remedy="set engine.routing_replay=none, or another loss",
    )
    yield Conflict(
        replay == "R3" and config.engine.kind != "builtin",
        "R3 replays the experts of the sampling engine, and the experts of vLLM are not read",
        keys="engine.routing_replay and engine.kind",
        remedy="use R2, which replays the learner's own experts",
    )
    yield Conflict(
        (replay != "none" or loss.needs_router_shift)
        and model.name == "builtin"
        and model.experts == 0,
        "the built-in model is dense and has no routers",
        keys=f"{requested_by} and model.experts",
        remedy="set model.experts=8",
    )
    yield Conflict(
        0 < model.experts <= model.experts_per_token,
        f"with {model.experts_per_token} of {model.experts} experts per token the router has no "
        "choice",
        keys="model.experts and model.experts_per_token",
        remedy="set more experts than a token activates",
    )


def _rewards(config: AllSections) -> Iterator[Conflict]:
    """Verifiers, rewards and tasks that exclude each other."""
    task = config.task
    yield Conflict(
        task.reward is not None and bool(task.rewards),
        "task.reward and task.rewards each define the whole reward",
        keys="task.reward and task.rewards",
        remedy="add task.reward to task.rewards",
    )
    yield Conflict(
        task.verifier == "math" and task.data is None,
        "the built-in tasks have their own verifier, which reads digits",
        keys="task.verifier and task.name",
        remedy="set task.data, or task.verifier=last",
    )
    yield Conflict(
        task.verifier == "any" and task.data is not None,
        "with a data file, a response has one final answer and no list of answers",
        keys="task.verifier and task.data",
        remedy="set task.verifier=last or task.verifier=math",
    )


def _with_critic(config: AllSections) -> Iterator[Conflict]:
    """Settings for group baselines, or that leave the critic unused."""
    if config.advantage.kind != "gae":
        return
    rollout, critic = config.rollout, config.critic
    yield Conflict(
        rollout.dynamic_sampling or rollout.filter_groups,
        "a group without variance contributes nothing to a group baseline, but a policy with a "
        "critic learns from it",
        keys="advantage.kind and rollout.dynamic_sampling or rollout.filter_groups",
        remedy="set both rollout.dynamic_sampling and rollout.filter_groups to false",
    )
    yield Conflict(
        bool(config.advantage.component_weights),
        "gae uses the total reward and does not standardize components",
        keys="advantage.kind and advantage.component_weights",
        remedy="remove the weights, or set advantage.kind=gdpo",
    )
    yield Conflict(
        config.loss.one_term_per_response,
        f"{config.loss.kind} has one term per response, which averages out the critic's token "
        "advantages",
        keys="advantage.kind and loss.kind",
        remedy="use ppo_clip or another token-level loss",
    )
    yield Conflict(
        critic.pretrain_steps >= config.steps,
        f"{critic.pretrain_steps} critic-only steps leave none of the {config.steps} steps to the "
        "policy",
        keys="critic.pretrain_steps and steps",
        remedy="use more steps, or pretrain for fewer",
    )


def _positive_nll(config: AllSections) -> Iterator[Conflict]:
    yield Conflict(
        config.loss.positive_nll > 0 and config.loss.one_term_per_response,
        f"{config.loss.kind} has one term per response, and loss.positive_nll one per token: they "
        "share no denominator",
        keys="loss.positive_nll and loss.kind",
        remedy="use ppo_clip or another token-level loss",
    )


def _without_critic(config: AllSections) -> Iterator[Conflict]:
    """Settings that only the critic uses."""
    own = ("gae_lambda", "gae_alpha", "discount", "whiten")
    changed = [f"advantage.{name}" for name in _changed(config.advantage) if name in own]
    changed += [f"critic.{name}" for name in _changed(config.critic)]
    yield Conflict(
        config.advantage.kind != "gae" and bool(changed),
        f"the advantage {config.advantage.kind} has no critic, so {', '.join(changed)} "
        f"{'has' if len(changed) == 1 else 'have'} no effect",
        keys=f"advantage.kind and {' and '.join(changed)}",
        remedy="set advantage.kind=gae, or remove the critic's settings",
    )


def _changed(section: ConfigSection) -> list[str]:
    """The settings of a section that differ from the defaults."""
    default = type(section)()
    names = type(section).model_fields
    return [name for name in names if getattr(section, name) != getattr(default, name)]
