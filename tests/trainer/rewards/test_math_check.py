"""Mathematical answers: equal forms, hostile texts, and the process that compares them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from grpodoctor.errors import ConfigError, DataError, MissingExtraError
from grpodoctor.measure.final_answer import find_final
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.data.loading import build_task
from grpodoctor.trainer.rewards import math_check as math_judge
from grpodoctor.trainer.rewards.math_check import MathVerifier
from grpodoctor.trainer.rewards.math_worker import compare
from grpodoctor.trainer.task import Problem


@pytest.fixture(scope="module")
def verifier() -> Iterator[MathVerifier]:
    impatient = MathVerifier(seconds=1.0)
    yield impatient
    impatient.close()


EQUAL = [
    ("1/2", "so \\boxed{0.5}"),
    ("\\frac{1}{2}", "hence $\\frac{2}{4}$"),
    ("0.5", "\\boxed{\\dfrac{1}{2}}"),
    ("50\\%", "\\boxed{0.5}"),
    ("50%", "\\boxed{50\\%}"),
    ("\\{1,2\\}", "\\boxed{\\{2, 1\\}}"),
    ("(1,2]", "\\boxed{(1, 2]}"),
    ("x<3", "\\boxed{(-\\infty, 3)}"),
    ("x^2+2x+1", "\\boxed{(x+1)^2}"),
    ("\\sqrt{8}", "\\boxed{2\\sqrt{2}}"),
    ("2\\pi", "\\boxed{\\frac{4\\pi}{2}}"),
    ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "$\\begin{pmatrix}1\\\\2\\end{pmatrix}$"),
    ("1,234", "#1234"),
    ("They had 5.\n#### 72", "#### 72.0"),
    ("12", "The answer is 12 apples"),
    ("3", "first \\boxed{4}, no: \\boxed{3}"),
    ("yes", "\\boxed{yes}"),
    ("\\text{Friday}", "\\boxed{\\text{Friday}}"),
]
UNEQUAL = [
    ("1/2", "\\boxed{0.51}"),
    ("1/2", "\\boxed{2/1}"),
    ("50\\%", "\\boxed{5}"),
    ("\\{1,2\\}", "\\boxed{\\{1,2,3\\}}"),
    ("(1,2]", "\\boxed{[1,2]}"),
    ("x^2", "\\boxed{y^2}"),
    ("3", "\\boxed{3, 4}"),
    ("3", "\\boxed{3} no, \\boxed{4}"),
    ("3", "\\boxed{}"),
    ("3", ""),
    ("", "3"),
    ("3", "no idea"),
    ("yes", "\\boxed{no}"),
]


def test_equal_forms_are_right(verifier: MathVerifier) -> None:
    golds, texts = zip(*EQUAL, strict=True)
    verdicts = verifier.verify(golds, texts)
    assert [pair for pair, verdict in zip(EQUAL, verdicts, strict=True) if not verdict] == []


def test_other_answers_are_wrong(verifier: MathVerifier) -> None:
    golds, texts = zip(*UNEQUAL, strict=True)
    verdicts = verifier.verify(golds, texts)
    assert [pair for pair, verdict in zip(UNEQUAL, verdicts, strict=True) if verdict] == []


def test_the_last_closed_box_counts_whatever_is_in_it() -> None:
    assert find_final("\\boxed{\\frac{1}{2}} ").text == "\\frac{1}{2}"
    assert find_final("\\boxed{\\{1\\}} and \\boxed{open").text == "\\{1\\}"
    assert find_final("\\boxed{\\boxed{3}}").text == "3"
    assert find_final("a \\\\\\boxed{2} }").text == "2"
    began = time.process_time()
    assert not find_final("\\boxed{" * 50_000).marked
    assert time.process_time() - began < 5


HOSTILE = [
    "\\boxed{9**9**9}",
    "\\boxed{9^{9^{9^{9}}}}",
    "\\boxed{100000000!}",
    "\\boxed{\\sum_{i=1}^{10^{12}} i^i}",
    "\\boxed{" + "\\frac{1}{" * 300 + "2" + "}" * 301,
    "\\boxed{" + "(" * 3000 + "}",
    "\\boxed{" * 3000,
    "answer " * 500 + "=" * 1000,
    "$" * 4000,
    "1" * 100_000,
    "\x00\x1b[31m\ud800",
    "\\boxed{__import__('os').system('touch owned')}",
    "__import__('os').system('touch owned')",
]


def test_hostile_texts_are_wrong_in_bounded_time_and_spare_their_neighbours(
    verifier: MathVerifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = [each for hostile in HOSTILE for each in (hostile, "\\boxed{3/7}")]
    # Without limits the first text alone takes hours, which pytest's timeout would end.
    verdicts = verifier.verify(["\\frac{3}{7}"] * len(texts), texts)
    assert verdicts == [False, True] * len(HOSTILE)
    assert list(tmp_path.iterdir()) == []
    assert "count as wrong" in caplog.text


@pytest.mark.slow
def test_it_works_in_a_thread_where_alarms_do_not() -> None:
    verdicts: list[bool] = []

    def work() -> None:
        own = MathVerifier(seconds=1.0)
        verdicts.extend(own.verify(["1/2", "3"], ["\\boxed{2/4}", "\\boxed{9**9**9}"]))
        own.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert verdicts == [True, False]


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced(verifier: MathVerifier) -> None:
    assert verifier.verify(["1/2"], ["\\boxed{2/4}"]) == [True]
    worker, _ = verifier._worker._running()
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait(10)
    assert verifier.verify(["1/2"], ["\\boxed{3/6}"]) == [True]
    assert verifier._worker.pid not in (None, worker.pid)


def test_a_worker_that_never_answers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math_judge, "find_spec", lambda _: True)
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(DataError, match=r"exits at every start.*import math_verify"):
        MathVerifier().verify(["1/2"], ["\\boxed{2/4}"])


def test_without_math_verify_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math_judge, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'grpodoctor\[train\]'"):
        MathVerifier()


def test_a_child_that_dies_leaves_only_one_pair_undecided() -> None:
    def judge(gold: str, answer: str, marked: bool) -> bool:
        if answer == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if answer == "raise":
            raise ValueError(answer)
        return gold == answer

    pairs = [("a", answer, True) for answer in ("a", "die", "b", "raise", "die", "a")] * 4
    assert compare(pairs, judge, 5.0) == [True, None, False, None, None, True] * 4


def test_the_verifier_of_a_file(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    rows = [{"prompt": f"half of {n}", "answer": f"\\frac{{{n}}}{{2}}"} for n in range(1, 11)]
    data.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    problems = [Problem("1", "half of 3", "\\frac{3}{2}")] * 3
    texts = ["\\boxed{1.5}", "$\\frac{6}{4}$", "\\boxed{2}"]
    verdicts = {}
    for verifier in ("math", "last"):
        config = load_config(assignments=[f"task.data={data}", f"task.verifier={verifier}"])
        rewards = build_task(config.task).score(problems, texts)
        verdicts[verifier] = rewards.correct
        assert rewards.components == {"correct": rewards.total}
    assert verdicts == {"math": [True, True, False], "last": [False, False, False]}


def test_verifiers_that_do_not_fit_the_task_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"their own verifier.*set task\.data"):
        load_config(assignments=["task.verifier=math"])
    with pytest.raises(ConfigError, match="one final answer"):
        load_config(assignments=["task.verifier=any", "task.data=x.jsonl"])
