"""Causes in lengths, entropy, the optimizer and the reference."""

from __future__ import annotations

import math
from random import Random

from tests.benchmarks.planted_runs.parts import Sizes
from tests.benchmarks.planted_runs.plants import FALL, at, cause, each, onset, together
from tests.benchmarks.planted_runs.simulation import Change, Simulation

_TOO_FAR = ("OPT006", "CLP001", "KLD001", "CFG050")
_UPDATE_SIGNS = ("clipped old_kl", "kl", "clipped learning_rate")
_TOO_SMALL = ("OPT005", "CFG051", "CFG052", "OPT001", "OPT007")


def _several_updates(random: Random, sizes: Sizes) -> None:
    sizes.updates = random.choice((2, 4, 8))


@cause("limit-lowered", ("LEN002", "LEN003", "LEN007"), ("truncated", "length max_length"))
def _limit_lowered(random: Random, run: Simulation) -> Change:
    """After a restart, the limit is below the usual length."""
    run.learner.speed *= 0.7
    first = onset(random, run)

    def lower(run: Simulation, number: int) -> None:
        if number == first:
            usual = math.exp(run.policy.log_length)
            run.sizes.limit = 10 * round(random.uniform(0.05, 0.075) * usual)

    return lower


@cause("limit-too-low", ("LEN002", "LEN003", "CFG025", "LEN007"),
       ("truncated", "length max_length"))  # fmt: skip
def _limit_too_low(random: Random, run: Simulation) -> None:
    """Most responses need more tokens than they have."""
    run.policy.log_length = math.log(run.sizes.limit * random.uniform(0.9, 1.6))
    run.task.length_elasticity = 0.05


@cause("length-explodes", ("LEN006", "LEN002", "LEN003", "LEN004", "LEN008"), ("length",))
def _length_explodes(random: Random, run: Simulation) -> Change:
    """From a step on, every update makes responses longer."""
    first = onset(random, run, 0.2, 0.4)
    rest = max(run.sizes.steps - first, 1)
    return at(first, learner__length_push=random.uniform(1.8, 3.5) / rest)


@cause("end-token-lost", ("LEN007", "LEN002", "LEN006"), ("truncated", "length"))
def _end_token_lost(random: Random, run: Simulation) -> Change:
    """After a restart, the engine does not stop at the end token."""
    return at(onset(random, run), policy__endless=random.uniform(0.9, 1.0))


@cause("no-end-token", ("LEN007", "LEN002", "LEN003", "CFG024"), ("truncated", "length max_length"))
def _no_end_token(random: Random, run: Simulation) -> None:
    """The template has another end token than the engine."""
    run.policy.endless = random.uniform(0.95, 1.0)


@cause("wrong-grow-longer", ("LEN001", "LEN004"), ("length_correct length_incorrect",),
       steps=(80, 300))  # fmt: skip
def _wrong_grow_longer(random: Random, run: Simulation) -> Change:
    """The mean over each response's tokens makes long wrong responses cheap."""
    first = onset(random, run, 0.1, 0.3)
    run.policy.log_length = math.log(run.sizes.limit * 0.08)
    run.learner.speed *= 0.4
    return at(first, learner__length_bias=random.uniform(0.8, 1.3) / (run.sizes.steps - first))


@cause("loops", ("LEN008", "LEN006", "LEN002", "LEN003"), ("repetition", "truncated"))
def _loops(random: Random, run: Simulation) -> Change:
    """The policy drifts into loops that run to the limit."""
    first = onset(random, run, 0.2, 0.4)
    rest = max(run.sizes.steps - first, 1)
    most = random.uniform(0.5, 0.9)

    def loop(run: Simulation, number: int) -> None:
        if number >= first:
            run.policy.loops = min(most * (number - first) / (0.7 * rest), most)

    return loop


@cause("entropy-bonus", ("ENT002", "ENT006", "CFG056"), ("entropy",))
def _entropy_bonus(random: Random, run: Simulation) -> Change:
    """The entropy bonus outweighs the reward."""
    first = onset(random, run, 0.0, 0.4)
    rest = max(run.sizes.steps - first, 1)
    return at(max(first, 1), learner__entropy_push=random.uniform(3, 6) / rest)


@cause("entropy-collapse", ("ENT001", "ENT003", "ENT005", "CFG053"), ("entropy",))
def _entropy_collapse(random: Random, run: Simulation) -> Change:
    """A sign error or positive advantages alone sharpen the policy until groups are equal."""
    first = onset(random, run, 0.0, 0.3)
    rest = max(run.sizes.steps - first, 1)
    run.learner.speed *= 0.3
    return at(max(first, 1), learner__entropy_push=-random.uniform(5, 8) / rest)


@cause("lr-too-high", (*_TOO_FAR, "KLD002"), _UPDATE_SIGNS, logged="kl", prepare=_several_updates)
def _lr_too_high(random: Random, run: Simulation) -> None:
    """A learning rate of pretraining."""
    run.learner.rate = random.uniform(25, 100)
    run.sizes.learning_rate = random.choice((1e-6, 5e-6, 1e-5))


@cause("lr-jumps", (*_TOO_FAR, "KLD002", "OPT002", "OPT004"), (*_UPDATE_SIGNS, "learning_rate"),
       logged="kl", prepare=_several_updates)  # fmt: skip
def _lr_jumps(random: Random, run: Simulation) -> Change:
    """A restart with another schedule multiplies the learning rate."""
    return at(onset(random, run), learner__rate=random.uniform(25, 100))


@cause("many-updates", (*_TOO_FAR, "KLD002"), ("clipped old_kl", "clipped kl"))
def _many_updates(random: Random, run: Simulation) -> None:
    """Dozens of updates on each batch."""
    run.sizes.updates = random.choice((32, 64, 128))
    run.learner.step_size = random.uniform(0.12, 0.25)
    run.learner.damage = 2.0


@cause("lr-ends", ("OPT007", "OPT005", "CFG051", "OPT001"), ("learning_rate",))
def _lr_ends(random: Random, run: Simulation) -> Change:
    """The schedule was planned for fewer steps."""
    first = onset(random, run)

    def decay(run: Simulation, number: int) -> None:
        run.learner.rate = max(1 - number / first, 0.0)

    return decay


@cause("lr-too-low", _TOO_SMALL, ("learning_rate entropy kl", "learning_rate entropy length"),
       logged="kl heldout", steps=(120, 400))  # fmt: skip
def _lr_too_low(random: Random, run: Simulation) -> None:
    """A learning rate a thousand times too low."""
    run.learner.rate = 10 ** -random.uniform(2.5, 3.5)


@cause("updates-lost", _TOO_SMALL, ("learning_rate entropy kl", "learning_rate entropy length"),
       logged="kl heldout", steps=(120, 400))  # fmt: skip
def _updates_lost(random: Random, run: Simulation) -> None:
    """Updates are smaller than the rounding of bf16 weights, or a clip norm is tiny."""
    run.learner.lost = 1 - 10 ** -random.uniform(2.5, 3.5)


@cause("loss-masked", ("OPT001", "OPT005", "DAT005"), ("grad_norm mixed", "grad_norm zero_variance",
       "grad_norm max_advantage"))  # fmt: skip
def _loss_masked(random: Random, run: Simulation) -> Change:
    """From a step on, no token of a response counts in the loss."""
    return at(onset(random, run, 0.0, 0.5) + 1, learner__masked=True)


@cause("nan", ("OPT003",), ("loss",), without="prime-rl")
def _nan(random: Random, run: Simulation) -> Change:
    """From a step on, loss and gradient are not finite, and no update succeeds."""
    return at(onset(random, run), learner__broken=True)


@cause("optimizer-state-lost", (*_TOO_FAR, *FALL, "KLD002", "OPT002", "OPT004", "SYN004", "SYN009"),
       ("grad_norm reward",), prepare=_several_updates)  # fmt: skip
def _optimizer_state_lost(random: Random, run: Simulation) -> Change:
    """A resumed run without moments and warm-up takes a few huge steps."""
    first, kick = onset(random, run), random.uniform(0.6, 1.2)
    count = random.randint(2, 6)

    def kicked(run: Simulation, number: int) -> None:
        if first <= number < first + count:
            run.learner.kick = kick

    return kicked


@cause("advantages-raw", ("GRP005", "GRP010"), ("max_advantage min_advantage",))
def _advantages_raw(random: Random, run: Simulation) -> None:
    """No baseline is subtracted from the rewards."""
    run.learner.advantages = "raw"
    run.learner.speed *= 0.5


@cause("advantages-flipped", (*FALL, "REW001", "REW003", "REW012"), logged="heldout")
def _advantages_flipped(random: Random, run: Simulation) -> None:
    """The sign of the advantages is wrong."""
    run.learner.advantages = "flipped"
    run.policy.skill = random.uniform(0.0, 1.5)


@cause("other-reference", ("KLD003",), ("kl",), logged="kl")
def _other_reference(random: Random, run: Simulation) -> None:
    """The reference is another model than the starting policy."""
    run.learner.reference_gap = random.uniform(0.3, 2.0)


@cause("policy-runs-away", ("KLD002", "KLD001", "OPT006", "CLP001"), ("kl",), logged="kl")
def _policy_runs_away(random: Random, run: Simulation) -> Change:
    """Updates are moderately too large from a step on, until the policy is far from its start."""
    first = onset(random, run, 0.2, 0.4)
    rest = max(run.sizes.steps - first, 1)
    lost = random.uniform(3, 5) / rest

    def run_away(run: Simulation) -> None:
        run.learner.rate = 0.15 / run.learner.step_size
        run.learner.speed = 0.0
        run.policy.skill -= lost

    return each(first, run_away)


@cause("kl-pushes-away", ("KLD004", "KLD002", "KLD001"), ("kl",), logged="kl")
def _kl_pushes_away(random: Random, run: Simulation) -> Change:
    """The KL term has the wrong sign, so that the policy leaves the reference ever faster."""
    most = random.uniform(3, 12)
    factor = (most / 1e-3) ** (1 / run.sizes.steps)
    lost = random.uniform(6, 9) / run.sizes.steps

    def push(run: Simulation) -> None:
        run.reference_moved = max(run.reference_moved, 1e-3) * factor
        run.policy.skill -= lost * (run.reference_moved > 0.3)

    return each(1, push)


@cause("weights-reset", ("SYN009", "SYN010", *FALL), ("reward",))
def _weights_reset(random: Random, run: Simulation) -> Change:
    """A restart loads the starting checkpoint."""
    first = onset(random, run, 0.5, 0.7)
    run.learner.speed = random.uniform(5, 8) / run.sizes.steps
    run.policy.skill = random.uniform(-2.0, -1.0)

    def reset(run: Simulation, number: int) -> None:
        if number == first:
            run.policy = run.start.copy()
            run.reference_moved = 0.0

    return reset


@cause("experts-overloaded", ("MOE003", "MOE004"), ("load_violation",), optional="experts")
def _experts_overloaded(random: Random, run: Simulation) -> Change:
    """The router sends ever more tokens to one expert."""
    first = onset(random, run, 0.2, 0.4)
    rest = max(run.sizes.steps - first, 1)
    most = random.uniform(8, 25)

    def load(run: Simulation, number: int) -> None:
        if number >= first:
            run.engine.load = 1.6 + (most - 1.6) * min(1.3 * (number - first) / rest, 1.0)

    return load


@cause("lr-jump-and-truncation", (*_TOO_FAR, "KLD002", "OPT002", "LEN002", "LEN003", "LEN007"),
       ("truncated clipped",), logged="kl", prepare=_several_updates)  # fmt: skip
def _lr_jump_and_truncation(random: Random, run: Simulation) -> Change:
    """Two causes: a low limit from the start, and an excessive learning rate later."""
    run.policy.log_length = math.log(run.sizes.limit * random.uniform(0.8, 1.2))
    return at(onset(random, run), learner__rate=random.uniform(25, 80))


@cause("entropy-bonus-and-rejects", ("ENT002", "ENT006", "CFG056", *FALL, "GRP002", "REW004"),
       ("entropy",))  # fmt: skip
def _entropy_bonus_and_rejects(random: Random, run: Simulation) -> Change:
    """Two causes: an entropy bonus from the start, and a verifier that fails later."""
    return together(
        at(1, learner__entropy_push=random.uniform(3, 5) / run.sizes.steps),
        at(onset(random, run), rewards__rejects=0.97),
    )
