"""The observed loss for prime-rl, with the calls of its commit 559b4477 (v0.8.1).

`prime_rl.trainer.rl.loss.compute_loss` calls the loss once per sample with `LossInputs`, then the
trainer calls `asyncio.run(monitors.log(row, step=step))` for five rows. prime-rl is not packaged,
so its modules are replaced by the parts that the hook uses.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import grpodoctor
from grpodoctor.hooks.prime_rl import observed_loss
from grpodoctor.vocabulary.values import scalar


@dataclass
class LossInputs:
    trainer_logprobs: Any
    inference_logprobs: Any
    ref_logprobs: Any
    advantages: Any
    loss_mask: Any
    loss_weights: Any = None


def own_loss(config: Any) -> Any:
    """Stands for `setup_rl_loss_fn`: a loss with one setting."""

    def compute(inputs: LossInputs) -> Any:
        ratio = (inputs.trainer_logprobs - inputs.inference_logprobs).exp()
        kept = inputs.loss_mask & ((ratio - 1).abs() < config.dppo_mask_high)
        loss = -(kept * inputs.advantages * ratio).sum()
        return SimpleNamespace(loss=loss, metrics={"is_masked": (~kept).float().mean()})

    return compute


@pytest.fixture(autouse=True)
def monitors(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    modules = {name: ModuleType(name) for name in (
        "prime_rl", "prime_rl.configs", "prime_rl.configs.trainer", "prime_rl.trainer",
        "prime_rl.trainer.rl", "prime_rl.trainer.rl.loss", "prime_rl.monitors",
    )}  # fmt: skip
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    modules["prime_rl.configs.trainer"].DefaultLossConfig = SimpleNamespace  # type: ignore[attr-defined]
    modules["prime_rl.trainer.rl.loss"].setup_rl_loss_fn = own_loss  # type: ignore[attr-defined]
    registered: list[Any] = []
    modules["prime_rl.monitors"].MONITORS = registered  # type: ignore[attr-defined]
    yield registered
    observed_loss._own_loss.cache_clear()
    observed_loss._recorder.cache_clear()


def sample(seed: int, advantage: float, length: int = 6) -> LossInputs:
    random = torch.Generator().manual_seed(seed)
    sampler = -torch.rand(length, generator=random)
    learner = (sampler + 0.1 * torch.randn(length, generator=random)).requires_grad_()
    mask = torch.arange(length) >= 2
    return LossInputs(learner, sampler, None, torch.full((length,), advantage), mask)


def train(monitors: list[Any], run_dir: Path | None, steps: int = 3) -> list[Any]:
    """The trainer's calls; returns losses and gradients."""
    settings = {"dppo_mask_high": 0.15}
    done = []
    for step in range(steps):
        inputs = [sample(10 * step + row, advantage) for row, advantage in enumerate((1.0, -0.5))]
        if run_dir is None:
            outputs = [own_loss(SimpleNamespace(**settings))(each) for each in inputs]
        else:
            kwargs = {"loss": "default", "run_dir": str(run_dir), **settings}
            outputs = [observed_loss.loss(each, **kwargs) for each in inputs]
        sum(each.loss for each in outputs).backward()
        done += [(each.loss.item(), each.metrics) for each in outputs]
        done += [each.trainer_logprobs.grad for each in inputs]
        rows = [{"perf/throughput": 1e4}, {"optim/lr": 1e-6, "optim/grad_norm": 0.5 + step},
                {"entropy/all/mean": 0.4, "mismatch_kl/all/mean": 9.0, "is_masked/mean": 0.1},
                {"time/step": 3.0}]  # fmt: skip
        for row in rows:
            for monitor in monitors:  # as in `monitors.log`
                asyncio.run(
                    monitor.log({**row, "step": step}, step=step, kind="train", subset="effective")
                )
    for monitor in monitors:
        asyncio.run(monitor.finalize())
    return done


def test_loss_gradient_and_metrics_are_those_of_the_loss_behind(
    monitors: list[Any], tmp_path: Path
) -> None:
    observed, own = train(monitors, tmp_path / "run"), train([], None)
    assert len(observed) == 12
    for mine, theirs in zip(observed, own, strict=True):
        assert torch.equal(mine, theirs) if torch.is_tensor(mine) else mine == theirs


def test_the_rows_of_a_step_are_joined_with_its_tokens(monitors: list[Any], tmp_path: Path) -> None:
    train(monitors, tmp_path / "run")
    run = grpodoctor.open_run(tmp_path / "run")
    records = list(run)
    assert [record.step for record in records] == [0, 1, 2]
    for record in records:
        inputs = [sample(10 * record.step + row, 1.0) for row in range(2)]
        ratios = torch.cat(
            [(each.trainer_logprobs - each.inference_logprobs)[2:] for each in inputs]
        ).double()
        expected = (ratios.exp() - ratios - 1).mean().item()
        values = record.values
        assert scalar(values["mismatch/kl_k3"]) == pytest.approx(expected, abs=1e-6)
        assert scalar(values["advantage/abs_max"]) == 1.0
        assert scalar(values["advantage/positive_rate"]) == 0.5
        assert scalar(values["optimizer/grad_norm"]) == 0.5 + record.step
        assert scalar(values["entropy/mean"]) == 0.4
        assert scalar(values["time/step"]) == 3.0
    assert run.manifest.framework == "prime-rl"


def test_without_monitors_the_loss_is_still_prime_rls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, "prime_rl.monitors")
    assert train([], tmp_path / "run") is not None
    assert "grpodoctor failed and is off from now on" in caplog.text


def test_damaged_tensors_switch_off_the_tokens_only(
    monitors: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpodoctor.hooks.prime_rl.loss_recorder.to_host", lambda _: 1 / 0)
    train(monitors, tmp_path / "run")
    run = grpodoctor.open_run(tmp_path / "run")
    assert [scalar(record.values["entropy/mean"]) for record in run] == [0.4, 0.4, 0.4]
    failed = [event.body for event in run.events if "failed_part" in event.body]
    assert failed[0]["failed_part"] == "tokens"
