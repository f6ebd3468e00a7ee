"""A handmade result of a probe, for tests of its reports."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from grpodoctor.probe.engines.engine_facts import EngineFacts
from grpodoctor.probe.results.results import (
    Bin,
    Cell,
    Comparison,
    Control,
    ExpertComparison,
    Interval,
    LayerFlips,
    NamedCause,
    ProbeResult,
    PromptGap,
    Replayed,
    WorstResponse,
)
from grpodoctor.probe.severity import EXACT
from grpodoctor.vocabulary.values import Max, Mean, NotApplicable, Rate

HOSTILE = "<script>alert(1)</script>\x1b[31m[bold]\u202e"


def facts(name: str, dtype: str, **layout: int) -> EngineFacts:
    return EngineFacts(
        name, "1.2", "models/tiny", dtype, "cpu", layout, 64, (1,), None, 512, "raw",
        {"attention": "sdpa"}, "3.11.2", 3.4,
    )  # fmt: skip


def comparison(scale: float = 1.0, *, experts: bool = True) -> Comparison:
    rng = np.random.default_rng(3)
    sampler = -rng.exponential(0.8, 400)
    learner = sampler + rng.normal(0, 0.05 * scale, 400)
    mean = Interval(8e-4 * scale, 7e-4 * scale, 9e-4 * scale)
    return Comparison(
        prompts=16,
        responses=64,
        tokens=6144,
        readings={
            "mismatch/prob_diff_mean": Mean.of([8e-4 * scale]),
            "mismatch/prob_diff_max": Mean.of([2.2e-2 * scale]),
            "mismatch/prob_diff_max/worst_sequence": Max.of([0.15 * scale], ["p3-s1"]),
            "mismatch/logprob_diff_mean": Mean.of([4e-3 * scale]),
            "mismatch/bias": Mean.of([1e-4]),
            "mismatch/kl_k1": Mean.of([-1e-4]),
            "mismatch/kl_k3": Mean.of([3e-4 * scale]),
            "mismatch/chi2": Mean.of([6e-4]),
            "mismatch/ess": Mean.of([0.998]),
            "mismatch/pearson": NotApplicable("the probabilities of one side are all equal"),
            "mismatch/far_rate": Rate(3, 6144),
            "mismatch/nonfinite": Rate(0, 6144),
        },
        intervals={"mismatch/prob_diff_mean": mean},
        by_position=tuple(
            Bin(low, low + 16, 1024, 8e-4 * scale * (1 + low / 48), 4e-3, 0.1)
            for low in range(0, 96, 16)
        ),
        by_probability=tuple(
            Bin(low, low + 0.25, 1536, 8e-4 * scale, 4e-3, 0.1) for low in (0, 0.25, 0.5, 0.75)
        ),
        worst_prompts=(PromptGap(3, 4, 2e-3, 1e-2, 0.15),),
        worst=(
            WorstResponse(
                3, 1, 0.15 * scale, 1e-2, 2, (5, 6, 7), (-0.1, -0.2, -1.5), (-0.1, -0.25, -0.9),
                ("1", "+", HOSTILE), f"say {HOSTILE}",
            ),
        ),
        scatter=tuple(zip(sampler.tolist(), learner.tolist(), strict=True)),
        effects={
            "tis_token/2": 5e-4,
            "tis_token/2/lost": 1e-4,
            "gspo_clip/0.0003_0.0004": 0.31,
            "ppo_clip/0.2_0.28": math.nan,
        },
        experts=_experts() if experts else None,
        entropy_z=0.4,
    )  # fmt: skip


def _experts() -> ExpertComparison:
    layers = tuple(
        LayerFlips(layer, 0.99 - layer / 50, 0.02 * (layer + 1), 0.01, 0.4) for layer in range(3)
    )
    return ExpertComparison(
        6144, 1.0, 0.05, 0.012, layers, 3e-2, 2e-3, 0.4, ((0.0, 0.1, 0.3, 500),)
    )


REPLAYED = Replayed(
    responses=64,
    tokens=6144,
    experts=replace(_experts(), coverage=0.98, agreement=1.0),
    kl_k3_before=3e-4,
    kl_k3_after=2e-5,
    prob_diff_before=8e-4,
    prob_diff_after=1e-4,
)
CAUSE = NamedCause(
    cause="precision",
    title="The engines compute in different precisions",
    confidence="proven",
    explained=0.97,
    summary="With the learner in bfloat16 k3 falls from 3.0e-04 to 9.0e-06.",
    details=("sampler bfloat16", f"learner float32 {HOSTILE}"),
    figures={"k3_before": 3e-4, "k3_after": 9e-6},
    remedies=("Sample in float16 or float32.", "Cap importance weights at 2 (TIS)."),
)
CONTROLS = (
    Control("self_scoring", "The sampler scores its own tokens", True, "All 6,144 tokens agree."),
    Control("repeat", "The learner twice", True, "All agree."),
    Control("stale_weights", "A learner with stale weights", False, "It was not flagged."),
    Control("same_weights", "The same weights on both sides", None, "The server tells no files."),
)


def result() -> ProbeResult:
    cells = [
        Cell(sampler=f"vllm:tiny?dtype={dtype}", learner=f"transformers:tiny?dtype={other}",
             max_tokens=length, status="done", comparison=comparison(scale), controls=CONTROLS,
             causes=(CAUSE,), verdict="They differ by more than rounding: precision.",
             remedies=("Cap importance weights at 2 (TIS).",), gap=3e-4 * scale, noise=EXACT)
        for length in (96,)
        for dtype, other, scale in (("bfloat16", "float32", 1.0), ("float32", "float32", 1e-4),
                                    ("bfloat16", "bfloat16", 0.5), ("float32", "bfloat16", 0.9))
    ]  # fmt: skip
    broken = Cell(
        sampler="vllm:tiny?dtype=int8", learner="transformers:tiny?dtype=float32", max_tokens=96,
        status="failed", reason=f"the engine died: {HOSTILE}",
    )  # fmt: skip
    return ProbeResult(
        created="2026-11-21T15:00:00Z",
        settings={"samples": 4, "max_tokens": 96, "temperature": 1.0, "seed": 0},
        engines={
            "vllm:tiny?dtype=bfloat16": facts("vllm", "bfloat16", tensor_parallel=2),
            "transformers:tiny?dtype=float32": facts("transformers", "float32"),
        },
        cells=(*cells, broken),
        seconds=61.5,
        notes=("2 prompts were longer than the context and left out",),
    )
