"""Trials of wrong rewards; most are for detection, because a person must repair the reward."""

from grpodoctor.trials.trial import Arm, Treated, Trial


def _reward(name: str) -> str:
    return f"task.reward=grpodoctor.trials.rewards:{name}"


_REPAIRED = (Treated(remedy="recheck-reward", settings=(_reward("good"),)),)
_CONTROL = Arm(settings=(_reward("good"),))

TRIALS = (
    Trial(
        name="reward-negated",
        question="Is a reward with the wrong sign reported?",
        disease=Arm(settings=(_reward("flipped"),)),
        control=_CONTROL,
        rules=("REW012",),
        remedies=_REPAIRED,
    ),
    Trial(
        name="reward-constant",
        question="Is a reward that is the same for every response reported?",
        disease=Arm(settings=(_reward("one"),)),
        control=_CONTROL,
        rules=("REW004", "GRP004"),
        remedies=_REPAIRED,
    ),
    Trial(
        name="reward-random",
        question="Is a reward that depends on a hash of the text reported?",
        disease=Arm(settings=(_reward("noise"),)),
        control=_CONTROL,
        rules=("REW001",),
        steps=200,
        remedies=_REPAIRED,
    ),
    Trial(
        name="reward-hacked",
        question="Is a verifier that accepts any of several answers reported before the accuracy "
        "is lost?",
        settings=("task.hedge_rate=0.5",),
        disease=Arm(settings=("task.verifier=any",)),
        rules=("REW005",),
        misses="`REW005` requires an accuracy that falls. In the run that it misses, it stays at "
        "its low start.",
        steps=150,
        remedies=(Treated(remedy="recheck-reward", settings=("task.verifier=last",)),),
    ),
    Trial(
        name="reward-is-length",
        question="Is a reward that pays for length reported?",
        disease=Arm(settings=(_reward("length_only"),)),
        control=_CONTROL,
        rules=("REW013",),
        remedies=_REPAIRED,
    ),
    Trial(
        name="reward-scale",
        question="Do scores whose scale differs between prompts slow down a run without division "
        "by the standard deviation, and do ranks (GOPO) or the division help?",
        disease=Arm(settings=(_reward("judge"), "advantage.kind=centred")),
        control=_CONTROL,
        rules=(),
        remedies=(
            Treated(remedy="gopo"),
            Treated(
                remedy="recheck-reward",
                variant="one scale for all prompts",
                settings=(_reward("good"),),
            ),
        ),
    ),
)
