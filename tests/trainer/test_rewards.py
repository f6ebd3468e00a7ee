import itertools
import sys
from pathlib import Path

import pytest

from grpodoctor.errors import DataError
from grpodoctor.trainer.data import build_task
from grpodoctor.trainer.rewards import CustomReward, load_reward
from grpodoctor.trainer.sections import TaskConfig
from grpodoctor.trainer.tasks.arithmetic import Arithmetic
from grpodoctor.trainer.tasks.base import Problem, Rewards

_names = (f"user_reward_{number}" for number in itertools.count())
PROBLEMS = [Problem(str(index), f"{index}+0=", str(index)) for index in range(3)]
TEXTS = ["#0", "#1", "no idea"]


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Score three responses with a reward function of the given body, found in the cwd."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def score(body: str) -> Rewards:
        name = next(_names)
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        Path(f"{name}.py").write_text(
            f"import numpy as np\ndef reward(prompts, completions, answers):\n{lines}\n"
        )
        task = CustomReward(Arithmetic(TaskConfig()), f"{name}:reward")
        return task.score(PROBLEMS, TEXTS)

    return score


def test_a_list_is_the_reward(judge) -> None:
    rewards = judge("return [float(c == '#' + a) for c, a in zip(completions, answers)]")
    assert rewards == Rewards([1.0, 1.0, 0.0], {}, None)


def test_an_array_will_do(judge) -> None:
    assert judge("return np.arange(3) / 2").total == [0.0, 0.5, 1.0]


def test_numpy_scalars_and_booleans_are_numbers(judge) -> None:
    assert judge("return [np.float32(0.5), True, 2]").total == [0.5, 1.0, 2.0]
    verdicts = judge("return {'correct': [np.bool_(True), np.bool_(False), True]}")
    assert (verdicts.total, verdicts.correct) == ([1.0, 0.0, 1.0], [True, False, True])


def test_components_are_summed_and_booleans_called_correct_are_verdicts(judge) -> None:
    rewards = judge("return {'correct': [True, True, False], 'style': [0.5, 0, -0.5]}")
    assert rewards.total == [1.5, 1.0, -0.5]
    assert rewards.components == {"correct": [1.0, 1.0, 0.0], "style": [0.5, 0.0, -0.5]}
    assert rewards.correct == [True, True, False]


def test_numbers_called_correct_are_no_verdicts(judge) -> None:
    assert judge("return {'correct': [0.2, 1.0, 0.0]}").correct is None


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
        ("return [1.0] * 3 if len(prompts) == 1 else 1/0", "for no completion alone"),
        ("return [10**5000, 0, 0]", "a number beyond 1e.100 for completion 0"),
        ("return {'a': [1e308] * 3, 'b': [1e308] * 3}", "beyond 1e.100 .* in component 'a'"),
        ("raise SystemExit(0)", "SystemExit: 0 at completion 0"),
        ("raise ValueError('two\\nlines')", "ValueError: two lines at completion 0"),
    ],
)
def test_what_is_no_reward_is_one_line_that_names_the_function(judge, body, message) -> None:
    with pytest.raises(DataError, match=message) as caught:
        judge(body)
    assert "\n" not in str(caught.value)
    assert ":reward" in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nothing", "names no reward function"),
        ("no.such.module:reward", "ModuleNotFoundError"),
        ("math:nothing", "has no function 'nothing'"),
        ("math:pi", "has no function 'pi'"),
    ],
)
def test_a_function_that_is_not_there(spec: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_reward(spec)


@pytest.mark.parametrize(
    "body", ["raise RuntimeError('at import')", "raise SystemExit('at import')"]
)
def test_a_module_that_fails_to_import(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = next(_names)
    Path(f"{name}.py").write_text(body)
    with pytest.raises(DataError, match="at import"):
        load_reward(f"{name}:reward")


def test_the_configuration_puts_the_function_in_the_place_of_the_verifier() -> None:
    task = build_task(TaskConfig(reward="math:fsum"))
    assert task.name == "arithmetic"
    assert isinstance(task, CustomReward)
    with pytest.raises(DataError, match="math:fsum"):
        task.score(PROBLEMS, TEXTS)
