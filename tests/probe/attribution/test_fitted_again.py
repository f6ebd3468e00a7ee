"""Numbers, tensors and imitations that are tried again next to other causes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpodoctor.probe.attribution.base import ExperimentResult
from grpodoctor.probe.attribution.causes.weights.partial_sync import PartialSync
from grpodoctor.probe.attribution.edits import EditFamily
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.investigate import investigate
from grpodoctor.probe.attribution.search.edit_search import EditSearch
from grpodoctor.probe.attribution.search.edit_trials import Trial, nearer_number, refined_values
from grpodoctor.probe.attribution.search.refit_tensors import fitted_cause, tensor_edit
from grpodoctor.probe.attribution.search.selection import TriedCause, edit_key
from grpodoctor.probe.attribution.search.tensor_search import TensorSearch
from grpodoctor.probe.attribution.wording.naming import with_final_tensors
from grpodoctor.probe.contract import Response, Sampling
from grpodoctor.probe.engines.jobs import Job, ScoreJob, WhatIfsJob
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.results.results import NamedCause
from grpodoctor.probe.severity import EXACT
from tests.probe.attribution.cases import measured, plain
from tests.probe.attribution.in_process import InProcess
from tests.probe.attribution.scripted import Scripted, case_of
from tests.probe.plants.families import checkpoint, prompts

SAMPLER = EngineSpec.of("vllm", "m", {})
LEARNER = EngineSpec.of("transformers", "m", {})


@dataclass
class Edited(Scripted):
    """The sampler's logits have two errors; edits give the learner shares of them."""

    sizes: tuple[float, float] = (0.0, 0.0)
    offered: tuple[str, ...] = ("activation", "norm_offset", "qk_norm_order")

    def __post_init__(self) -> None:
        self.edits: list[Any] = []
        self.scored = 0
        """Scorings with edits."""

    def _done(self, engine: EngineSpec, job: Job) -> Path:
        self.edits = json.loads(job.what_if or "[]") if isinstance(job, ScoreJob) else []
        self.scored += bool(self.edits)
        folder = super()._done(engine, job)
        if isinstance(job, WhatIfsJob):
            listed = [{"name": name, "values": ["on"], "kind": "choice"} for name in self.offered]
            (folder / "what_ifs.json").write_text(json.dumps(listed))
        return folder

    def seen(self, engine: EngineSpec, response: Response) -> Any:
        seen_NV = super().seen(engine, response)
        generator = np.random.default_rng((4, response.prompt, response.sample))
        for place, size in enumerate(self.sizes):
            error_NV = size * generator.standard_normal(seen_NV.shape)
            shares = [_share(edit, place) for edit in self.edits]
            seen_NV = seen_NV + error_NV * (1.0 if engine.engine == "vllm" else sum(shares))
        return seen_NV


_SHARES = {"activation": (1.0, 0.0), "norm_offset": (0.99, 0.3), "qk_norm_order": (0.0, 1.0)}
"""Edits: the exact first error, nearly it and a part of the second one, the exact second error."""


def _share(edit: Any, place: int) -> float:
    name, value = edit
    if name == "attention_scale":
        return float(value) - 1 if place == 0 else 0.0
    return _SHARES.get(name, (0.0, 0.0))[place]


def as_it_is(_: EngineSpec, logits_NV: Any, __: Any) -> Any:
    return logits_NV


@pytest.mark.slow
def test_an_edit_that_closes_the_gap_replaces_one_that_leaves_an_error(tmp_path: Path) -> None:
    """The nearly right one also removes a part of the second fault, so it was found first."""
    runner = Edited(tmp_path, as_it_is, sizes=(0.5, 0.08))
    found = investigate(runner, case_of(runner, SAMPLER, LEARNER))
    named = {each.cause: each.confidence for each in found.causes}
    assert named == {"activation": "proven", "qk-norm": "proven"}
    assert found.left == pytest.approx(0.0, abs=1e-6)


def test_an_edit_with_a_rival_is_not_proven_unless_the_gap_is_closed(tmp_path: Path) -> None:
    """The nearly right one fits better, because it also removes a part of an unknown fault."""
    runner = Edited(tmp_path, as_it_is, sizes=(0.5, 0.04), offered=("activation", "norm_offset"))
    found = investigate(runner, case_of(runner, SAMPLER, LEARNER))
    assert {each.cause: each.confidence for each in found.causes} == {"norm-offset": "likely"}


@pytest.mark.parametrize(("second", "least", "most"), [(0.3, 0, 40), (0.0, 41, 100)])
def test_a_number_is_refined_only_as_long_as_that_lowers_the_gap(
    second: float, least: int, most: int, tmp_path: Path
) -> None:
    """If no edit removes the second error, the gap around the best number is soon flat."""
    runner = Edited(tmp_path, as_it_is, sizes=(0.3, second))
    experiments = Experiments(runner, case_of(runner, SAMPLER, LEARNER))
    search = EditSearch(experiments, experiments.first())
    values = (0.25, 0.5, 1.2, 1.5, 2.5, 4.0)
    runner.scored = 0
    (best,) = search.best([EditFamily("attention_scale", values, "number", 1.0)])
    assert json.loads(best.edit[1]) == pytest.approx(2.0, rel=0.02)
    assert least <= runner.scored <= most


@dataclass
class Generating(Edited):
    """Counts passes token by token; decoys move the log-probabilities away from the sampler's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.token_by_token: set[str] = set()

    def seen(self, engine: EngineSpec, response: Response) -> Any:
        seen_NV = super().seen(engine, response)
        names = [name for name, _ in self.edits]
        if "generated" in names:
            self.token_by_token.update(names)
        for name in names:
            if name.startswith("decoy"):
                generator = np.random.default_rng((int(name[5:]), response.prompt, response.sample))
                seen_NV = seen_NV + 0.1 * generator.standard_normal(seen_NV.shape)
        return seen_NV


def test_few_edits_are_tried_token_by_token(tmp_path: Path) -> None:
    """One pass over whole sequences shows which; an edit that does nothing there is tried, too."""
    runner = Generating(tmp_path, as_it_is, sizes=(0.5, 0.0))
    experiments = Experiments(runner, case_of(runner, SAMPLER, LEARNER))
    first = experiments.vary(experiments.first(), edits=(("generated", "true"),))
    names = [*(f"decoy{number}" for number in range(30)), "activation", "cache"]
    search = EditSearch(experiments, first)
    best, *_ = search.best([EditFamily(name, ("on",), "choice") for name in names])
    assert [name for name, _ in best.after.setup.edits] == ["generated", "activation"]
    assert {"activation", "cache"} < runner.token_by_token
    assert len(runner.token_by_token) == len(("generated", "cache")) + 12


def test_few_numbers_of_the_regression_are_tried() -> None:
    trial = Trial(EditFamily("attention_scale", (1.0, 2.0), "number", 1.0))
    trial.gaps = {"1.0": 1.0, "2.0": 0.5, "4.0": 2.0}
    distinct = [(0.1 * number, 2.5 + 0.0123 * number) for number in range(9)]
    trial.guesses = [*distinct, (0.75, distinct[8][1] + 1e-6)]
    tried = set(refined_values(trial))
    assert {number for _, number in distinct} & tried == {number for _, number in distinct[6:]}
    assert not trial.guesses


def test_tensors_are_searched_again_next_to_later_causes(tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "model", "llama")
    older = checkpoint(tmp_path / "older", "llama", changed=0.15)
    stale = {"weights": str(older), "weights_only": r"layers\.1\."}
    with InProcess(tmp_path / "runner", prompts(12)) as runner:
        sampling = Sampling(samples=2, max_tokens=24)
        case = measured(runner, plain(model, **stale), plain(model), sampling)
        experiments = Experiments(runner, case)
        first = experiments.first()
        names = experiments.tensor_names(first.setup.learner)
        whole = frozenset(name for name in names if ".layers.1." in name)
        part = frozenset(name for name in whole if "norm" not in name)
        search = TensorSearch(experiments, first, older, sorted(names))
        before = experiments.vary(first, edits=(("norm_epsilon", "0.01"), search.edit(part)))
        after = experiments.vary(first, edits=(search.edit(part),))
        tried = TriedCause(PartialSync(), ExperimentResult(summary="", after=after), 0.5, 1.0)
        fitted = fitted_cause(experiments, tried, before, after, first.setup).outcome.after
        named = with_final_tensors(experiments, _PARTIAL, fitted)
    assert fitted is not None
    edit = tensor_edit(fitted.setup.edits)
    assert edit is not None
    assert edit_key(edit) == edit_key(search.edit(part))
    pattern = json.loads(edit[1])["only"]
    assert {name for name in names if re.search(pattern, name)} == whole
    assert fitted.gap < EXACT < after.gap
    assert named.details == ("layer 1", "only in some responses")
    assert "with layer 1 of older in the learner" in named.summary
    assert named.figures == {"gap_before": 0.1, "tensors": float(len(whole))}


_PARTIAL = NamedCause(
    cause="partial-sync", title="", confidence="proven", explained=0.9, summary="with a part",
    details=("layer 1 attention", "only in some responses"),
    figures={"gap_before": 0.1, "tensors": 2.0},
)  # fmt: skip


def test_a_number_is_tried_nearer_if_the_listed_ones_change_too_much() -> None:
    trial = Trial(EditFamily("adapter", (0.0, 2.0), "number", 1.0))
    trial.gaps = {"0.0": 2.0, "2.0": 0.8}
    assert nearer_number(trial) is None  # nothing suggests a number
    trial.guesses += [(0.2, 1.1), (0.4, 1.2764)]
    nearer = nearer_number(trial)
    assert nearer is not None
    assert (nearer.value, nearer.explained) == (1.28, 0.4)


def test_a_number_next_to_a_listed_one_is_left_to_the_refinement() -> None:
    trial = Trial(EditFamily("adapter", (0.0, 2.0), "number", 1.0))
    trial.gaps = {"0.0": 2.0, "2.0": 0.1}
    trial.guesses.append((0.9, 1.9))
    assert nearer_number(trial) is None
    integer = Trial(EditFamily("window", (4, 64), "integer"))
    integer.gaps = {"4": 2.0, "64": 0.8}
    integer.guesses.append((0.9, 60.0))
    assert nearer_number(integer) is None
