import itertools
import sys
from pathlib import Path

import pytest

from grpodoctor.errors import ConfigError, DataError, InputError
from grpodoctor.trainer.config.sections import TaskConfig
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.data.loading import build_task
from grpodoctor.trainer.rewards.rewarded_task import RewardedTask, user_scorer
from grpodoctor.trainer.rewards.user_reward import UserReward
from grpodoctor.trainer.task import Problem, Rewards

_names = (f"user_reward_{number}" for number in itertools.count())
PROBLEMS = [Problem(str(index), f"{index}+0=", str(index)) for index in range(3)]
TEXTS = ["#0", "#1", "no idea"]


@pytest.fixture
def reward_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Score three responses with a reward function of the given body, found in the cwd."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def score(body: str) -> Rewards:
        name = next(_names)
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        Path(f"{name}.py").write_text(
            f"import numpy as np\ndef reward(prompts, completions, answers):\n{lines}\n"
        )
        return user_scorer(UserReward(f"{name}:reward", seconds=60)).score(PROBLEMS, TEXTS)

    return score


def test_a_list_is_the_reward(reward_of) -> None:
    rewards = reward_of("return [float(c == '#' + a) for c, a in zip(completions, answers)]")
    assert rewards == Rewards([1.0, 1.0, 0.0], {}, None)


def test_an_array_is_accepted(reward_of) -> None:
    assert reward_of("return np.arange(3) / 2").total == [0.0, 0.5, 1.0]


def test_numpy_scalars_and_booleans_are_numbers(reward_of) -> None:
    assert reward_of("return [np.float32(0.5), True, 2]").total == [0.5, 1.0, 2.0]
    verdicts = reward_of("return {'correct': [np.bool_(True), np.bool_(False), True]}")
    assert (verdicts.total, verdicts.correct) == ([1.0, 0.0, 1.0], [True, False, True])


def test_components_are_summed_and_booleans_called_correct_are_verdicts(reward_of) -> None:
    rewards = reward_of("return {'correct': [True, True, False], 'style': [0.5, 0, -0.5]}")
    assert rewards.total == [1.5, 1.0, -0.5]
    assert rewards.components == {"correct": [1.0, 1.0, 0.0], "style": [0.5, 0.0, -0.5]}
    assert rewards.correct == [True, True, False]


def test_numbers_called_correct_are_no_verdicts(reward_of) -> None:
    assert reward_of("return {'correct': [0.2, 1.0, 0.0]}").correct is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return [1.0]", "returned 1 rewards for 3 completions"),
        ("return [1.0, float('nan'), 0]", "'nan' for completion 1"),
        ("return [1.0, 0, float('-inf')]", "'-inf' for completion 2"),
        ("return [1.0, 'good', 0]", "'good' for completion 1"),
        ("return [None, 1, 0]", "'None' for completion 0"),
        ("return None", "returned NoneType"),
        ("return 1.0", "returned float"),
        ("return 'abc'", "returned str"),
        ("return {}", "returned no components"),
        ("return {'a': [0, 0, 0], 'b': [0, 0]}", "2 rewards for 3 completions in component 'b'"),
        ("return {'a': [0, 0, 1j]}", "'1j' for completion 2 in component 'a'"),
        ("return [1/(c != 'no idea') for c in completions]", "ZeroDivisionError.*at completion 2"),
        ("return [1.0] * 3 if len(prompts) == 1 else 1/0", "at no single completion"),
        ("return [10**5000, 0, 0]", "a number beyond 1e.100 for completion 0"),
        ("return {'a': [1e308] * 3, 'b': [1e308] * 3}", "beyond 1e.100 .* in component 'a'"),
        ("return {'a/b': [0] * 3, 'a_b': [0] * 3}", "'a/b' and 'a_b', which have the same"),
        ("return {1: [0] * 3, '1': [0] * 3}", "'1' and '1', which have the same"),
        ("return {' ': [0] * 3}", "a component without a name"),
        ("raise SystemExit(0)", "SystemExit: 0 .*line 3. at completion 0"),
        ("raise ValueError('two\\nlines')", "ValueError: two lines .*line 3. at completion 0"),
    ],
)
def test_an_invalid_return_value_is_one_line_that_names_the_function(
    reward_of, body, message
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        reward_of(body)
    assert "\n" not in str(caught.value)
    assert ":reward" in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nothing", "is not the name of a function"),
        ("no.such.module:reward", "ModuleNotFoundError"),
        ("/none/there.py:reward", "cannot be imported"),
        ("math:nothing", "has no function 'nothing'"),
        ("math:pi", "has no function 'pi'"),
    ],
)
def test_a_function_that_does_not_exist(spec: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        UserReward(spec, seconds=60)


def test_a_misspelt_function_names_the_one_that_is_meant(tmp_path: Path) -> None:
    file = tmp_path / "rewards.py"
    file.write_text("from math import sqrt\n\n\ndef score(prompts, completions, answers): ...\n")
    with pytest.raises(DataError, match=r"did you mean score\?"):
        UserReward(f"{file}:scor", seconds=60)
    with pytest.raises(DataError, match=r"use one of score$"):
        UserReward(f"{file}:grade", seconds=60)


def test_the_configured_function_replaces_the_verifier(tmp_path: Path) -> None:
    (tmp_path / "constant.py").write_text(
        "def reward(prompts, completions, answers):\n    return [7.0] * len(completions)\n"
    )
    task = build_task(TaskConfig(reward=f"{tmp_path}/constant.py:reward"))
    assert task.name == "arithmetic"
    assert isinstance(task, RewardedTask)
    assert task.score(PROBLEMS, TEXTS).total == [7.0] * 3
    with pytest.raises(DataError, match="math:fsum cannot be called"):
        build_task(TaskConfig(reward="math:fsum"))


@pytest.fixture
def mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The rewards of three responses under the terms of a configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = next(_names)
    Path("settings.toml").write_text("")
    Path(f"{name}.py").write_text(
        "def short(prompts, completions, answers):\n"
        "    return [float(len(c) < 4) for c in completions]\n"
        "def style(prompts, completions, answers):\n"
        "    return {'tone': [1, 2, 3], 'form': [0.5, 0.5, 0.5]}\n"
        "def broken(prompts, completions, answers):\n    return [float('nan')] * len(prompts)\n"
    )

    def score(*assignments: str, file: str = "") -> Rewards:
        Path("settings.toml").write_text(file.replace("MODULE", name))
        written = [each.replace("MODULE", name) for each in assignments]
        config = load_config(file=Path("settings.toml"), assignments=written)
        return build_task(config.task).score(PROBLEMS, TEXTS)

    return score


def test_several_rewards_are_weighed_in_the_sum_and_recorded_as_they_are(mix) -> None:
    listed = mix(
        "task.rewards=[{function='MODULE:short', weight=0.5}, {function='task'},"
        " {function='MODULE:style', weight=-1, name='voice'}]"
    )
    tabled = mix(
        "task.rewards.task.weight=1",  # a built-in one needs no function
        file="[task.rewards.short]\nfunction = 'MODULE:short'\nweight = 0.5\n"
        "[task.rewards.task]\nweight = 7\n"
        "[task.rewards.voice]\nfunction = 'MODULE:style'\nweight = -1\n",
    )
    assert listed == tabled
    assert listed.components == {
        "short": [1.0, 1.0, 0.0],
        "task.correct": [1.0, 1.0, 0.0],
        "task.format": [1.0, 1.0, 0.0],
        "voice.tone": [1.0, 2.0, 3.0],
        "voice.form": [0.5, 0.5, 0.5],
    }
    assert listed.total == pytest.approx([0.5 + 1 - 1.5, 0.5 + 1 - 2.5, 0 + 0 - 3.5])
    assert listed.correct == [True, True, False]


def test_a_reward_of_weight_zero_is_only_recorded(mix) -> None:
    rewards = mix("task.rewards.length.weight=0", "task.rewards.boxed.weight=2")
    assert rewards.components == {"length": [-0.002, -0.002, -0.007], "boxed": [0.0, 0.0, 0.0]}
    assert rewards.total == [0.0, 0.0, 0.0]
    assert rewards.correct is None


def test_math_is_a_reward_of_any_task_with_answers(mix) -> None:
    rewards = mix("task.rewards.math.weight=1", "task.rewards.task.weight=0")
    assert rewards.components["math"] == [1.0, 1.0, 0.0]
    assert rewards.correct == [True, True, False]


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("task.rewards=[{function='task'}, {function='task'}]", "two rewards are named 'task'"),
        ("task.rewards=[{function='a:f', name='x'}, {function='b:x'}]", "are named 'x'"),
        ("task.rewards=[{function='a:f', name=''}]", "cannot be named ''"),
        ("task.rewards=[{function='a:f', name='a/b'}]", "cannot be named 'a/b'"),
        ("task.rewards=[{weight=1}]", "cannot be named ''"),
        ("task.rewards.style.weight=1", "unknown built-in reward 'style'"),
        ("task.rewards.lenght.weight=1", "did you mean length"),
        ("task.rewards.length.weight=heavy", "task.rewards.length.weight cannot be 'heavy'"),
        ("task.rewards.length.weight=inf", "finite"),
        ("task.rewards.length.wieght=1", "unknown setting task.rewards.length.wieght"),
        ("task.rewards=[3]", "task.rewards cannot be"),
        ("task.rewards=task", "task.rewards cannot be"),
        ("task.rewards.x.function=math:nothing", "has no function 'nothing'"),
        ("task.rewards.x.function=MODULE:broken", "broken returned 'nan' for completion 0"),
    ],
)
def test_unusable_rewards_are_one_line(mix, assignment: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        mix(assignment)
    assert "\n" not in str(caught.value)


def test_one_reward_and_several_are_not_both(mix) -> None:
    with pytest.raises(ConfigError, match=r"task\.reward and task\.rewards"):
        mix("task.reward=math:fsum", "task.rewards.task.weight=1")


def test_a_component_cannot_take_the_name_of_a_shaping_term(mix) -> None:
    rewards = mix("task.rewards=[{function='length', name='overlong'}]")
    assert rewards.plus("repetition", [1.0, 0.0, 0.0], -2.0).total[0] == pytest.approx(-2.002)
    with pytest.raises(DataError, match="has a component 'overlong'"):
        rewards.plus("overlong", [0.0, 0.0, 0.0])
