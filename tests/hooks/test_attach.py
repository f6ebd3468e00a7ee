"""`attach` with an adapter for a small trainer."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

import grpodoctor
from grpodoctor.errors import RunError
from grpodoctor.hooks import adapter, attach
from grpodoctor.hooks.adapter import Adapter, class_names
from grpodoctor.hooks.run_hook import RunHook
from grpodoctor.vocabulary.values import Mean


class SmallTrainer:
    """A trainer of a framework."""

    def __init__(self, output: Path) -> None:
        self.output, self.listeners, self.step = output, [], 0

    def train(self, steps: int) -> None:
        for _ in range(steps):
            for listener in self.listeners:
                listener()
            self.step += 1


class SmallAdapter(Adapter):
    framework = "small"
    instructions = "add one line"

    @classmethod
    def recognizes(cls, trainer: object) -> bool:
        return any(name.endswith("SmallTrainer") for name in class_names(trainer))

    def default_run_dir(self) -> Path:
        return self.trainer.output / "grpodoctor"

    def install(self, hook: RunHook) -> None:
        if self.trainer.step:
            raise RunError("the training has begun", remedy="attach before train()")
        hook.missing("entropy", "SmallTrainer has none")

        def listen() -> None:
            hook.begin(model="small")
            hook.begin_step(self.trainer.step)
            hook.end_step(self.trainer.step, {"reward/mean": Mean.of([1.0])})

        self.trainer.listeners.append(listen)


@pytest.fixture(autouse=True)
def small_adapter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    found = {"small": SmallAdapter}
    for module in (adapter, attach):
        monkeypatch.setattr(module, "adapters", lambda: found)
    yield
    gc.collect()


def test_one_line_records_the_training(tmp_path: Path) -> None:
    trainer = SmallTrainer(tmp_path)
    attachment = grpodoctor.attach(trainer)
    assert attachment.active
    trainer.train(3)
    assert attachment.report().verdict.kind == "too short"
    attachment.close()
    assert attachment.run_dir == tmp_path / "grpodoctor"
    assert attachment.missing == {"entropy": "SmallTrainer has none"}
    run = grpodoctor.open_run(tmp_path / "grpodoctor")
    assert [record.step for record in run] == [0, 1, 2]
    assert run.manifest.framework == "small"
    warnings = [event.body for event in run.events if event.kind == "warning"]
    assert warnings == [{"missing": "entropy", "why": "SmallTrainer has none"}]


def test_an_unknown_object_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    attachment = grpodoctor.attach(object())
    assert not attachment.active
    assert [each.getMessage() for each in caplog.records] == [
        "cannot attach to object: this class is not supported; supported frameworks: small; use "
        "grpodoctor.Doctor in a custom loop; the training runs without grpodoctor"
    ]
    assert attachment.findings == ()
    assert attachment.run_dir is None
    assert repr(attachment).startswith("<grpodoctor attachment: cannot attach")


def test_attaching_twice_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer = SmallTrainer(tmp_path)
    first, second = grpodoctor.attach(trainer), grpodoctor.attach(trainer, run_dir=tmp_path / "b")
    assert first is second
    assert len(trainer.listeners) == 1
    assert "already attached" in caplog.text


def test_attaching_after_the_training_began_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = SmallTrainer(tmp_path)
    trainer.train(1)
    assert not grpodoctor.attach(trainer).active
    assert "the training has begun; attach before train()" in caplog.text


def test_a_broken_adapter_does_not_stop_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(SmallAdapter, "install", lambda *_: {}["tap"])
    trainer = SmallTrainer(tmp_path)
    assert not grpodoctor.attach(trainer).active
    trainer.train(2)
    assert "KeyError" in caplog.text


def test_a_directory_that_cannot_be_written_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    trainer = SmallTrainer(tmp_path)
    attachment = grpodoctor.attach(trainer, run_dir=tmp_path / "file")
    trainer.train(2)
    assert trainer.step == 2
    assert attachment.findings == ()
    assert "not recorded: not a directory" in caplog.text


def test_adapters_are_found_without_importing_a_framework() -> None:
    names = class_names(SmallTrainer(Path()))
    assert {name.rpartition(".")[2] for name in names} == {"SmallTrainer", "object"}


@pytest.mark.parametrize("run_dir", [3, object(), ["runs"]])
def test_a_directory_that_is_no_path_does_not_stop_the_script(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    run_dir: object,
) -> None:
    monkeypatch.chdir(tmp_path)
    trainer = SmallTrainer(tmp_path)
    assert grpodoctor.attach(trainer, run_dir=run_dir).run_dir == tmp_path / "grpodoctor"
    with grpodoctor.Doctor(run_dir) as doctor, doctor.step(0):
        assert doctor.run_dir.parent == tmp_path / "runs"
    assert caplog.text.count("run_dir cannot be") == 2
