"""What a single cause finds in a pair with a planted fault."""

from __future__ import annotations

from pathlib import Path

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.contract import Sampling
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.probe.attribution.cases import measured, plain
from tests.probe.attribution.in_process import InProcess
from tests.probe.plants.families import checkpoint, prompts

ENGINE = Path(__file__).parents[1] / "plants" / "planted_engine.py"


def found_by(cause: Cause, root: Path, family: str, fault: str) -> ExperimentResult | None:
    """Plant a fault in the sampler, and let the cause alone explain the gap."""
    model = checkpoint(root / family, family)
    options = {"model": str(model), "faults": fault, "threads": 1}
    sampler = EngineSpec.of("program", str(ENGINE), options)
    with InProcess(root / "runner", prompts(12)) as runner:
        sampling = Sampling(samples=2, max_tokens=16)
        experiments = Experiments(runner, measured(runner, sampler, plain(model), sampling))
        first = experiments.first()
        assert cause.hypothesize(experiments, first)
        return cause.experiment(experiments, first, Hypothesis(1.0))
