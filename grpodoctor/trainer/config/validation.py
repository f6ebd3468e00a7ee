"""What a configuration may not say at once, and what it hardly means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from grpodoctor.trainer.algorithms.losses.covariance.clip_cov import ClipCov
from grpodoctor.trainer.algorithms.losses.covariance.kl_cov import KlCov
from grpodoctor.trainer.algorithms.losses.sequence_level.gspo import Gspo
from grpodoctor.trainer.algorithms.losses.sequence_level.gspo_token import GspoToken
from grpodoctor.trainer.algorithms.losses.token_level.ppo_clip import PpoClip

if TYPE_CHECKING:
    from grpodoctor.trainer.config.train_config import TrainConfig
    from grpodoctor.trainer.section import Section

_WIDE = 0.05
"""A clip beyond it does not bind on responses: ten times the widest that is known to work there."""

_FAR = 2.0
"""Tokens that generalised advantage estimation looks ahead, below which the critic is nearly all:
1 / (1 - lambda)."""


class Contradiction(NamedTuple):
    """Settings that exclude each other."""

    holds: bool
    """Whether the configuration has it."""
    what: str
    keys: str
    remedy: str


def contradictions(config: TrainConfig) -> Iterator[Contradiction]:
    """All that hold in a configuration."""
    families = (
        _corrected_twice,
        _drawn_twice,
        _misplaced_kl,
        _clashing_sizes,
        _engine_of_another_kind,
        _judged_twice,
        _explored_twice,
        _weighed_in_vain,
        _imitated,
        _with_a_critic,
        _without_a_critic,
        _of_experts,
    )
    for family in families:
        yield from (each for each in family(config) if each.holds)


def doubts(config: TrainConfig) -> list[str]:
    """What is allowed and hardly meant, a line each."""
    every = (
        *(_wide_clip(config), _short_sighted(config), _rounded_away(config), _unweighed(config)),
        *(*_mixed_exploration(config), *_without_effect(config)),
    )
    return [line for holds, line in every if holds]


def _without_effect(config: TrainConfig) -> Iterator[tuple[bool, str]]:
    """Settings that wait for another one."""
    yield (
        config.rollout.refill == "missing" and not config.rollout.dynamic_sampling,
        "rollout.refill is how dynamic sampling refills, and rollout.dynamic_sampling is off",
    )
    yield (
        config.overlong.only_correct and config.overlong.kind != "soft-punishment",
        "overlong.only_correct is about the soft punishment, and overlong.kind is not that",
    )


def _rounded_away(config: TrainConfig) -> tuple[bool, str]:
    model = config.model
    return model.dtype == "bfloat16" and model.name != "builtin" and not model.lora_rank, (
        "updates smaller than about 1/256 of a weight are rounded away in bfloat16 weights: "
        "model.dtype=float32 with model.compute=bfloat16 keeps them, and so do low-rank adapters"
    )


def _unweighed(config: TrainConfig) -> tuple[bool, str]:
    weighed = any(term.weight != 1 for term in config.task.rewards.values())
    return config.advantage.kind == "gdpo" and weighed, (
        "gdpo weighs the components of the reward by advantage.component_weights alone: the "
        "weights of task.rewards have no part in it"
    )


def _wide_clip(config: TrainConfig) -> tuple[bool, str]:
    loss = config.loss
    wide = isinstance(loss, Gspo | GspoToken) and max(loss.clip_low, loss.clip_high) > _WIDE
    return wide, (
        f"loss.clip_low or loss.clip_high is as wide as for single tokens: {loss.kind} clips "
        "the ratio of whole responses, whose paper uses 0.0003 and 0.0004"
    )


def _short_sighted(config: TrainConfig) -> tuple[bool, str]:
    advantage, longest = config.advantage, config.rollout.max_length
    if advantage.kind != "gae" or advantage.gae_alpha is None:
        return False, ""
    reach = advantage.gae_alpha * longest
    return reach < _FAR, (
        f"advantage.gae_alpha={advantage.gae_alpha:g} is meant for longer responses: with the "
        f"longest, {longest} tokens, lambda is {max(0.0, 1 - 1 / reach):.2g}, and the critic is "
        "believed a token or two ahead"
    )


def _mixed_exploration(config: TrainConfig) -> Iterator[tuple[bool, str]]:
    """What is published side by side, or judged nowhere, and pulls on the same entropy."""
    loss, rare = config.loss, config.reweighting.alpha or config.reweighting.lopti_threshold
    higher = isinstance(loss, PpoClip | ClipCov) and loss.clip_high > loss.clip_low
    bonus = loss.entropy_coefficient > 0 or loss.entropy_target is not None
    yield (
        higher and (bonus or isinstance(loss, ClipCov)),
        "loss.clip_high above loss.clip_low keeps entropy up, and so does "
        f"{'an entropy bonus' if bonus else loss.kind}: "
        "if the entropy runs away, take one of them back",
    )
    yield (
        rare is not None and (higher or isinstance(loss, ClipCov | KlCov)),
        "reweighting.alpha and reweighting.lopti_threshold favour likely tokens, "
        f"{loss.kind} here the unlikely ones: nobody has shown what both do together",
    )


def _corrected_twice(config: TrainConfig) -> Iterator[Contradiction]:
    """Corrections that another setting makes pointless or repeats."""
    yield Contradiction(
        config.correction.kind != "none" and config.engine.old_logprobs == "sampler",
        f"{config.correction.kind} corrects from the sampler to the learner, which a ratio "
        "against the sampler's own log-probabilities does already",
        "correction.kind and engine.old_logprobs",
        "set engine.old_logprobs=recompute",
    )
    yield Contradiction(
        config.correction.kind != "none" and config.loss.anchored_on_sampler,
        f"the ratio of {config.loss.kind} goes to the sampler: {config.correction.kind} would "
        "correct the same gap twice",
        "correction.kind and loss.kind",
        "set correction.kind=none",
    )
    yield Contradiction(
        config.correction.kind in ("tis_token", "mis_token", "icepop", "geo_mask")
        and config.loss.one_term_per_response,
        f"{config.loss.kind} has one term a response, which the weights of single tokens in "
        f"{config.correction.kind} would only average out",
        "correction.kind and loss.kind",
        "use tis_sequence or mis_sequence, or the loss gspo_token",
    )
    yield Contradiction(
        config.correction.kind in ("mis_sequence", "geo_mask")
        and config.loss.off_policy_limit is not None,
        f"{config.correction.kind} and loss.off_policy_limit both leave out whole responses",
        "correction.kind and loss.off_policy_limit",
        "use one of them",
    )
    yield Contradiction(
        config.correction.kind == "icepop" and config.correction.floor == 0,
        "without a floor icepop is mis_token",
        "correction.kind and correction.floor",
        "set correction.floor=0.5 and correction.cap=5, as its paper does",
    )


def _explored_twice(config: TrainConfig) -> Iterator[Contradiction]:
    """Remedies for the entropy: one is enough, and two cannot be told apart."""
    loss, share = config.loss, config.reweighting.forking_share
    by_covariance = isinstance(loss, ClipCov | KlCov)
    bonus = loss.entropy_coefficient > 0 or loss.entropy_target is not None
    yield Contradiction(
        loss.entropy_target is not None and loss.entropy_coefficient != 0,
        "the entropy coefficient cannot both be fixed and follow the entropy",
        "loss.entropy_target and loss.entropy_coefficient",
        "set loss.entropy_coefficient=0, and loss.entropy_coefficient_min for where it begins",
    )
    yield Contradiction(
        by_covariance and bonus,
        f"{loss.kind} and an entropy bonus both hold the entropy up",
        "loss.kind and loss.entropy_coefficient",
        "set loss.entropy_coefficient=0, without loss.entropy_target",
    )
    yield Contradiction(
        share is not None and (by_covariance or bonus),
        f"{loss.kind if by_covariance else 'an entropy bonus'} and forking tokens both choose "
        "where the policy explores",
        "reweighting.forking_share and the loss",
        "leave reweighting.forking_share out",
    )


def _weighed_in_vain(config: TrainConfig) -> Iterator[Contradiction]:
    """Reweightings that have nothing to weigh, or that undo each other."""
    active, share = config.reweighting.active, config.reweighting.forking_share
    yield Contradiction(
        bool(active) and config.loss.one_term_per_response,
        f"{config.loss.kind} has one term a response, so that {' and '.join(active)} would find no "
        "single tokens to weigh",
        "reweighting and loss.kind",
        "use a loss of single tokens, such as ppo_clip or gspo_token",
    )
    yield Contradiction(
        share is not None and len(active) > 1,
        "forking tokens leave out the likely tokens, which the other reweightings favour",
        "reweighting.forking_share and reweighting.alpha or reweighting.lopti_threshold",
        "use one of them",
    )
    yield Contradiction(
        config.advantage.kind == "dcpo_sas" and config.rollout.dynamic_sampling,
        "dcpo_sas learns from groups without variance, which dynamic sampling throws away",
        "advantage.kind and rollout.dynamic_sampling",
        "set rollout.dynamic_sampling=false",
    )


def _drawn_twice(config: TrainConfig) -> Iterator[Contradiction]:
    """What is done about groups without variance: one thing is enough."""
    rollout = config.rollout
    yield Contradiction(
        rollout.filter_groups and rollout.dynamic_sampling,
        "filtering leaves groups without variance out, and dynamic sampling replaces them: they "
        "serve the same purpose",
        "rollout.filter_groups and rollout.dynamic_sampling",
        "use one of them",
    )
    yield Contradiction(
        rollout.filter_groups and config.advantage.kind == "dcpo_sas",
        "dcpo_sas learns from groups without variance, which filtering leaves out",
        "advantage.kind and rollout.filter_groups",
        "set rollout.filter_groups=false",
    )


def _misplaced_kl(config: TrainConfig) -> Iterator[Contradiction]:
    """What a KL penalty in the reward does not go with."""
    loss = config.loss
    in_reward = loss.kl_placement == "reward"
    yield Contradiction(
        in_reward and loss.kl_estimator != "k1",
        f"{loss.kl_estimator} is no estimator for the reward: it is never negative, so that it "
        "would punish a response for tokens that became less likely, too",
        "loss.kl_placement and loss.kl_estimator",
        "set loss.kl_estimator=k1, or loss.kl_placement=loss",
    )
    yield Contradiction(
        in_reward and loss.kl_coefficient > 0 and config.advantage.kind == "gdpo",
        "gdpo standardises the components of the reward, and a penalty in the reward is none",
        "loss.kl_placement and advantage.kind",
        "set loss.kl_placement=loss",
    )
    yield Contradiction(
        in_reward and loss.kl_coefficient > 0 and config.advantage.kind == "dcpo_sas",
        "dcpo_sas compares with earlier rewards, and a KL penalty in those is that of another "
        "policy",
        "loss.kl_placement and advantage.kind",
        "set loss.kl_placement=loss",
    )


def _clashing_sizes(config: TrainConfig) -> Iterator[Contradiction]:
    """Numbers that do not fit each other."""
    batches, left_over = divmod(config.optimizer.updates_per_batch, config.optimizer.epochs)
    yield Contradiction(
        left_over != 0,
        f"{config.optimizer.updates_per_batch} updates do not divide into "
        f"{config.optimizer.epochs} epochs",
        "optimizer.updates_per_batch and optimizer.epochs",
        "make the first a multiple of the second",
    )
    yield Contradiction(
        batches > config.rollout.prompts_per_batch,
        f"{batches} updates per epoch want more prompts than "
        f"the {config.rollout.prompts_per_batch} of a batch: a prompt's responses stay together",
        "optimizer.updates_per_batch and rollout.prompts_per_batch",
        "use fewer updates, more epochs or more prompts",
    )
    yield Contradiction(
        config.overlong.kind == "soft-punishment"
        and config.overlong.buffer > config.rollout.max_length,
        f"a buffer of {config.overlong.buffer} tokens is longer than the responses",
        "overlong.buffer and rollout.max_length",
        f"use at most {config.rollout.max_length}",
    )
    yield Contradiction(
        config.difficulty.low > config.difficulty.high,
        f"no pass rate lies between {config.difficulty.low} and {config.difficulty.high}",
        "difficulty.low and difficulty.high",
        "set the first below the second",
    )
    yield Contradiction(
        config.loss.entropy_coefficient_min > config.loss.entropy_coefficient_max,
        "the least entropy coefficient is above the largest",
        "loss.entropy_coefficient_min and loss.entropy_coefficient_max",
        "set the first below the second",
    )
    yield Contradiction(
        config.model.width % (2 * config.model.heads) != 0,
        f"{config.model.heads} heads of even size do not fit a width of {config.model.width}",
        "model.heads and model.width",
        "make the width a multiple of twice the heads",
    )


def _engine_of_another_kind(config: TrainConfig) -> Iterator[Contradiction]:
    """What only one kind of engine has."""
    engine = config.engine
    yield Contradiction(
        (engine.kind == "server") != bool(engine.url),
        "a server and its address go together",
        "engine.kind and engine.url",
        "set engine.kind=server and engine.url=http://HOST:PORT, or neither",
    )
    yield Contradiction(
        engine.kind == "server" and engine.precision != "learner",
        "the precision of a server is its own",
        "engine.kind and engine.precision",
        "start the server with the --dtype that you want",
    )
    yield Contradiction(
        engine.kind == "vllm" and engine.precision in ("int8", "int4"),
        f"{engine.precision} is the built-in engine's imitation, which vLLM has no use for",
        "engine.kind and engine.precision",
        "use learner or bf16",
    )


def _of_experts(config: TrainConfig) -> Iterator[Contradiction]:
    """What is asked of a mixture of experts, and answers to the same disease."""
    replay, loss, model = config.engine.routing_replay, config.loss, config.model
    asked = "loss.kind" if loss.needs_router_shift else "engine.routing_replay"
    yield Contradiction(
        replay != "none" and loss.kind in ("gspo", "gspo_token", "rspo"),
        f"{replay} fixes the experts of each token, and {loss.kind} is the answer to experts that "
        "change: one of them is enough",
        "engine.routing_replay and loss.kind",
        "set engine.routing_replay=none, or another loss",
    )
    yield Contradiction(
        replay == "R3" and config.engine.kind != "builtin",
        "R3 replays the experts of the engine that samples, and vLLM's are not read",
        "engine.routing_replay and engine.kind",
        "use R2, which takes the learner's own",
    )
    yield Contradiction(
        (replay != "none" or loss.needs_router_shift)
        and model.name == "builtin"
        and model.experts == 0,
        "the built-in model is dense and has no routers",
        f"{asked} and model.experts",
        "set model.experts=8",
    )
    yield Contradiction(
        0 < model.experts <= model.experts_per_token,
        f"with {model.experts_per_token} of {model.experts} experts a token there is no choice",
        "model.experts and model.experts_per_token",
        "have more experts than a token activates",
    )


def _judged_twice(config: TrainConfig) -> Iterator[Contradiction]:
    """Verifiers, rewards and tasks that do not go together."""
    task = config.task
    yield Contradiction(
        task.reward is not None and bool(task.rewards),
        "a reward of its own and several with weights are both the whole reward",
        "task.reward and task.rewards",
        "make the first one of the second",
    )
    yield Contradiction(
        task.verifier == "math" and task.data is None,
        "the built-in tasks have a verifier of their own, which reads digits",
        "task.verifier and task.name",
        "give task.data, or leave task.verifier=last",
    )
    yield Contradiction(
        task.verifier == "any" and task.data is not None,
        "a file's responses have one final answer, and no list to look for another in",
        "task.verifier and task.data",
        "set task.verifier=last or task.verifier=math",
    )


def _with_a_critic(config: TrainConfig) -> Iterator[Contradiction]:
    """What belongs to baselines of groups, or leaves the critic no use."""
    if config.advantage.kind != "gae":
        return
    rollout = config.rollout
    yield Contradiction(
        rollout.dynamic_sampling or rollout.filter_groups,
        "a group without variance teaches nothing to a group's baseline, but a policy with a "
        "critic learns from it",
        "advantage.kind and rollout.dynamic_sampling or rollout.filter_groups",
        "set both of rollout.dynamic_sampling and rollout.filter_groups to false",
    )
    yield Contradiction(
        bool(config.advantage.component_weights),
        "gae takes the total reward: it standardises no components",
        "advantage.kind and advantage.component_weights",
        "leave the weights out, or set advantage.kind=gdpo",
    )
    yield Contradiction(
        config.loss.one_term_per_response,
        f"{config.loss.kind} has one term a response, which would average out what the critic "
        "says of single tokens",
        "advantage.kind and loss.kind",
        "use ppo_clip or another loss of single tokens",
    )
    yield Contradiction(
        config.critic.pretrain_steps >= config.steps,
        f"{config.critic.pretrain_steps} steps for the critic alone leave the policy none of "
        f"{config.steps}",
        "critic.pretrain_steps and steps",
        "take more steps, or pretrain for fewer",
    )


def _imitated(config: TrainConfig) -> Iterator[Contradiction]:
    """What the likelihood of correct responses does not go with."""
    yield Contradiction(
        config.loss.positive_nll > 0 and config.loss.one_term_per_response,
        f"{config.loss.kind} has one term a response and the likelihood of correct responses one "
        "a token: there is no common measure",
        "loss.positive_nll and loss.kind",
        "use ppo_clip or another loss of single tokens",
    )


def _without_a_critic(config: TrainConfig) -> Iterator[Contradiction]:
    """What only a critic makes use of."""
    own = ("gae_lambda", "gae_alpha", "discount", "whiten")
    changed = [f"advantage.{name}" for name in _changed(config.advantage) if name in own]
    changed += [f"critic.{name}" for name in _changed(config.critic)]
    yield Contradiction(
        config.advantage.kind != "gae" and bool(changed),
        f"the advantage {config.advantage.kind} has no critic, to which {', '.join(changed)} "
        f"{'belongs' if len(changed) == 1 else 'belong'}",
        f"advantage.kind and {' and '.join(changed)}",
        "set advantage.kind=gae, or leave out what belongs to the critic",
    )


def _changed(section: Section) -> list[str]:
    """The settings of a section that are not the default ones."""
    default = type(section)()
    names = type(section).model_fields
    return [name for name in names if getattr(section, name) != getattr(default, name)]
