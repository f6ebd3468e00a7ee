"""One adapter for `train` and `preflight`: the same functions work, or fail, in both."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grpodoctor.errors import DataError
from grpodoctor.preflight.inputs.prompt_rows import PromptRow, read_prompt_table
from grpodoctor.preflight.inputs.request import PreflightRequest
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.run import _open_reward
from grpodoctor.trainer.config.sections import TaskConfig
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.data.loading import build_task
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.rewards.reward_worker import LoadedReward
from grpodoctor.trainer.rewards.rewarded_task import RewardedTask
from grpodoctor.trainer.rewards.user_reward import UserReward
from tests.samples import sampled
from tests.trainer.rewards.reward_sources import FAILING_REWARDS, REFUSED_REWARDS, SOUND_REWARDS

ROWS = [
    {"id": 7, "prompt": "1+1=", "answer": "2", "level": 3},
    {"id": 8, "prompt": "1+2=", "answer": "3", "level": 4},
    {"id": 9, "prompt": "1+3=", "answer": "4", "level": 5},
]
TEXTS = ["it is \\boxed{2}", "it is \\boxed{5}"]

Score = Callable[[Path, str], list[float]]
"""Rewards of `TEXTS` for the first two rows, with the function `reward` of a source."""


def _write(folder: Path, source: str) -> tuple[Path, Path]:
    data, rewards = folder / "data.jsonl", folder / "user_rewards.py"
    data.write_text("\n".join(json.dumps(row) for row in ROWS))
    rewards.write_text(source)
    return data, rewards


def _train_score(folder: Path, source: str) -> list[float]:
    data, rewards = _write(folder, source)
    config = TaskConfig(data=str(data), heldout_data=str(data), reward=f"{rewards}:reward")
    task = build_task(config)
    assert isinstance(task, RewardedTask)
    (note,) = task.notes
    assert note.startswith(f"reward {rewards}:reward: called as ")
    return task.score(task.heldout(2), TEXTS).total


def _preflight_score(folder: Path, source: str) -> list[float]:
    from contextlib import ExitStack

    data, rewards = _write(folder, source)
    request = PreflightRequest(
        model=folder,
        prompts=data,
        reward=f"{rewards}:reward",
        reward_seconds=30.0,
        folder=folder,
        settings=RunSettings(),
    )
    rows = read_prompt_table(data).rows
    with ExitStack() as stack:
        reward = _open_reward(request, rows, stack)
        assert reward is not None
        return reward(rows[:2], TEXTS).total


COMMANDS = pytest.mark.parametrize("score", [_train_score, _preflight_score])


@COMMANDS
@pytest.mark.parametrize("form", sampled(SOUND_REWARDS, 2))
def test_every_form_works_in_both_commands(form: str, score: Score, tmp_path: Path) -> None:
    right, wrong = score(tmp_path, SOUND_REWARDS[form])
    assert right > 0
    assert wrong == 0


@COMMANDS
@pytest.mark.parametrize("kind", REFUSED_REWARDS)
def test_objects_that_are_not_reward_functions_are_refused_in_both_commands(
    kind: str, score: Score, tmp_path: Path
) -> None:
    source, message = REFUSED_REWARDS[kind]
    with pytest.raises(DataError, match=message) as caught:
        score(tmp_path, source)
    assert "\n" not in str(caught.value)


@COMMANDS
@pytest.mark.parametrize("kind", sampled(FAILING_REWARDS, 4))
def test_a_failing_function_is_one_line_in_both_commands(
    kind: str, score: Score, tmp_path: Path
) -> None:
    body, message = FAILING_REWARDS[kind]
    with pytest.raises(DataError, match=message) as caught:
        score(tmp_path, f"def reward(completions, **kwargs):\n    {body}\n")
    assert "\n" not in str(caught.value)
    assert "user_rewards.py:reward" in str(caught.value)


@COMMANDS
def test_columns_reach_the_function_in_both_commands(score: Score, tmp_path: Path) -> None:
    source = "def reward(completions, level, **kwargs):\n    return level\n"
    assert score(tmp_path, source) == [3.0, 4.0]


@COMMANDS
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("completions, color, **kwargs", "missing a required argument: 'color'"),
        ("prompts, completions", "got an unexpected keyword argument"),
        ("data_source, solution_str", "unexpected keyword argument"),
        ("a, b", "too many positional arguments"),
    ],
)
def test_parameters_that_do_not_fit_are_named_in_both_commands(
    parameters: str, message: str, score: Score, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=f"cannot be called as .*{message}"):
        score(tmp_path, f"def reward({parameters}):\n    return [1.0, 1.0]\n")


@COMMANDS
def test_a_third_parameter_that_is_no_column_gets_the_answers(score: Score, tmp_path: Path) -> None:
    source = "def reward(prompts, completions, gold):\n    return [float(g) for g in gold]\n"
    assert score(tmp_path, source) == [2.0, 3.0]


def test_a_wrong_form_is_refused_before_the_first_rollout(tmp_path: Path) -> None:
    data, rewards = _write(
        tmp_path, "def reward(completions, color, **kwargs):\n    return [1.0]\n"
    )
    with pytest.raises(DataError, match="'color'"):
        build_task(TaskConfig(data=str(data), reward=f"{rewards}:reward"))


@pytest.fixture
def reward_of(tmp_path: Path) -> Iterator[Callable[..., UserReward]]:
    """Builds a reward from the source of a module."""
    rewards: list[UserReward] = []

    def build(source: str, seconds: float = 20.0, columns: tuple[str, ...] = ()) -> UserReward:
        path = tmp_path / f"rewards_{len(rewards)}.py"
        path.write_text(source)
        rewards.append(UserReward(f"{path}:reward", seconds=seconds, columns=columns))
        return rewards[-1]

    yield build
    for reward in rewards:
        reward.close()


@pytest.mark.parametrize("name", SOUND_REWARDS)
def test_the_form_is_detected_and_reported(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())  # the worker extends it
    path = tmp_path / "rewards.py"
    path.write_text(SOUND_REWARDS[name])
    form = LoadedReward(f"{path}:reward", ()).answer({"check_form": False})
    assert form["name"] == name.partition(",")[0]
    whose = {"trl": "TRL", "verl batch": "verl's batch manager"}.get(form["name"], form["name"])
    assert form["description"].startswith(f"as {whose} calls it (")


def test_a_column_named_answers_selects_trls_form(reward_of: Callable[..., UserReward]) -> None:
    source = "def reward(completions, answers, **kwargs):\n    return [len(a) for a in answers]\n"
    assert reward_of(source).form == "grpodoctor"
    reward = reward_of(source, columns=("answers",))
    assert reward.form == "trl"
    rows = [PromptRow("line 1", "?", answer="2", columns={"answers": ["2", "two"]})]
    assert reward(rows, ["2"]).total == [2.0]


def test_conversations_reach_trls_functions_as_messages(
    reward_of: Callable[..., UserReward],
) -> None:
    reward = reward_of(
        "def reward(prompts, completions, **kwargs):\n"
        "    return [len(p) + float(c[0]['content']) for p, c in zip(prompts, completions)]\n"
    )
    row = PromptRow("line 1", "?", ({"role": "user", "content": "?"},), "2", {"messages": []})
    assert reward([row], ["2"]).total == [3.0]


def test_a_ground_truth_of_any_type_reaches_verls_functions(
    reward_of: Callable[..., UserReward],
) -> None:
    columns = {"reward_model": {"ground_truth": {"target": 3}}, "extra_info": None}
    reward = reward_of(
        "def reward(data_source, solution_str, ground_truth, extra_info):\n"
        "    return ground_truth['target'] + len(extra_info)\n"
    )
    assert reward([PromptRow("row 1", "?", columns=columns)], ["3"]).total == [3.0]


def test_state_of_the_module_is_kept_between_batches(reward_of: Callable[..., UserReward]) -> None:
    reward = reward_of(
        "import asyncio, os\ncalls = 0\nloops = set()\n"
        "async def reward(prompts, completions, answers):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    loops.add(id(asyncio.get_running_loop()))\n"
        "    return [calls + 10 * len(loops)]\n"
    )
    row = PromptRow("line 1", "?", answer="2")
    assert [reward([row], ["2"]).total[0] for _ in range(3)] == [11.0, 12.0, 13.0]


def test_rewards_are_bit_identical(reward_of: Callable[..., UserReward]) -> None:
    reward = reward_of(
        "import math\n"
        "def reward(prompts, completions, answers):\n"
        "    return [math.sin(index) / 3e7 for index in range(len(completions))]\n"
    )
    import math

    rows = [PromptRow("line 1", "?", answer="2")] * 100
    assert reward(rows, [""] * 100).total == [math.sin(index) / 3e7 for index in range(100)]


def test_a_function_that_hangs_is_killed_and_called_twice_at_most(
    reward_of: Callable[..., UserReward],
) -> None:
    reward = reward_of("import time\ndef reward(completions, **kwargs):\n    time.sleep(600)\n")
    reward._seconds = 1.0
    row, started = PromptRow("line 1", "?"), time.monotonic()
    for message in ("took longer than 1 seconds", "took longer", "2 times and is not called again"):
        with pytest.raises(DataError, match=message):
            reward([row], [""])
    assert time.monotonic() - started < 60


def test_a_function_that_hangs_ends_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text(
        "import os, time\n"
        "def reward(completions, **kwargs):\n"
        f"    open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "    time.sleep(600)\n"
    )
    code = (
        "import threading, time, os, pathlib\n"
        "from grpodoctor.preflight.inputs.prompt_rows import PromptRow\n"
        "from grpodoctor.trainer.rewards.user_reward import UserReward\n"
        f"reward = UserReward({str(tmp_path / 'rewards.py')!r} + ':reward', seconds=100)\n"
        "row = PromptRow('line 1', '?')\n"
        "threading.Thread(target=reward, args=([row], ['']), daemon=True).start()\n"
        f"pid = pathlib.Path({str(tmp_path / 'pid')!r})\n"
        "while not (pid.exists() and pid.read_text()):\n"
        "    time.sleep(0.05)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    process = Path("/proc") / (tmp_path / "pid").read_text()
    deadline = time.monotonic() + 30
    while process.exists() and ") Z" not in (process / "stat").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_prints_of_the_function_stay_out_of_standard_output(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text(
        "print('imported')\n"
        "def reward(completions, **kwargs):\n    print('called')\n    return [1.0]\n"
    )
    for show_output in (True, False):
        code = (
            "from grpodoctor.preflight.inputs.prompt_rows import PromptRow\n"
            "from grpodoctor.trainer.rewards.user_reward import UserReward\n"
            f"reward = UserReward('rewards:reward', seconds=60, show_output={show_output})\n"
            "reward([PromptRow('line 1', '?')], [''])\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert done.stdout == ""
        assert done.stderr == ("imported\ncalled\n" if show_output else "")


def test_a_run_ends_the_process_of_its_reward(tmp_path: Path) -> None:
    rewards = tmp_path / "rewards.py"
    rewards.write_text(
        "import os, pathlib\n"
        "def reward(prompts, completions, answers):\n"
        f"    pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        "    return [float(len(text) % 2) for text in completions]\n"
    )
    term = f"task.rewards.own.function={rewards}:reward"
    small = ("steps=1", "evaluation.every=0", "model.warm_start_steps=0", "record.enabled=false")
    Trainer(load_config(assignments=[*small, term]), tmp_path / "run").run()
    assert not (Path("/proc") / (tmp_path / "pid").read_text()).exists()


def test_the_adapter_needs_no_torch() -> None:
    code = (
        "import sys, grpodoctor.trainer.rewards.user_reward\n"
        "import grpodoctor.trainer.rewards.reward_worker\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
