"""`grpodoctor preflight` with real engines."""

import json
import signal
import subprocess
import sys
import time
from contextlib import chdir, suppress
from pathlib import Path

import orjson
import pytest

from grpodoctor.preflight.checks.data.duplicate_prompts import DuplicatePrompts
from tests.cli.in_process import run
from tests.probe.attribution.in_process import transformers_in_process
from tests.probes.models import texts, variant

BIGRAM = f"program:{Path(__file__).parents[1] / 'probe' / 'fault_engine.py'}?model=bigram"
"""An engine that starts at once."""
REWARD = """

def reward(completions, answer, **kwargs):
    print("noise of a reward function")
    return [float(text[:1] == right) for text, right in zip(completions, answer)]
"""


def _run_program(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "grpodoctor", "preflight", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "HF_HUB_OFFLINE": "1",
             "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def _run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command in this process; its engines and reward functions are programs."""
    with chdir(folder):
        return run("preflight", *options)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, dense_model: Path) -> Path:
    """A folder with a model for raw text, a second model with other weights, data and a reward."""
    folder = tmp_path_factory.mktemp("preflight")
    variant(folder / "model", dense_model)
    (folder / "model" / "chat_template.jinja").unlink()
    variant(folder / "other", folder / "model", perturb=0.2)
    problems = [text.rpartition(";")[2] for text in texts(48, seed=3)]
    # The small model predicts at most the first digit of a result.
    results = [str(_result(problem))[0] for problem in problems]
    rows = [
        json.dumps({"prompt": problem, "answer": result})
        for problem, result in zip(problems, results, strict=True)
    ]
    (folder / "prompts.jsonl").write_text("\n".join(rows), encoding="utf-8")
    (folder / "rewards.py").write_text(REWARD, encoding="utf-8")
    (folder / "misleading.txt").write_text("{prompt}777", encoding="utf-8")
    return folder


def _result(problem: str) -> int:
    left, sign, right = problem.rstrip("=").partition("+" if "+" in problem else "-")
    return int(left) + int(right) if sign == "+" else int(left) - int(right)


@pytest.fixture(scope="module")
def whole(place: Path) -> dict[str, dict[str, object]]:
    """Findings by code of a preflight with all inputs, and a learner with other weights."""
    with transformers_in_process():
        done = _run(
            place,
            "--model", "model", "--prompts", "prompts.jsonl", "--reward", "rewards.py:reward",
            "--sampler", "transformers:model", "--learner", "transformers:other",
            "--max-tokens", "4", "--samples", "4", "--limit", "24", "--batch-prompts", "8",
            "--temperature", "1.0", "--temperature", "0.5", "--template", "odd=misleading.txt",
            "--memory-gib", "0.004", "--write-filtered", "left.jsonl", "--output", "report.json",
        )  # fmt: skip
    assert done.returncode == 1, done.stderr
    report = orjson.loads((place / "report.json").read_bytes())
    assert report["failed"] == []
    return {each["code"]: each for each in report["findings"]}


@pytest.mark.slow
def test_a_learner_with_other_weights_is_critical(whole: dict[str, dict[str, object]]) -> None:
    assert whole["MIS101"]["severity"] == "critical"


def test_pass_rates_are_reported_for_each_temperature(whole: dict[str, dict[str, object]]) -> None:
    figures = whole["GRP101"]["figures"]
    assert 0.02 < figures["pass_rate"] < 0.98
    assert figures["pass_at_k"] >= figures["pass_rate"]
    hot, cold, right = whole["GRP101"]["details"]
    assert hot.startswith("temperature 1: pass@1 ")
    assert cold.startswith("temperature 0.5: pass@1 ")
    for line in (hot, cold):
        assert "pass@4" in line
        assert "prompts below 20%: " in line
    assert right.startswith("a response with a reward of at least 0.5")
    advice = whole["GRP101"]["advice"]
    assert advice[0].startswith("Train on left.jsonl")
    assert not any("--write-filtered" in each for each in advice)


def test_only_prompts_of_useful_difficulty_are_written(
    place: Path, whole: dict[str, dict[str, object]]
) -> None:
    left = (place / "left.jsonl").read_text().splitlines()
    figures = whole["GRP101"]["figures"]
    assert len(left) == round(24 * (1 - figures["below"] - figures["above"]))
    assert all({"prompt", "answer"} <= set(json.loads(line)) for line in left)


def test_few_groups_with_variance_are_a_warning(whole: dict[str, dict[str, object]]) -> None:
    assert whole["GRP102"]["severity"] == "warning"  # eight groups are fewer than sixteen
    assert whole["GRP102"]["figures"]["groups"] <= 8


def test_truncated_responses_are_critical(whole: dict[str, dict[str, object]]) -> None:
    assert whole["LEN101"]["severity"] == "critical"  # the model continues with the next problem


def test_templates_are_compared(whole: dict[str, dict[str, object]]) -> None:
    figures = whole["DAT109"]["figures"]
    assert figures["the tokenizer's own"] > figures["odd"]
    assert "No template is better" in whole["DAT109"]["summary"]


def test_insufficient_memory_is_critical(whole: dict[str, dict[str, object]]) -> None:
    assert whole["OPT101"]["severity"] == "critical"


def test_rounds_of_the_same_engines_are_equal(whole: dict[str, dict[str, object]]) -> None:
    assert whole["MIS102"]["severity"] == "info"
    assert "KLD101" not in whole  # the learner agrees with itself, in batches of any order


@pytest.mark.slow
def test_stored_engine_outputs_are_reused(place: Path, whole: dict[str, dict[str, object]]) -> None:
    logs = sorted((place / "preflight" / "logs").iterdir())
    done = _run_program(
        place, "--model", "model", "--prompts", "prompts.jsonl", "--reward", "rewards.py:reward",
        "--sampler", "transformers:model", "--max-tokens", "4", "--samples", "4", "--limit", "24",
        "--select", "GRP101,LEN101",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "pass rate" in done.stdout
    assert "noise" not in done.stdout + done.stderr
    assert sorted((place / "preflight" / "logs").iterdir()) == logs


def test_without_an_engine_the_files_are_examined(place: Path) -> None:
    done = _run(place, "--model", "model", "--prompts", "prompts.jsonl", "--output", "page.html")
    page = (place / "page.html").read_text()
    assert done.returncode in {0, 1}, done.stderr
    assert "no engine was given" in page
    assert "add --sampler ENGINE:MODEL" in page


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "nowhere"), "model directory does not exist"),
        (("--model", "model", "--prompts", "nowhere.jsonl"), "cannot be read"),
        (("--model", "model", "--prompts", "prompts.jsonl", "--reward", "rewards.py:nothing"),
         "has no function"),
        (("--model", "model", "--sampler", "nothing:model"), "does not start with a known engine"),
        (("--model", "model", "--sampler", "transformers:model"), "requires --prompts"),
        (("--model", "model", "--reward", "rewards.py:reward"), "requires --prompts"),
        (("--model", "model", "--held-out", "prompts.jsonl"), "requires --prompts"),
        (("--model", "model", "--learner", "transformers:model"), "requires --sampler"),
        (("--model", "model", "--template", "a=misleading.txt"), "requires --sampler"),
        (("--model", "model", "--template", "a=misleading.txt", "--template", "a=misleading.txt"),
         "two templates have the name 'a'"),
        (("--model", "model", "--select", "DAT", "--ignore", "DAT"), "leave no check"),
        (("--model", "model", "--output", "nowhere/x.html"), "cannot be written"),
        (("--model", "model", "--output", "report.pdf"), "no report format has the suffix"),
        (("--model", "model", "--prompts", "prompts.jsonl", "--sampler", "transformers:model",
          "--work", "prompts.jsonl"), "pass another directory with --work"),
        (("--model", "model", "--temperature", "0"), "temperature of 0"),
        (("--model", "model", "--gold-format", "x"), "no placeholder for the answer"),
        (("--model", "model", "--template", "x"), "is not a template"),
        (("--model", "model", "--select", "XYZ"), "no preflight check matches"),
        (("--model", "model", "--write-filtered", "x.jsonl"), "cannot be filtered"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(place: Path, options: tuple[str, ...], message: str) -> None:
    done = _run(place, *options)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_failed_engine_does_not_stop_the_other_checks(place: Path) -> None:
    done = _run(
        place, "--model", "model", "--prompts", "prompts.jsonl", "--sampler",
        f"{BIGRAM}&fault=raise", "--output", "failed.json", "--reward", "rewards.py:reward",
        "--write-filtered", "none.jsonl",
    )  # fmt: skip
    assert done.returncode == 2
    assert not (place / "none.jsonl").exists()
    report = orjson.loads((place / "failed.json").read_bytes())
    assert {"LEN101", ""} <= {each["code"] for each in report["failed"]}
    assert "DAT101" not in {each["code"] for each in report["failed"]}
    assert report["passed"]


def test_a_check_that_raises_does_not_stop_the_other_checks(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def examine(_: object, __: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(DuplicatePrompts, "examine", examine)
    done = _run(place, "--prompts", "prompts.jsonl", "--output", "defect.json")
    assert done.returncode == 2
    report = orjson.loads((place / "defect.json").read_bytes())
    (failed,) = report["failed"]
    assert failed["code"] == "DAT107"
    text = "a defect in grpodoctor, ZeroDivisionError: division by zero (test_run.py:"
    assert failed["why"].startswith(text)
    assert report["passed"]


def test_engines_end_with_the_preflight(place: Path) -> None:
    work = place / "ended"
    command = ["--model", "model", "--prompts", "prompts.jsonl", "--work", str(work)]
    command += ["--sampler", f"{BIGRAM}&fault=hang&at=sample"]
    with subprocess.Popen(
        [sys.executable, "-m", "grpodoctor", "preflight", *command],
        cwd=place, stderr=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        try:
            deadline = time.monotonic() + 120
            while not list(work.glob("logs/*.log")):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            running.send_signal(signal.SIGTERM)
            _, stderr = running.communicate(timeout=120)
        finally:
            running.kill()
    assert running.returncode == 130, stderr
    assert "Traceback" not in stderr
    mark = f"GRPODOCTOR_PROBE={work}".encode()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            assert mark not in environ.read_bytes().split(b"\0")


def test_too_few_prompts_to_compare_rounds(place: Path) -> None:
    done = _run(
        place, "--model", "model", "--prompts", "prompts.jsonl", "--sampler", BIGRAM,
        "--learner", BIGRAM, "--max-tokens", "4", "--samples", "2", "--limit", "3",
        "--select", "MIS102", "--work", "few",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "too few prompts" in done.stdout
