"""The framework and the training method that the command of a launch script names.

`swift rlhf --rlhf_type dpo`, `python -m verl.trainer.main_ppo` and `trl sft` say both, whatever
their options are. The options of a command decide only if its program has a name that several
frameworks use, such as `train.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

FRAMEWORK_KEY, METHOD_KEY = "launch.framework", "launch.method"
"""Keys of what the command names, among the settings of the script."""
LIKELY_FRAMEWORK_KEY = "launch.likely_framework"
"""The same for a program whose name several frameworks use."""

DISTILLATION, REWARD_MODEL = "distillation", "a reward model"
SFT, PREFERENCES = "supervised fine-tuning (SFT)", "preference optimization such as DPO"
"""Training methods other than reinforcement learning with a reward, as words of a sentence."""

RL = "reinforcement learning"


@dataclass(frozen=True, slots=True)
class Launch:
    """What a command names."""

    framework: str
    method: str = ""
    """The training method; empty if the command does not say."""
    is_certain: bool = True
    """Whether no other framework has a program of this name."""


_SUBCOMMANDS = {"grpo": RL, "rloo": RL, "dpo": PREFERENCES, "kto": PREFERENCES, "sft": SFT,
                "gkd": DISTILLATION, "reward": REWARD_MODEL}  # fmt: skip

_PAIRS: tuple[tuple[str, Launch], ...] = (
    *((rf"(\S*/)?trl {name}", Launch("trl", method)) for name, method in _SUBCOMMANDS.items()),
    (r"(\S*/)?(swift|megatron) rlhf", Launch("ms-swift")),
    (r"(\S*/)?(swift|megatron) (sft|pt)", Launch("ms-swift", SFT)),
    (r"(\S*/)?rl @\S*", Launch("prime-rl", RL)),
    (r"(\S*/)?sft @\S*", Launch("prime-rl", SFT)),
)
"""A program with its first argument. The patterns are compiled when a script is read."""


def _module(path: str) -> str:
    """A pattern of a module, as `package.module` or as the end of its path; `/` stands for both."""
    return rf"(\S*/)?(?:{path.replace('/', '[./]')})(\.py)?"


_PROGRAMS: tuple[tuple[str, Launch], ...] = tuple(
    (_module(path), launch)
    for path, launch in (
        (r"verl/trainer/main_ppo\w*", Launch("verl", RL)),
        (r"verl/trainer/(fsdp_)?sft_trainer\w*", Launch("verl", SFT)),
        (r"recipe/(?!gkd)\w+/main_\w+", Launch("verl", RL)),
        (r"recipe/gkd/main_gkd", Launch("verl", DISTILLATION)),
        (r"openrlhf/cli/train_ppo\w*", Launch("openrlhf", RL)),
        (r"openrlhf/cli/train_(dpo|kto)", Launch("openrlhf", PREFERENCES)),
        (r"openrlhf/cli/train_sft", Launch("openrlhf", SFT)),
        (r"openrlhf/cli/train_p?rm", Launch("openrlhf", REWARD_MODEL)),
        (r"openrlhf/cli/train_kd", Launch("openrlhf", DISTILLATION)),
        (r"skyrl(_train|/train)/entrypoints/main_\w+", Launch("skyrl", RL)),
        (r"skyrl(_train|/train)/main_sft", Launch("skyrl", SFT)),
        (r"areal/(launcher|infra)/\S+", Launch("areal")),
        (r"tinker_cookbook/recipes/\S*(sl_basic|sl_loop|chat_sl)\S*",
         Launch("tinker-cookbook", SFT)),
        (r"tinker_cookbook/recipes/preference\S*", Launch("tinker-cookbook", PREFERENCES)),
        (r"tinker_cookbook/recipes/\S*(distillation|sdft)\S*",
         Launch("tinker-cookbook", DISTILLATION)),
        (r"tinker_cookbook/recipes/\S*rl\S*", Launch("tinker-cookbook", RL)),
        (r"open_instruct/grpo\w*", Launch("open-instruct", RL)),
        (r"open_instruct/finetune\w*", Launch("open-instruct", SFT)),
        (r"open_instruct/dpo\w*", Launch("open-instruct", PREFERENCES)),
        (r"open_instruct/reward_modeling", Launch("open-instruct", REWARD_MODEL)),
        (r"start_(rlvr|agentic)\w*_pipeline", Launch("roll", RL)),
        (r"start_dpo_pipeline", Launch("roll", PREFERENCES)),
        (r"start_sft_pipeline", Launch("roll", SFT)),
        (r"start_\w*distill_pipeline", Launch("roll", DISTILLATION)),
        (r"swift/cli/rlhf", Launch("ms-swift")),
        (r"swift/cli/(sft|pt)", Launch("ms-swift", SFT)),
        (r"trl/scripts/(grpo|rloo)|open_r1/grpo", Launch("trl", RL)),
        (r"trl/scripts/sft|open_r1/sft", Launch("trl", SFT)),
        (r"trl/scripts/(dpo|kto)", Launch("trl", PREFERENCES)),
        (r"run_grpo\w*", Launch("nemo-rl", RL, is_certain=False)),
        (r"run_sft", Launch("nemo-rl", SFT, is_certain=False)),
        (r"run_dpo", Launch("nemo-rl", PREFERENCES, is_certain=False)),
        (r"run_distillation\w*", Launch("nemo-rl", DISTILLATION, is_certain=False)),
        (r"train(_async)?", Launch("slime", "", is_certain=False)),
    )
)  # fmt: skip
"""A module or the file of a program, alone."""


def launch_of(commands: Iterable[Sequence[str]]) -> Launch | None:
    """The first command that starts a training of a known framework; None without one.

    A program whose name several frameworks use counts only if no other command is certain.

    Args:
        commands: the words of each command.
    """
    launches = [launch for words in commands if (launch := _launch(words)) is not None]
    certain = (launch for launch in launches if launch.is_certain)
    return next(certain, launches[0] if launches else None)


def _launch(words: Sequence[str]) -> Launch | None:
    for table, names in ((_PAIRS, [" ".join(pair) for pair in pairwise(words)]),
                         (_PROGRAMS, words)):  # fmt: skip
        for name in names:
            for pattern, launch in table:
                if re.fullmatch(pattern, name):
                    return launch
    return None
