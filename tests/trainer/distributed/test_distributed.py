"""Two ranks train what one process trains, and always end together.

The tests use real gloo and FSDP2 on the CPU, and torchrun where a launcher is the subject.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from grpodoctor.errors import ConfigError, DataError, GrpodoctorError, MissingExtraError, RankError
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.runs.records import EVENTS, STEPS, StepRecord
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.distributed.ranks import (
    SINGLE_PROCESS,
    Ranks,
    detecting_lost_ranks,
    ranks_from_environment,
)
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.checkpoint import checkpoints, saved_config
from grpodoctor.trainer.model.policy import _refuse_crowding
from grpodoctor.trainer.rollout import join_rewards
from grpodoctor.trainer.task import Rewards
from grpodoctor.treatment.mailbox import Mailbox
from grpodoctor.treatment.requests import Request
from grpodoctor.vocabulary.values import Mean, Reading
from tests.forked import GRPODOCTOR, Forked, forked_ranks
from tests.samples import sampled

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
TRAIN = ("-m", "grpodoctor", "train", "--run-dir")

SMALL = (
    *("threads=1", "model.warm_start_steps=30", "evaluation.prompts=3", "evaluation.every=2"),
    *("rollout.prompts_per_batch=5", "rollout.group_size=3", "optimizer.updates_per_batch=3"),
    # A reward for short responses gives a gradient even if no answer is right.
    *("overlong.kind=soft-punishment", "overlong.buffer=28"),
)
"""Neither the rows of a batch nor those of a mini-batch, 3 or 6, divide evenly into pieces of 2."""

MIXTURE = (
    *("model.experts=4", "model.warm_start_steps=0", "steps=2"),
    *("rollout.max_length=12", "overlong.buffer=12"),
)
PAIRS = {
    "dapo": (
        *("rollout.dynamic_sampling=true", "rollout.resample_limit=2", "optimizer.micro_batch=2"),
        *("loss.kl_coefficient=0.1", "loss.entropy_coefficient=0.01", "overlong.buffer=3"),
        *("loss.aggregation=token-mean", "steps=4", "checkpoint.every=2"),
    ),
    "a stale engine and a choice among all tokens": (
        *("engine.sync_every=2", "correction.kind=tis_token", "loss.kind=clip_cov", "steps=3"),
        *("loss.aggregation=prompt-mean", "evaluation.samples=2"),
    ),
    "adapters": (
        *("model.lora_rank=4", "loss.kl_coefficient=0.1", "loss.aggregation=prompt-mean"),
        *("model.gradient_checkpointing=true", "steps=2"),
    ),
    "a critic": (
        *("advantage.kind=gae", "critic.pretrain_steps=1", "optimizer.micro_batch=2"),
        *("overlong.buffer=27", "loss.positive_nll=0.1", "steps=3"),
    ),
    "what is drawn, shaped and left out": (
        *("rollout.filter_groups=true", "rollout.drop_duplicates=true", "repetition.penalty=0.5"),
        *("difficulty.every=1", "difficulty.high=0.5", "difficulty.retire_at=0.9"),
        *("loss.kl_placement=reward", "loss.kl_estimator=k1", "loss.kl_coefficient=0.1"),
        *("loss.entropy_target=20", "loss.entropy_step=0.05", "steps=3"),
    ),
    "active sampling": (
        *("rollout.dynamic_sampling=true", "rollout.refill=missing", "difficulty.every=1"),
        *("rollout.variance_of=correct", "loss.kl_estimator=k3_ratio", "loss.kl_coefficient=0.1"),
        "steps=2",
    ),
    "replay of the learner's experts": (*MIXTURE, "engine.routing_replay=R2"),
    "replay of the sampler's experts": (*MIXTURE, "engine.routing_replay=R3"),
    "a loss that compares routers": (*MIXTURE, "loss.kind=rspo"),
}
"""What one process and two must train alike."""

PROGRAM = """
import sys
from pathlib import Path
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.distributed.ranks import exit_rank, process_group, ranks_from_environment
from grpodoctor.trainer.loop import Trainer

ranks = ranks_from_environment()
with process_group(ranks, 120):
    for line in Path(sys.argv[1]).read_text().splitlines():
        name, *settings = line.split("|")
        Trainer(load_config(assignments=settings), Path(name), ranks=ranks).run()
exit_rank(ranks)
"""


@contextmanager
def started(*command: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """torchrun in its own session; all of its processes are ended."""
    process = subprocess.Popen(
        [sys.executable, *TORCHRUN, *command],
        cwd=cwd,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        ranks = children(process)  # afterwards their parent is unknown
        process.kill()
        process.wait(timeout=120)
        for rank in ranks:
            with suppress(ProcessLookupError):
                os.kill(rank, signal.SIGKILL)


def children(process: subprocess.Popen[str]) -> list[int]:
    """The ranks, which torchrun starts in sessions of their own."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process.pid:
            found.append(int(status.parent.name))
    return found


def train(run_dir: Path, *assignments: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
    """Train with two ranks; returns the exit code and stderr."""
    settings = [part for each in assignments for part in ("--set", each)]
    command = (*TRAIN, str(run_dir), *options, *settings)
    with started(*command, cwd=run_dir.parent) as process:
        _, said = process.communicate(timeout=150)
    return process.returncode, said


def alone(run_dir: Path, *assignments: str) -> Path:
    Trainer(load_config(assignments=assignments), run_dir).run()
    return run_dir


def saved(run_dir: Path) -> dict[str, Tensor]:
    """All tensors of the newest checkpoint."""
    newest = checkpoints(run_dir)[-1]
    files = {path.name: load_file(path) for path in newest.glob("*.safetensors")}
    return {f"{file}/{name}": each for file, all_ in files.items() for name, each in all_.items()}


def assert_same_weights(left: Path, right: Path) -> None:
    """The mean gradients to 1e-5 of the largest, and 999 of 1,000 weights to 1e-5.

    The gradients are the stricter test: AdamW divides each by its own size, so that the rounding
    of a gradient near zero can move its weight by a whole step.
    """
    one, other = saved(left), saved(right)
    assert one.keys() == other.keys()
    gaps = {name: (each.float() - other[name].float()).abs() for name, each in one.items()}
    means = [name for name in one if "exp_avg" in name]
    largest = max(float(one[name].abs().max()) for name in means)
    assert largest > 0
    for name in means:
        assert float(gaps[name].max()) < 1e-5 * largest, name
    weights = torch.cat([gap.flatten() for name, gap in gaps.items() if name not in means])
    assert float((weights > 1e-5).float().mean()) < 1e-3


def numbers(values: Mapping[str, Reading]) -> dict[str, float]:
    """The means of a step that do not depend on the clock."""
    return {
        name: float(value.value)
        for name, value in values.items()
        if isinstance(value, Mean) and not name.startswith("time/")
    }


def assert_same_records(left: Path, right: Path) -> None:
    one, other = read_run(left), read_run(right)
    mine, theirs = ({step.step: step.values for step in run.steps} for run in (one, other))
    assert mine.keys() == theirs.keys() != set()
    for step, values in mine.items():
        assert values.keys() == theirs[step].keys()
        assert numbers(values) == pytest.approx(numbers(theirs[step]), rel=1e-3, abs=1e-5)
        drawn = [run.rollouts(step).select(["text", "reward"]) for run in (one, other)]
        assert drawn[0].equals(drawn[1])


Both = Callable[[str], tuple[Path, Path]]
QUICK = ("dapo", "adapters", "a critic", "replay of the sampler's experts")
"""The pairs that `make test` tries; `make test-slow` tries the others."""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """The runs of one process and of two ranks, by the name in `PAIRS`."""

    @cache
    def trained(quick: bool) -> Path:
        """The directory of all runs that are quick, or of all that are not."""
        folder = tmp_path_factory.mktemp("pairs")
        for name in ("one", "two"):
            (folder / name).mkdir()
        pairs = {name: each for name, each in PAIRS.items() if (name in QUICK) == quick}
        for name, settings in pairs.items():
            alone(folder / "one" / name, *SMALL, *settings)
        lines = ["|".join((name, *SMALL, *settings)) for name, settings in pairs.items()]
        (folder / "runs").write_text("\n".join(lines))
        with forked_ranks(PROGRAM, "../runs", cwd=folder / "two") as ranks:
            for rank in ranks:
                _, said = rank.communicate(timeout=200)
                assert rank.returncode == 0, said
        return folder

    def runs(name: str) -> tuple[Path, Path]:
        folder = trained(name in QUICK)
        return folder / "one" / name, folder / "two" / name

    return runs


@pytest.mark.parametrize("name", sampled(PAIRS, QUICK))
def test_two_ranks_train_the_weights_of_one_process(both: Both, name: str) -> None:
    assert_same_weights(*both(name))


@pytest.mark.parametrize("name", sampled(PAIRS, QUICK))
def test_two_ranks_sample_and_record_what_one_process_does(both: Both, name: str) -> None:
    assert_same_records(*both(name))


def test_the_dynamic_sampling_scenario_contains_flat_groups(both: Both) -> None:
    drawn = [mean_of(step, "groups/generated_per_kept") for step in read_run(both("dapo")[1]).steps]
    assert max(each or 0 for each in drawn) > 1


def without_newest(run_dir: Path, to: Path) -> Path:
    shutil.copytree(run_dir, to)
    shutil.rmtree(checkpoints(to)[-1])
    assert checkpoints(to)[-1].name == "step-000002"
    return to


def test_one_process_goes_on_with_a_checkpoint_of_two(both: Both, tmp_path: Path) -> None:
    part = without_newest(both("dapo")[1], tmp_path / "part")
    Trainer(saved_config(part), part, resume=True).run()
    assert_same_weights(both("dapo")[0], part)
    assert_same_records(both("dapo")[0], part)


@pytest.mark.slow
def test_two_ranks_go_on_with_a_checkpoint_of_one_process(both: Both, tmp_path: Path) -> None:
    part = without_newest(both("dapo")[0], tmp_path / "part")
    code, said = train(part, options=("--resume",))
    assert code == 0, said
    assert said.count("in each of 2 ranks; task arithmetic") == 1  # only the first rank prints
    assert said.count("4 steps done") == 1
    assert_same_weights(both("dapo")[0], part)
    assert_same_records(both("dapo")[0], part)


REWARD = """
import os, resource
from pathlib import Path

calls = 0

def leave_no_memory_on_the_second_rank(prompts, completions, answers):
    global calls
    calls += 1
    if calls == 4 and os.environ["RANK"] == "1":
        trainer = os.getppid()  # the function runs in a process of its own
        pages = int(Path(f"/proc/{trainer}/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + 2**20
        resource.prlimit(trainer, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    return [float(len(each) % 2) for each in completions]

def fail_on_the_second_rank(prompts, completions, answers):
    global calls
    calls += 1
    if calls == 4 and os.environ["RANK"] == "1":
        raise ValueError("no such answer")
    return [float(len(each) % 2) for each in completions]
"""


@pytest.mark.slow
def test_a_reward_that_fails_on_one_rank_ends_all_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text(REWARD)
    code, said = train(
        tmp_path / "run",
        *(*SMALL, "evaluation.every=0", "steps=50", "task.reward=judge:fail_on_the_second_rank"),
    )
    assert code != 0
    (line,) = [line for line in said.splitlines() if line.startswith("error: ")]
    assert "judge:fail_on_the_second_rank raised ValueError: no such answer" in line
    assert 'File "' not in said.partition("error: ")[0]  # torchrun's own report comes after it
    assert checkpoints(tmp_path / "run")[-1].name == "step-000003"
    events = list(read_run(tmp_path / "run").events)
    assert any("no such answer" in str(event.body.get("message")) for event in events)


@pytest.mark.slow
def test_a_rank_without_memory_ends_the_others_and_leaves_the_last_checkpoint(
    tmp_path: Path,
) -> None:
    (tmp_path / "judge.py").write_text(REWARD)
    code, said = train(
        tmp_path / "run",
        *(*SMALL, "evaluation.every=0", "steps=50", "checkpoint.every=1"),
        *("task.reward=judge:leave_no_memory_on_the_second_rank", "model.width=128"),
    )
    assert code != 0
    lines = sorted(line for line in said.splitlines() if line.startswith("error: "))
    assert len(lines) == 2, said
    assert "error: another rank of this run" in lines[0]
    assert "error: not enough memory" in lines[1]
    # The limit bites once the allocator wants more than it has: at once, or a step later.
    last = [record.step for record in read_run(tmp_path / "run").steps][-1]
    assert 3 <= last < 50
    assert checkpoints(tmp_path / "run")[-1].name == f"step-{last:06d}"


def wait_until(process: subprocess.Popen[str] | Forked, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not holds():
        assert process.poll() is None, process.communicate(timeout=240)[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def has(path: Path, text: bytes = b"") -> bool:
    return path.exists() and path.stat().st_size > 0 and text in path.read_bytes()


@pytest.mark.slow
def test_requests_reach_all_ranks_and_a_signal_ends_them_with_a_checkpoint(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    settings = [part for each in (*SMALL, "steps=100000") for part in ("--set", each)]
    with started(*TRAIN, str(run_dir), *settings, cwd=tmp_path) as process:
        wait_until(process, lambda: has(run_dir / STEPS))
        # A KL penalty makes each rank load a reference in the midst of the run.
        request = Request("r1", "apply", "t1", "by-hand", {"kl_coefficient": 0.2})
        Mailbox(run_dir).send(request)
        wait_until(process, lambda: has(run_dir / EVENTS, b"treatment-applied"))
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=240)
    assert "to continue: grpodoctor train --run-dir" in said
    run = read_run(run_dir)
    last = max(step.step for step in run.steps)
    assert checkpoints(run_dir)[-1].name == f"step-{last:06d}"
    assert list(run.events)[-1].kind == "finished"
    assert saved_config(run_dir).loss.kl_coefficient == 0.2
    with_penalty = [step for step in run.steps if mean_of(step, "kl/reference/k3") is not None]
    assert 0 < len(with_penalty) < last


def mean_of(step: StepRecord, name: str) -> float | None:
    value = step.values.get(name)
    return value.value if isinstance(value, Mean) else None


def test_a_rank_that_is_killed_ends_the_others(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    settings = [part for each in (*SMALL, "steps=100000") for part in ("--set", each)]
    train = ("train", "--run-dir", str(run_dir), *settings)
    with forked_ranks(GRPODOCTOR, *train, cwd=tmp_path) as (first, second):
        wait_until(first, lambda: has(run_dir / STEPS))
        second.kill()
        _, said = first.communicate(timeout=240)
    assert first.returncode not in {0, None}
    (line,) = [line for line in said.splitlines() if line.startswith("error: ")]
    assert "another rank of this run has ended or no longer answers (rank 0)" in line


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8])
def test_shares_cover_a_batch_once_and_are_equally_long(count: int) -> None:
    everyone = [Ranks(rank, 3) for rank in range(3)]
    assert [row for ranks in everyone for row in ranks.rows(count)] == list(range(count))
    shares = [ranks.share(count) for ranks in everyone]
    assert len({len(share.rows) for share in shares}) == 1
    assert torch.cat([share.rows[share.real] for share in shares]).tolist() == list(range(count))


def test_torchrun_sets_rank_and_world_size(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost"}
    for name in (*told, "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert ranks_from_environment() == SINGLE_PROCESS
    for name, value in told.items():  # without a port it is some scheduler's, not torchrun's
        monkeypatch.setenv(name, value)
        assert ranks_from_environment() == SINGLE_PROCESS
    monkeypatch.setenv("MASTER_PORT", "1")
    assert ranks_from_environment() == Ranks(1, 4)
    assert not ranks_from_environment().is_first


@pytest.mark.parametrize(
    ("device", "ranks_here", "is_refused"),
    [("auto", "2", False), ("auto", "3", True), ("cuda:1", "2", True), ("cpu", "3", False)],
)
def test_ranks_do_not_share_a_device(
    device: str, ranks_here: str, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks_here)
    config = load_config(assignments=[f"model.device={device}"])
    _refuse_crowding(config, SINGLE_PROCESS)
    expected = pytest.raises(ConfigError, match="a separate CUDA device") if is_refused else None
    with expected or nullcontext():
        _refuse_crowding(config, Ranks(0, 3))


@pytest.mark.parametrize(
    "error", [DataError("a", where="b", remedy="c"), MissingExtraError("training", "torch")]
)
def test_an_error_can_be_sent_to_another_process(error: GrpodoctorError) -> None:
    told = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (type(told), str(told), told.remedy) == (type(error), str(error), error.remedy)


def test_a_lost_connection_is_distinguished_from_other_failures() -> None:
    with pytest.raises(RankError, match="no longer answers"), detecting_lost_ranks():
        raise RuntimeError("[gloo/transport/tcp/pair.cc:537] Connection closed by peer")
    with pytest.raises(RuntimeError, match="shape"), detecting_lost_ranks():
        raise RuntimeError("a shape does not fit")


def test_scoring_in_parts_gives_the_same_rewards() -> None:
    lots = [
        Rewards([1.0], {"a": [1.0]}, [True]),
        Rewards([2.0, 3.0], {"b": [2.0, 3.0]}, [False] * 2),
    ]
    joined = join_rewards(lots)
    assert joined.total == [1, 2, 3]
    assert joined.components == {"a": [1, 0, 0], "b": [0, 2, 3]}
    assert joined.correct == [True, False, False]
    assert join_rewards([lots[0], Rewards([0.0])]).correct is None
