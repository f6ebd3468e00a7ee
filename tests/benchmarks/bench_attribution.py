"""Planted causes against named ones: engines that differ in one known way, and what is found.

Prints a row per pair; docs/attribution-results.md counts them by cause. `python -m
tests.benchmarks attribution` runs all plants; `python tests/benchmarks/bench_attribution.py NAME …`
those whose names begin so. vLLM's are left out where `.venv-vllm` is missing. Environment:
`GRPODOCTOR_BENCH_LAB` keeps the answers of the engines in a folder, so that another run goes on.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from grpodoctor.errors import GrpodoctorError  # noqa: E402  # after the path to it
from grpodoctor.probe.attribution.case import Attribution, Case  # noqa: E402
from grpodoctor.probe.attribution.investigate import investigate  # noqa: E402
from grpodoctor.probe.contract import Processing, Sampling  # noqa: E402
from grpodoctor.probe.inputs.engine_spec import EngineSpec  # noqa: E402
from tests.probe.attribution.cases import faulty, measured, plain  # noqa: E402
from tests.probe.attribution.in_process import InProcess  # noqa: E402
from tests.probes import models, quantised  # noqa: E402

VLLM = ROOT / ".venv-vllm" / "bin" / "python"
NONE = "none"
PROMPTS, SAMPLES, TOKENS = 32, 4, 96
LOW, CUT, NARROW, MIN = (
    {"temperature": 0.6},
    {"top_p": 0.8},
    {"top_k": 4},
    {"temperature": 0.8, "min_p": 0.1},
)


@dataclass(frozen=True)
class Plant:
    """A pair of engines and why they differ."""

    name: str
    cause: str
    sampler: EngineSpec
    learner: EngineSpec
    sampling: dict[str, Any] = field(default_factory=dict)
    processing: Processing | None = None
    stale: Path | None = None
    experts: bool = False
    chat: bool = False

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is to be named."""
        return self.cause == NONE


class Models:
    """The model directories that plants need, made once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.dense = self._made("dense", models.dense)
        self.moe = self._made("moe", models.moe)

    def _made(self, name: str, make: Any, *arguments: Any, **options: Any) -> Path:
        folder = self.root / name
        if not folder.exists():
            make(folder, *arguments, **options)
        return folder

    def variant(self, name: str, from_: Path | None = None, **options: Any) -> Path:
        """A changed copy of the dense model, or of another."""
        return self._made(name, models.variant, from_ or self.dense, **options)

    def quantised(self, bits: int) -> Path:
        """The dense model as a compressed-tensors checkpoint."""
        return self._made(f"int{bits}", getattr(quantised, f"int{bits}"), self.dense)


def vllm(model: Path, **options: Any) -> EngineSpec:
    """Real vLLM in its own environment."""
    given = {"dtype": "bfloat16", "max_model_len": 512, "max_num_seqs": 64, "python": str(VLLM)}
    return EngineSpec.of("vllm", str(model), given | options)


def settings_plants(at: Models) -> Iterator[Plant]:
    """Sampling settings, alignment and prompts: transformers on both sides."""
    dense, fine = at.dense, plain(at.dense)
    half = plain(dense, dtype="bfloat16")
    raw = Processing()
    yield Plant("hidden temperature 1.25", "temperature", faulty(dense, "hot"), fine)
    yield Plant("hidden temperature, bf16", "temperature", faulty(dense, "hot", dtype="bfloat16"),
                fine, {"temperature": 0.8})  # fmt: skip
    yield Plant("hidden temperature 1.03, bf16 both", "temperature",
                faulty(dense, "warm", dtype="bfloat16"), half)  # fmt: skip
    yield Plant("learner left at 1", "temperature", half, fine, {"temperature": 0.7}, raw)
    yield Plant("raw at 0.6", "raw-logprobs", faulty(dense, "raw"), fine, LOW)
    yield Plant("raw at 1.3, bf16", "raw-logprobs", faulty(dense, "raw", dtype="bfloat16"), fine,
                {"temperature": 1.3})  # fmt: skip
    yield Plant("top-p 0.8", "truncation", half, fine, CUT)
    yield Plant("min-p 0.1 at 0.8", "truncation", plain(dense), fine, MIN)
    yield Plant("hidden top-k 4", "truncation", faulty(dense, "top_k"), fine)
    yield Plant("hidden top-p 0.8, bf16", "truncation", faulty(dense, "top_p", dtype="bfloat16"),
                fine)  # fmt: skip
    yield Plant("hidden top-p 0.95, bf16 both", "truncation",
                faulty(dense, "wide_top_p", dtype="bfloat16"), half)  # fmt: skip
    yield Plant("hidden top-k 8 at 1.2, bf16", "truncation",
                faulty(dense, "hot_top_k", dtype="bfloat16"), fine)  # fmt: skip
    yield Plant("raw, top-k 3 asked for", "raw-logprobs", faulty(dense, "raw"), fine, {"top_k": 3})
    yield Plant("shifted by one", "off-by-one", faulty(dense, "shift"), fine)
    yield Plant("shifted by two", "off-by-one", faulty(dense, "shift_two"), fine)
    yield Plant(
        "shifted by one, bf16", "off-by-one", faulty(dense, "shift", dtype="bfloat16"), half
    )
    begin = at.variant("begin", begin=True)
    yield Plant("sampler adds BOS", "prompt-ids", plain(begin), fine)
    yield Plant("hidden BOS", "prompt-ids", faulty(dense, "begun"), fine)
    yield Plant("first token lost, bf16", "prompt-ids",
                faulty(dense, "first_lost", dtype="bfloat16"), half)  # fmt: skip
    yield Plant("prompts cut to 8 tokens", "prompt-ids", faulty(dense, "short"), fine)
    other = at.variant("template", template=models.TEMPLATE.replace("<assistant>", "<user>"))
    yield Plant("other chat template", "prompt-ids", half, plain(other), chat=True)
    yield Plant("end token misjudged", "eos-handling", faulty(dense, "other_end"), fine)
    yield Plant("end token lost", "eos-handling", faulty(dense, "end_lost"), fine)
    yield Plant("end token dropped", "eos-handling", faulty(dense, "end_dropped"), fine)


def weight_plants(at: Models) -> Iterator[Plant]:
    """Other weights, other configurations: transformers on both sides."""
    dense, fine = at.dense, plain(at.dense)
    old = at.variant("old", perturb=0.08)
    held = {"weights": str(old), "dtype": "bfloat16"}
    yield Plant("stale model directory", "stale-weights", plain(old), fine)
    whole = faulty(dense, "none", **held)
    yield Plant("stale, bf16 sampler, --stale", "stale-weights", whole, fine, stale=old)
    yield Plant("stale, no other checkpoint", "unknown", whole, fine)
    heads = faulty(dense, "none", **held, weights_only="self_attn")
    yield Plant("attention not synced", "partial-sync", heads, fine, stale=old)
    some = faulty(dense, "none", **held, weights_only=r"layers\.[12]\.mlp")
    yield Plant("MLPs of two layers not synced", "partial-sync", some, fine, stale=old)
    yield Plant("embeddings not synced", "partial-sync",
                plain(dense, weights=str(old), weights_only="embed"), fine, stale=old)  # fmt: skip
    one = {"weights": str(old), "weights_only": r"layers\.1\.self_attn\.q_proj"}
    yield Plant("queries of a layer not synced", "partial-sync", plain(dense, **one), fine,
                stale=old)  # fmt: skip
    rope = {"rope_theta": 3000.0, "rope_parameters": {"rope_type": "default", "rope_theta": 3e3}}
    yield Plant("rope_theta 3000", "model-config", plain(at.variant("rope", config=rope)), fine)
    norm = at.variant("norm", config={"rms_norm_eps": 0.01})
    yield Plant("rms_norm_eps 0.01, bf16", "model-config", plain(norm, dtype="bfloat16"), fine)
    mixed = at.variant("router", at.moe, perturb=0.3, only=r"mlp\.gate\.")
    hidden = {"weights": str(mixed), "weights_only": r"mlp\.gate\."}
    yield Plant("router perturbed", "unknown", faulty(at.moe, "none", **hidden),
                plain(at.moe), experts=True)  # fmt: skip
    yield Plant("router chooses otherwise", "router-flips", faulty(at.moe, "flips"), plain(at.moe),
                experts=True)  # fmt: skip
    one = {**hidden, "weights_only": r"layers\.1\.mlp\.gate\."}
    yield Plant("router of a layer perturbed", "unknown", faulty(at.moe, "none", **one),
                plain(at.moe), experts=True)  # fmt: skip


def numeric_plants(at: Models) -> Iterator[Plant]:
    """Precision, kernels, layouts, quantisation and faults of few tokens."""
    dense, fine = at.dense, plain(at.dense)
    half = plain(dense, dtype="bfloat16")
    yield Plant("bfloat16 sampler", "precision", half, fine)
    yield Plant("float16 sampler", "precision", plain(dense, dtype="float16"), fine)
    yield Plant("bfloat16 mixture of experts", "precision", plain(at.moe, dtype="bfloat16"),
                plain(at.moe), experts=True)  # fmt: skip
    eager = plain(dense, dtype="bfloat16", attention="eager")
    yield Plant("eager against sdpa, bf16", "attention-kernel", eager, half)
    split = EngineSpec.of("fsdp", str(dense), {"dtype": "bfloat16", "tensor_parallel": 2})
    yield Plant("tensor parallel 2 learner", "parallel-layout", half, split)
    yield Plant("int8", "quantisation", plain(dense, quantise="int8"), fine)
    yield Plant("int8 MLPs", "quantisation",
                plain(dense, quantise="int8", quantise_only="mlp"), fine)  # fmt: skip
    yield Plant("int4, bf16 on both sides", "quantisation",
                plain(dense, quantise="int4", dtype="bfloat16"), half)  # fmt: skip
    yield Plant("drift", "long-context-drift", faulty(dense, "drift"), fine)
    yield Plant("one prompt in seven", "subset-of-sequences", faulty(dense, "subset"), fine)
    yield Plant("one prompt in seven, bf16", "subset-of-sequences",
                faulty(dense, "subset", dtype="bfloat16"), fine)  # fmt: skip
    yield Plant("neighbours", "batch-variance", faulty(dense, "neighbours"), fine)
    yield Plant("tokens of another distribution", "wrong-sampler", faulty(dense, "speculative"),
                fine)  # fmt: skip
    both = faulty(dense, "hot", weights=str(at.variant("old", perturb=0.08)))
    yield Plant("temperature and stale weights", "stale-weights", both, fine,
                stale=at.variant("old", perturb=0.08))  # fmt: skip


def healthy_plants(at: Models) -> Iterator[Plant]:
    """Nothing to be named."""
    for kind in ("dense", "moe"):
        model: Path = getattr(at, kind)
        more = {"experts": kind == "moe"}
        yield Plant(f"healthy {kind}, float32", NONE, plain(model), plain(model), **more)
        half = plain(model, dtype="bfloat16")
        yield Plant(f"healthy {kind}, bfloat16", NONE, half, half, **more)
    fine = plain(at.dense)
    yield Plant("healthy at 0.6", NONE, fine, fine, LOW)
    half = plain(at.dense, dtype="bfloat16")
    small = plain(at.dense, dtype="bfloat16", batch_tokens=300)
    yield Plant("healthy, other batches, bf16", NONE, small, half)
    yield Plant("healthy at 1.5, bf16", NONE, half, half, {"temperature": 1.5})
    yield Plant("healthy under a shared top-p, bf16", NONE, half, half, CUT, Processing(top_p=0.8))
    yield Plant("healthy eager against sdpa", NONE, plain(at.dense, attention="eager"), fine)


def vllm_plants(at: Models) -> Iterator[Plant]:
    """Real vLLM on one side or both."""
    dense, fine, half = at.dense, plain(at.dense), plain(at.dense, dtype="bfloat16")
    old = at.variant("old", perturb=0.08)
    cache = {"block_size": 32, "enable_prefix_caching": True}
    yield Plant("vLLM bf16 healthy", NONE, vllm(dense), half)
    yield Plant("vLLM float32 healthy", NONE, vllm(dense, dtype="float32"), fine)
    yield Plant("vLLM bf16 MoE healthy", NONE, vllm(at.moe), plain(at.moe, dtype="bfloat16"),
                experts=True)  # fmt: skip
    yield Plant("vLLM bf16 precision", "precision", vllm(dense), fine)
    yield Plant("vLLM raw at 0.6", "raw-logprobs", vllm(dense), half, LOW)
    processed = vllm(dense, logprobs_mode="processed_logprobs")
    yield Plant("vLLM processed, top-k 4", "truncation", processed, half, NARROW)
    yield Plant("vLLM stale", "stale-weights", vllm(old), fine)
    yield Plant("vLLM stock sync, tied head", "partial-sync",
                vllm(dense, sync=str(old), sync_stock=True), plain(old))  # fmt: skip
    yield Plant("vLLM stale prefix cache", "prefix-caching",
                vllm(dense, sync=str(old), sync_reset_cache=False, **cache),
                plain(old, dtype="bfloat16"))  # fmt: skip
    yield Plant("vLLM TP 2 against TP 1", "parallel-layout", vllm(dense, tensor_parallel_size=2),
                vllm(dense))  # fmt: skip
    yield Plant("vLLM fp8 weights", "quantisation", vllm(dense, quantization="fp8_per_channel"),
                half)  # fmt: skip
    yield Plant("vLLM fp8 cache", "kv-cache", vllm(dense, kv_cache_dtype="fp8"), half)
    yield Plant("vLLM int8 checkpoint", "quantisation", vllm(at.quantised(8)), half)
    yield Plant("vLLM int4 checkpoint", "quantisation", vllm(at.quantised(4)), half)


def all_plants(at: Models) -> list[Plant]:
    """Every plant that can be grown here."""
    groups = [settings_plants, weight_plants, numeric_plants, healthy_plants]
    if VLLM.exists():
        groups.append(vllm_plants)
    return [plant for group in groups for plant in group(at)]


def grown(plant: Plant, folder: Path) -> tuple[Case, Attribution]:
    """Measure a plant's pair and ask why it differs."""
    texts = [{"text": text} for text in models.texts(PROMPTS)]
    chats = [{"messages": each} for each in models.messages(PROMPTS)]
    sizes = {"samples": SAMPLES, "max_tokens": TOKENS}
    with InProcess(folder, chats if plant.chat else texts) as runner:
        case = measured(
            runner,
            plant.sampler,
            plant.learner,
            Sampling(**sizes | plant.sampling),
            processing=plant.processing,
            stale=plant.stale,
            experts=plant.experts,
        )
        return case, investigate(runner, case)


def shown(plant: Plant, found: Attribution) -> tuple[str, bool]:
    """A row of the table, and whether the planted cause was named first."""
    names = [each.cause for each in found.causes] or [NONE]
    first = found.causes[0] if found.causes else None
    share = "" if first is None or first.explained is None else f"{first.explained:.0%}"
    sure = first.confidence if first else ""
    also = ", ".join(names[1:])
    hit = names[0] == plant.cause
    mark = "yes" if hit else "**no**"
    row = f"| {plant.name} | {plant.cause} | {names[0]} | {sure} | {share} | {also} | {mark} |"
    return row, hit


def main() -> int:
    """Print the table."""
    kept = os.environ.get("GRPODOCTOR_BENCH_LAB")
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(kept or scratch)
        root.mkdir(parents=True, exist_ok=True)
        wanted = tuple(sys.argv[1:])
        plants = [
            each for each in all_plants(Models(root)) if each.name.startswith(wanted or ("",))
        ]
        print("| planted | cause | named first | confidence | explained | also named | right |")
        print("|---|---|---|---|---|---|---|", flush=True)
        rows = [_Row.of(plant, root / "runner") for plant in plants]
    sick = [row.hit for row in rows if not row.plant.is_healthy]
    well = [row for row in rows if row.plant.is_healthy and row.found]
    print(
        f"\n{sum(sick)} of {len(sick)} planted causes named first; "
        f"nothing named in {sum(row.hit for row in well)} of {len(well)} healthy pairs."
    )
    if well:
        print(
            f"Healthy pairs: k3 up to {max(row.times for row in well):.2g} times the noise; "
            f"|z| of log p + entropy up to {max(row.z for row in well):.2g}."
        )
    return 0


@dataclass(frozen=True)
class _Row:
    """A plant and what came of it."""

    plant: Plant
    hit: bool = False
    found: Attribution | None = None
    z: float = 0.0

    @classmethod
    def of(cls, plant: Plant, folder: Path) -> _Row:
        """Grow a plant and print its row."""
        began = time.monotonic()
        try:
            case, found = grown(plant, folder)
        except GrpodoctorError as error:
            print(f"| {plant.name} | {plant.cause} | could not be grown: {error} |", flush=True)
            return cls(plant)
        row, hit = shown(plant, found)
        print(row, flush=True)
        if os.environ.get("GRPODOCTOR_BENCH_TELL"):
            told = [f"{each.cause}: {each.summary} {each.details}" for each in found.causes]
            print(
                f"  {time.monotonic() - began:.0f} s; gap {found.gap:.3g}, noise {found.noise}; "
                f"{found.verdict} {told} {found.notes}",
                file=sys.stderr,
                flush=True,
            )
        return cls(plant, hit, found, abs(case.comparison.entropy_z or 0.0))

    @property
    def times(self) -> float:
        """The gap over the noise; 0 where there was too little of it to look."""
        return self.found.gap / self.found.noise if self.found and self.found.noise else 0.0


if __name__ == "__main__":
    raise SystemExit(main())
