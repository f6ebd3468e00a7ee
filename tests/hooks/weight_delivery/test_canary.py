"""The canary with two real models: a learner that trains and the sampler's copy of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import grpodoctor
from grpodoctor.hooks.weight_delivery.canary import DeliveryCanary
from grpodoctor.hooks.weight_delivery.snapshots import TrainedWeights
from grpodoctor.rules.sync.corrupted_weights import CorruptedWeights
from grpodoctor.rules.sync.undelivered_weights import UndeliveredWeights
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import Max, Reading, scalar
from tests.rules.scenario import Patient

VOCABULARY, WIDTH, LENGTH, ROWS, SYNCS = 32, 16, 64, 8, 5
Weights = Mapping[str, Tensor]
Delivery = Callable[[Weights, Weights, int], Weights]


class Tower(nn.Module):
    """Four layers with two kinds of module each."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(
            nn.ModuleDict({"q_proj": nn.Linear(WIDTH, WIDTH), "v_proj": nn.Linear(WIDTH, WIDTH)})
            for _ in range(4)
        )
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embed(tokens)
        for layer in self.layers:
            inner = torch.tanh(layer["q_proj"](hidden))
            hidden = hidden + torch.tanh(layer["v_proj"](self.dropout(inner)))
        return self.head(hidden).log_softmax(-1)

    def scores(self, tokens: Tensor) -> Tensor:
        return self(tokens[:, :-1]).gather(-1, tokens[:, 1:, None])[..., 0]


def all_of(learner: Weights, _start: Weights, _sync: int) -> Weights:
    return learner


def nothing(_learner: Weights, start: Weights, _sync: int) -> Weights:
    return start


def without(part: str) -> Delivery:
    def deliver(learner: Weights, start: Weights, _sync: int) -> Weights:
        return {name: start[name] if part in name else each for name, each in learner.items()}

    return deliver


def shifted_from_the_second(learner: Weights, _start: Weights, sync: int) -> Weights:
    if sync < 2:
        return learner
    return {**learner, "head.weight": learner["head.weight"].roll(1, 0)}


def rounded_to(kind: torch.dtype) -> Delivery:
    """An engine of lower precision."""

    def deliver(learner: Weights, _start: Weights, _sync: int) -> Weights:
        return {name: each.to(kind).to(each.dtype) for name, each in learner.items()}

    return deliver


def scaled(start: float, growth: float = 0.0) -> Delivery:
    """An engine that flattens or sharpens every distribution, perhaps more and more."""

    def deliver(learner: Weights, _start: Weights, sync: int) -> Weights:
        factor = start + growth * sync
        return {name: factor * each if "head" in name else each for name, each in learner.items()}

    return deliver


def readings_of(
    deliver: Delivery,
    *,
    noise: float = 0.01,
    behind: int = 0,
    staleness: int = 0,
    syncs: int = SYNCS,
) -> list[dict[str, Reading]]:
    """Train, deliver and check; the sampler's log-probabilities are off by heavy-tailed noise."""
    torch.manual_seed(1)
    learner = Tower()
    sampler = copy.deepcopy(learner).eval()
    canary = DeliveryCanary(learner, learner.scores, staleness)
    optimizer = torch.optim.Adam(learner.parameters(), lr=3e-3)
    history: list[Weights] = []
    results = []
    for sync in range(syncs):
        history.append({name: each.clone() for name, each in learner.state_dict().items()})
        sent = history[max(0, sync - behind)]
        sampler.load_state_dict(deliver(sent, history[0], sync))
        tokens = sampled(sampler)
        scores = sampler.scores(tokens).detach().numpy()
        scores = scores + noise * np.random.default_rng(sync).standard_t(3, scores.shape)
        results.append(canary.check(tokens, scores, np.ones(scores.shape, bool)))
        for _ in range(2):
            even = (tokens[:, 1:] % 2 == 0).float() - 0.5
            loss = -(learner.scores(tokens) * even).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return results


@torch.no_grad()
def sampled(model: Tower) -> Tensor:
    tokens = torch.randint(0, VOCABULARY, (ROWS, 1))
    for _ in range(LENGTH):
        chances = model(tokens[:, -1:]).exp()[:, 0]
        tokens = torch.cat([tokens, torch.multinomial(chances, 1)], dim=1)
    return tokens


def patient(results: list[dict[str, Reading]]) -> Patient:
    return Patient([StepRecord(step, values) for step, values in enumerate(results)])


@pytest.mark.parametrize(
    ("deliver", "code", "named"),
    [
        (nothing, "SYN006", "of the learner's change since the start"),
        (without("v_proj"), "SYN006", "of the updates of v_proj"),
        (without("layers.2."), "SYN006", "of the updates of layer 2"),
        (shifted_from_the_second, "SYN007", "fit no weights of the learner"),
    ],
)
def test_a_fault_is_named_within_two_syncs(deliver: Delivery, code: str, named: str) -> None:
    first = 2 if code == "SYN007" else 1
    results = readings_of(deliver)[: first + 2]
    finding = patient(results).finding(code)
    assert finding.onset_step == first
    assert named in finding.summary
    other = {"SYN006", "SYN007"} - {code}
    assert patient(results).findings(other.pop()) == []


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.05])
@pytest.mark.parametrize("behind", [0, 1, 2])
def test_delivered_weights_are_quiet(noise: float, behind: int) -> None:
    results = readings_of(all_of, noise=noise, behind=behind, staleness=behind)
    for code in (UndeliveredWeights.code, CorruptedWeights.code):
        assert patient(results).findings(code) == []


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(rounded_to(torch.bfloat16), id="bfloat16"),
        pytest.param(rounded_to(torch.float8_e4m3fn), id="fp8", marks=pytest.mark.slow),
        pytest.param(scaled(0.97), id="flatter", marks=pytest.mark.slow),
        pytest.param(scaled(0.9), id="much flatter", marks=pytest.mark.slow),
        pytest.param(scaled(0.97, -0.002), id="flatter and flatter"),
        pytest.param(scaled(1.05), id="sharper", marks=pytest.mark.slow),
    ],
)
def test_an_engine_that_leans_is_no_fault_of_the_sync(engine: Delivery) -> None:
    found = patient(readings_of(engine, noise=0.002, syncs=16))
    findings = found.findings(UndeliveredWeights.code) + found.findings(CorruptedWeights.code)
    assert {finding.severity for finding in findings} <= {"info"}


def test_a_sampler_one_sync_behind_is_no_critical_finding() -> None:
    finding = patient(readings_of(all_of, behind=1)).finding("SYN006")
    assert finding.severity == "warning"


def test_the_shares_are_measured() -> None:
    last = readings_of(nothing)[-1]
    assert scalar(last["delivery/change_missing"]) == pytest.approx(1, abs=0.1)
    right = readings_of(all_of)[-1]
    assert scalar(right["delivery/change_missing"]) == pytest.approx(0, abs=0.1)
    assert scalar(right["delivery/noise"]) == pytest.approx(0.011, rel=0.2)  # of Student's t
    part = readings_of(without("v_proj"))[-1]["delivery/missing_part"]
    assert isinstance(part, Max)
    assert part.value == pytest.approx(1, abs=0.1)


def test_nothing_of_the_training_changes() -> None:
    torch.manual_seed(0)
    model = Tower()
    model.layers[1].eval()
    canary = DeliveryCanary(model, model.scores)
    before = {name: (each, each.clone()) for name, each in model.named_parameters()}
    modes = [each.training for each in model.modules()]
    state = torch.get_rng_state()
    tokens = torch.zeros(ROWS, LENGTH + 1, dtype=torch.long)
    canary.check(tokens, np.zeros((ROWS, LENGTH)), np.ones((ROWS, LENGTH), bool))
    canary.check(tokens, np.zeros((ROWS, LENGTH)), np.ones((ROWS, LENGTH), bool))
    assert torch.equal(state, torch.get_rng_state())
    assert modes == [each.training for each in model.modules()]
    for name, each in model.named_parameters():
        assert each is before[name][0]
        assert torch.equal(each, before[name][1])
        assert each.requires_grad


def test_weights_come_back_after_an_exception() -> None:
    model = Tower()
    trained = TrainedWeights(model)
    old = {name: torch.zeros_like(each) for name, each in trained.snapshot().items()}
    kept = model.head.weight
    with pytest.raises(ZeroDivisionError), trained.replaced(old):
        raise ZeroDivisionError
    assert model.head.weight is kept


def test_tied_weights_are_replaced_in_every_place() -> None:
    model = Tower()
    model.head.weight = model.embed.weight
    trained = TrainedWeights(model)
    with trained.replaced({"embed.weight": torch.zeros_like(model.embed.weight)}):
        assert not model.head.weight.any()


def test_large_weights_are_copied_in_part() -> None:
    model = Tower()
    matrix = 4 * WIDTH * WIDTH
    trained = TrainedWeights(model, budget=2 * matrix)
    assert trained.names == ["layers.1.q_proj.weight", "layers.3.q_proj.weight"]
    assert not trained.is_complete


def test_a_doctor_checks_a_loop(tmp_path: Path) -> None:
    torch.manual_seed(1)
    learner = Tower()
    sampler = copy.deepcopy(learner).eval()  # never receives anything
    doctor = grpodoctor.Doctor(tmp_path / "run")
    doctor.watch_delivery(learner, learner.scores)
    optimizer = torch.optim.Adam(learner.parameters(), lr=3e-3)
    with doctor:
        for number in range(3):
            with doctor.step(number) as step:
                tokens = sampled(sampler)
                mask = torch.ones(ROWS, LENGTH, dtype=torch.bool)
                step.delivery(tokens, sampler_logprobs=sampler.scores(tokens), mask=mask)
                optimizer.zero_grad()
                learner.scores(tokens).mean().backward()
                optimizer.step()
    (finding,) = [each for each in doctor.findings if each.code == "SYN006"]
    assert (finding.severity, finding.onset_step) == ("critical", 1)


def test_a_doctor_names_what_cannot_be_checked(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    model.requires_grad_(False)
    with grpodoctor.Doctor(tmp_path / "run") as doctor:
        doctor.watch_delivery(model, model)
        with doctor.step() as step:
            step.delivery(torch.zeros(1, 2), sampler_logprobs=[[0.0]], mask=[[1]])
    (event,) = [
        each for each in grpodoctor.open_run(tmp_path / "run").events if "missing" in each.body
    ]
    assert "no weights that are trained" in str(event.body)
