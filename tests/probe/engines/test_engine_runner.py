import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grpodoctor.errors import EngineError, RunError
from grpodoctor.probe.contract import Processing, Sampling, shard_paths
from grpodoctor.probe.engines.engine_runner import EngineRunner
from grpodoctor.probe.engines.failures import error_summary
from grpodoctor.probe.engines.jobs import BudgetSpentError, SampleJob, ScoreJob, TokenizeJob
from grpodoctor.probe.engines.processes import marked_processes
from grpodoctor.probe.engines.shards import read_pairs
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.samples import sampled

ENGINE = Path(__file__).parents[1] / "fault_engine.py"
PROMPTS = [{"text": f"say {number}"} for number in range(12)]
SAMPLE = SampleJob(sampling=Sampling(samples=64, max_tokens=8))


def spec(**options: str | int | float | bool) -> EngineSpec:
    return EngineSpec.of("program", str(ENGINE), {"model": "bigram", **options})


@pytest.fixture
def runner(tmp_path: Path) -> EngineRunner:
    with EngineRunner(tmp_path / "lab", PROMPTS) as started:
        yield started


def logs(runner: EngineRunner) -> list[Path]:
    return list((runner.store.folder / "logs").glob("*.log"))


def test_one_load_samples_scores_and_tokenises(runner: EngineRunner) -> None:
    own = ScoreJob(rollouts=runner.where(spec(), SAMPLE), processing=Processing())
    sampled, scored, ids = runner.run(spec(), [SAMPLE, own, TokenizeJob()])
    assert len(logs(runner)) == 1
    assert len(shard_paths(sampled)) == 3
    for left, right in read_pairs(sampled, scored):
        assert (left.logprobs_N == right.logprobs_N).all()
    assert (ids / "ids.json").exists()
    facts = runner.facts(spec())
    assert (facts.name, facts.vocab_size, facts.end_ids) == ("fault", 32, (0,))
    assert len(logs(runner)) == 1


def test_another_probe_reuses_finished_jobs(runner: EngineRunner) -> None:
    (first,) = runner.run(spec(), [SAMPLE])
    before = {path: path.stat().st_mtime_ns for path in shard_paths(first)}
    runner.close()
    with EngineRunner(runner.store.folder, PROMPTS) as again:
        assert again.run(spec(), [SAMPLE]) == [first]
        assert {path: path.stat().st_mtime_ns for path in shard_paths(first)} == before
        assert again.run(spec(seed=1), [SAMPLE]) != [first]
    assert len(logs(runner)) == 2


def test_another_model_under_the_same_name_has_another_key(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_text("old")
    engine = spec(model=str(model))
    with EngineRunner(tmp_path / "lab", PROMPTS) as runner:
        old = runner.where(engine, SAMPLE)
    (model / "weights").write_text("newer")
    with EngineRunner(tmp_path / "lab", PROMPTS) as runner:
        assert runner.where(engine, SAMPLE) != old


def test_shards_of_a_killed_engine_are_reused(runner: EngineRunner) -> None:
    (whole,) = runner.run(spec(), [SAMPLE])
    kept = {path.name: path.read_bytes() for path in shard_paths(whole)}
    (whole / "done.json").unlink()
    shard_paths(whole)[-1].unlink()
    first = shard_paths(whole)[0].stat().st_mtime_ns
    assert runner.run(spec(), [SAMPLE]) == [whole]
    assert shard_paths(whole)[0].stat().st_mtime_ns == first
    assert {path.name: path.read_bytes() for path in shard_paths(whole)}.keys() == kept.keys()


def test_jobs_before_a_model_download_are_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    cache = tmp_path / "hub" / "models--org--name"
    engine = spec(model="org/name", downloads=str(cache))
    with EngineRunner(tmp_path / "lab", PROMPTS) as runner:
        (first,) = runner.run(engine, [SAMPLE])
    assert (cache / "snapshots" / "abc").is_dir()
    with EngineRunner(tmp_path / "lab", PROMPTS) as runner:
        assert runner.finished(engine, [SAMPLE]) == [first]
    (cache / "snapshots" / "def").mkdir()
    (cache / "refs" / "main").write_text("def")
    with EngineRunner(tmp_path / "lab", PROMPTS) as runner:
        assert runner.finished(engine, [SAMPLE]) == [None]


def test_a_folder_takes_one_probe_at_a_time(runner: EngineRunner) -> None:
    with pytest.raises(RunError, match="another probe is running in this folder: process"):
        EngineRunner(runner.store.folder, PROMPTS)


def test_a_part_is_the_first_shards(runner: EngineRunner) -> None:
    (whole,) = runner.run(spec(), [SAMPLE])
    part = runner.part_of(whole, 300)
    assert [path.name for path in shard_paths(part)] == ["shard-00000.npz", "shard-00001.npz"]
    assert runner.part_of(whole, 300) == part
    assert runner.part_of(whole, 10_000) == whole
    (scored,) = runner.run(spec(), [ScoreJob(rollouts=part)])
    assert len(list(read_pairs(part, scored))) == 2


FAULTS = {
    "die": "was killed by SIGKILL.*RuntimeError: the devil is in the detail",
    "raise": "exit code 1.*ValueError: no such kernel",
    "refuse": "it does not like this .*log: .*; ask otherwise",
    "worker": r"RuntimeError: see above; its log says: ValueError: no such tensor \(log",
    "silent_exit": "exit code 0 without an answer",
    "no_import": "cannot import what the engine needs.*python=",
    "says_nothing": "gives of itself is invalid: vocab_size",
    "few": "765 responses instead of 12 prompts x 64 samples",
    "empty": "a response without tokens",
    "beyond": "the token id 37 with a vocabulary of 32",
    "no_logprobs": "tokens without a finite log-probability",
    "garbage": "the shard shard-00000.npz cannot be used",
}


@pytest.mark.parametrize("fault", sampled(FAULTS, 3))
def test_the_error_of_a_failed_engine(runner: EngineRunner, fault: str) -> None:
    with pytest.raises(EngineError, match=FAULTS[fault]) as caught:
        runner.run(spec(fault=fault), [SAMPLE])
    assert len(str(caught.value)) < 2000
    assert "\x1b" not in str(caught.value)
    started = len(logs(runner))
    with pytest.raises(EngineError):
        runner.run(spec(fault=fault), [SAMPLE])
    assert len(logs(runner)) == started, "what has failed is not tried again"


LOGS = {
    "a bar of progress": ("loaded\nweights:  50%|##   | 1/2\nweights: 100%|####| 2/2\n", "loaded"),
    "torchrun, a rank killed": (
        "    raise ChildFailedError(\ntorch.x.ChildFailedError: \n====\n  rank : 1\n"
        "  traceback : Signal 9 (SIGKILL) received by PID 7\n===\n",
        "traceback : Signal 9 (SIGKILL) received by PID 7",
    ),
    "a rank's traceback": (
        '[rank0]:     raise XError(f"no")\n[rank0]: a.XError: no such key\n',
        "a.XError: no such key",
    ),
    "vLLM's workers, twice the same": (
        "(Worker_TP0 pid=1) ERROR 11-21 18:42:38 [a.py:9] ValueError: no tensor\n"
        "(Worker_TP1 pid=2) ERROR 11-21 18:42:39 [a.py:9] ValueError: no tensor\nbye\n",
        "ValueError: no tensor",
    ),
}


@pytest.mark.parametrize("kind", LOGS)
def test_the_most_informative_line_of_a_log(tmp_path: Path, kind: str) -> None:
    text, told = LOGS[kind]
    (tmp_path / "log").write_text(text)
    assert error_summary(tmp_path / "log") == told


def test_a_refused_answer_is_not_resumed(runner: EngineRunner) -> None:
    engine = spec(fault="garbage", once=str(runner.store.folder / "once"))
    with pytest.raises(EngineError):
        runner.run(engine, [SAMPLE])
    assert not runner.where(engine, SAMPLE).exists()


def test_scores_of_other_tokens_are_refused(runner: EngineRunner) -> None:
    (sampled,) = runner.run(spec(), [SAMPLE])
    with pytest.raises(EngineError, match="scored other tokens than it was given"):
        runner.run(spec(fault="other_tokens"), [ScoreJob(rollouts=sampled)])


def test_a_job_that_kills_the_engine_does_not_fail_the_others(runner: EngineRunner) -> None:
    engine = spec(fault="die", at="score")
    own = ScoreJob(rollouts=runner.where(engine, SAMPLE))
    longer = SampleJob(sampling=Sampling(samples=2, max_tokens=16))
    first, second, third = runner.attempt(engine, [SAMPLE, own, longer])
    assert isinstance(first, Path)
    assert isinstance(second, EngineError)
    assert isinstance(third, Path)
    assert len(logs(runner)) == 2


def test_unreadable_prompts_cause_no_second_load(runner: EngineRunner) -> None:
    engine = spec(fault="refuse", at="tokenise")
    own = ScoreJob(rollouts=runner.where(engine, SAMPLE))
    outcomes = runner.attempt(engine, [TokenizeJob(), SAMPLE, own])
    assert {str(each) for each in outcomes} == {str(outcomes[0])}
    assert isinstance(outcomes[0], EngineError)
    assert len(logs(runner)) == 1


def test_an_engine_without_a_sign_of_life_is_ended(runner: EngineRunner) -> None:
    with pytest.raises(
        EngineError, match=r"gave no sign of life for 4 s.*last lines: loaded.*timeout="
    ):
        runner.run(spec(fault="hang", timeout=4), [SAMPLE])
    engine = spec(fault="hang", at="score", timeout=4)
    own = ScoreJob(rollouts=runner.where(engine, SAMPLE))
    longer = SampleJob(sampling=Sampling(samples=2, max_tokens=16))
    first, second, third = runner.attempt(engine, [SAMPLE, own, longer])
    assert isinstance(first, Path)
    assert isinstance(second, EngineError)
    assert isinstance(third, EngineError)
    assert len(logs(runner)) == 2, "nobody waits for it twice"


def test_finished_jobs_are_kept_when_the_budget_ends(runner: EngineRunner) -> None:
    runner.deadline = time.monotonic() + 8
    engine = spec(fault="hang", at="score")
    with pytest.raises(BudgetSpentError):
        runner.attempt(engine, [SAMPLE, ScoreJob(rollouts=runner.where(engine, SAMPLE))])
    assert runner.is_spent
    assert runner.attempt(engine, [SAMPLE]) == [runner.where(engine, SAMPLE)]
    with pytest.raises(BudgetSpentError):
        runner.run(spec(seed=3), [SAMPLE])


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds them in /proc")
def test_processes_outside_the_process_group_are_ended(
    runner: EngineRunner, tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    with pytest.raises(EngineError):
        runner.run(spec(fault="orphan", note=str(note)), [SAMPLE])
    with pytest.raises((ProcessLookupError, FileNotFoundError)):  # gone, or waiting to be reaped
        Path(f"/proc/{note.read_text()}/environ").read_bytes()


@pytest.mark.parametrize(
    ("python", "match"),
    [
        ("/nowhere/python", "there is no Python interpreter /nowhere/python"),
        ("/bin/true", "cannot run engines: it does not answer like a Python"),
        ("/bin/false", "cannot run engines"),
    ],
)
def test_an_invalid_python(runner: EngineRunner, python: str, match: str) -> None:
    with pytest.raises(EngineError, match=match):
        runner.run(spec(python=python), [SAMPLE])


def test_a_missing_program_or_launcher(runner: EngineRunner) -> None:
    with pytest.raises(EngineError, match="there is no such engine program"):
        runner.facts(EngineSpec.of("program", "/nowhere.py", {}))
    with pytest.raises(EngineError, match="there is no program srun-of-nobody"):
        runner.facts(spec(launcher="srun-of-nobody -n 2"))


def test_a_launcher_runs_the_program(runner: EngineRunner) -> None:
    runner.run(spec(launcher=f"nice -n 1 {sys.executable}"), [SAMPLE])


def begin_to_hang(
    folder: Path, options: str = "", engine: Path = ENGINE
) -> subprocess.Popen[bytes]:
    """A probe whose engine hangs already."""
    program = (
        "import sys; from pathlib import Path\n"
        "from grpodoctor.probe.engines.engine_runner import EngineRunner\n"
        "from grpodoctor.probe.inputs.engine_spec import EngineSpec\n"
        "from grpodoctor.probe.engines.jobs import TokenizeJob\n"
        f"spec = EngineSpec.parse('program:{engine}?model=x&fault=hang{options}')\n"
        f"with EngineRunner(Path({str(folder)!r}), [{{'text': 'x'}}]) as runner:\n"
        "    runner.run(spec, [TokenizeJob()])\n"
    )
    probe = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not any("loaded" in each.read_text() for each in (folder / "logs").glob("*.log")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return probe


def alive(folder: Path) -> bool:
    """Whether anything that a probe into the folder has started still lives."""
    return any(marked_processes(str(folder)))


def test_an_interrupted_probe_ends_its_engine(tmp_path: Path) -> None:
    probe = begin_to_hang(tmp_path / "lab")
    probe.send_signal(signal.SIGINT)
    _, complaint = probe.communicate(timeout=60)
    assert b"KeyboardInterrupt" in complaint
    assert not alive(tmp_path / "lab")


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds them in /proc")
def test_a_second_interrupt_kills_a_stubborn_engine(
    tmp_path: Path,
) -> None:
    probe = begin_to_hang(tmp_path / "lab", "&stubborn=true")
    probe.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert probe.poll() is None, "it is given time to end"
    probe.send_signal(signal.SIGINT)
    probe.communicate(timeout=60)
    assert not alive(tmp_path / "lab")


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds them in /proc")
def test_the_next_probe_ends_processes_of_a_killed_one(tmp_path: Path) -> None:
    note = tmp_path / "worker"
    probe = begin_to_hang(tmp_path / "lab", f"&retitled={note}&unwatched=true")
    probe.kill()
    probe.communicate(timeout=60)
    worker = Path(f"/proc/{note.read_text()}/cmdline")
    assert alive(tmp_path / "lab")
    assert worker.read_bytes()
    with EngineRunner(tmp_path / "lab", PROMPTS):
        assert not alive(tmp_path / "lab")
        assert not worker.exists() or not worker.read_bytes(), "without a mark of its own"


def test_an_engine_stays_loaded_until_another_is_asked(runner: EngineRunner) -> None:
    (sampled,) = runner.run(spec(), [SAMPLE])
    (scored,) = runner.run(spec(), [ScoreJob(rollouts=sampled)])
    for left, right in read_pairs(sampled, scored):
        assert (left.logprobs_N == right.logprobs_N).all()
    assert len(logs(runner)) == 1
    (first,) = marked_processes(str(runner.store.folder))
    runner.run(spec(seed=1), [SAMPLE])
    (second,) = marked_processes(str(runner.store.folder))
    assert (first, len(logs(runner))) != (second, 1)
    runner.run(spec(), [TokenizeJob()])
    assert len(logs(runner)) == 3
    runner.close()
    assert not alive(runner.store.folder)


def test_a_loaded_engine_that_ended_is_loaded_again(runner: EngineRunner) -> None:
    runner.loaded.idle_seconds = 0.05
    (sampled,) = runner.run(spec(), [SAMPLE])
    deadline = time.monotonic() + 60
    while alive(runner.store.folder):  # it ends without a request
        assert time.monotonic() < deadline
        time.sleep(0.05)
    runner.loaded.idle_seconds = 60.0
    runner.run(spec(), [TokenizeJob()])
    (process,) = marked_processes(str(runner.store.folder))
    os.kill(process, signal.SIGKILL)
    (scored,) = runner.run(spec(), [ScoreJob(rollouts=sampled)])
    assert len(shard_paths(scored)) == 3
    assert list(marked_processes(str(runner.store.folder))) != [process]


def test_a_job_that_only_a_loaded_engine_fails_at_is_repeated(
    runner: EngineRunner, tmp_path: Path
) -> None:
    engine = spec(fault="die", at="score", once=str(tmp_path / "died"))
    (sampled,) = runner.run(engine, [SAMPLE])
    (scored,) = runner.run(engine, [ScoreJob(rollouts=sampled)])
    assert len(shard_paths(scored)) == 3


@pytest.mark.parametrize("is_working", [False, True])
def test_an_engine_ends_with_the_probe_that_started_it(tmp_path: Path, *, is_working: bool) -> None:
    engine = f"program:{ENGINE}?model=x" + ("&fault=hang" if is_working else "")
    program = (
        "import os, signal, sys, threading, time; from pathlib import Path\n"
        "from grpodoctor.probe.engines.engine_runner import EngineRunner\n"
        "from grpodoctor.probe.inputs.engine_spec import EngineSpec\n"
        "from grpodoctor.probe.engines.jobs import TokenizeJob\n"
        f"folder = Path({str(tmp_path / 'lab')!r})\n"
        "def die():\n"
        "    while not list(folder.rglob('*answer*.json')):  # the engine is loaded\n"
        "        time.sleep(.05)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"if {is_working}:\n"
        "    threading.Thread(target=die).start()\n"
        f"with EngineRunner(folder, [{{'text': 'x'}}]) as runner:\n"
        f"    runner.run(EngineSpec.parse({engine!r}), [TokenizeJob()])\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 60
    while alive(tmp_path / "lab"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


SLOW_START = f"""
import os, sys, time
sys.path.insert(0, {str(ENGINE.parents[2] / "probes")!r})
import contract
print("loaded", flush=True)
probe = os.environ["GRPODOCTOR_PROBE_PID"]
while open(f"/proc/{{probe}}/stat").read().rpartition(")")[2].split()[0] not in "ZX":
    time.sleep(0.01)  # importing takes longer than the probe lives
contract.serve(lambda *_: time.sleep(600))
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds them in /proc")
def test_an_engine_ends_with_a_probe_that_was_killed_while_it_started(tmp_path: Path) -> None:
    """The probe remains as a zombie, because nobody waits for it."""
    engine = tmp_path / "engine.py"
    engine.write_text(SLOW_START)
    probe = begin_to_hang(tmp_path / "lab", engine=engine)
    probe.kill()
    deadline = time.monotonic() + 60
    while alive(tmp_path / "lab"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    probe.communicate(timeout=60)
