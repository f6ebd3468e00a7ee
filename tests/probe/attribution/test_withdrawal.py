"""Edits that imitate a part of a gap are withdrawn; see docs/attribution-method.md, step 10."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpodoctor.probe.attribution.case import Attribution
from grpodoctor.probe.attribution.investigate import investigate
from grpodoctor.probe.contract import Response
from grpodoctor.probe.engines.jobs import Job, ScoreJob, WhatIfsJob
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.probe.attribution.scripted import Scripted, case_of, processed

SAMPLER = EngineSpec.of("vllm", "m", {})
LEARNER = EngineSpec.of("transformers", "m", {})
EDIT = {"name": "activation", "values": ["gelu"], "kind": "choice"}


@dataclass
class Editable(Scripted):
    """The sampler's logits have an error, of which the learner's edit imitates a part."""

    imitated: float = 0.0
    """The part, as a factor on the error."""

    def _done(self, engine: EngineSpec, job: Job) -> Path:
        folder = super()._done(engine, job)
        if isinstance(job, WhatIfsJob):
            (folder / "what_ifs.json").write_text(json.dumps([EDIT]))
        return folder

    def _scored(self, engine: EngineSpec, response: Response, job: ScoreJob) -> Response:
        scored = super()._scored(engine, response, job)
        if job.what_if and EDIT["name"] in job.what_if:
            plain_NV, erring_NV = (self.seen(each, response) for each in (LEARNER, SAMPLER))
            logits_NV = plain_NV + self.imitated * (erring_NV - plain_NV)
            ids_N = np.asarray(response.response_ids)
            logprobs_NV = processed(logits_NV, job.processing)
            scored.logprobs = logprobs_NV[np.arange(ids_N.size), ids_N].tolist()
        return scored


def erring(engine: EngineSpec, logits_NV: Any, generator: np.random.Generator) -> Any:
    """Logits of other weights in the sampler."""
    return logits_NV + 0.3 * (engine.engine == "vllm") * generator.standard_normal(logits_NV.shape)


def found_with(imitated: float, folder: Path) -> Attribution:
    """The result if the edit imitates a part of the error."""
    runner = Editable(folder, erring, imitated=imitated)
    return investigate(runner, case_of(runner, SAMPLER, LEARNER, differing=("a.weight",)))


@pytest.mark.slow
@pytest.mark.parametrize("imitated", [0.35, 0.6])
def test_an_edit_that_imitates_a_part_of_the_gap_is_withdrawn(
    imitated: float, tmp_path: Path
) -> None:
    found = found_with(imitated, tmp_path)
    assert [(each.cause, each.confidence) for each in found.causes] == [("stale-weights", "likely")]
    assert found.left == pytest.approx(1.0)
    assert "activation" not in found.verdict


@pytest.mark.parametrize(("imitated", "confidence"), [(0.8, "likely"), (1.0, "proven")])
def test_an_edit_that_leaves_little_of_the_gap_is_kept(
    imitated: float, confidence: str, tmp_path: Path
) -> None:
    first = found_with(imitated, tmp_path).causes[0]
    assert (first.cause, first.confidence) == ("activation", confidence)
