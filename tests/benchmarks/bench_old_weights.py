"""Old weights in the sampler, and other faults with the same files next to the learner.

`python tests/benchmarks/bench_old_weights.py [NAME …]` runs the pairs whose names contain a word,
all by default. Tiny checkpoints are trained on the spot for some AdamW steps with the Trainer of
transformers, whose `optimizer.pt` is kept. `-o FILE` writes one JSON line per pair and resumes.
`GRPODOCTOR_BENCH_LAB` keeps the trained checkpoints in a folder.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from grpodoctor.errors import GrpodoctorError  # noqa: E402  # after the path to it
from grpodoctor.probe.attribution.investigate import investigate  # noqa: E402
from grpodoctor.probe.contract import Sampling  # noqa: E402
from grpodoctor.probe.inputs.engine_spec import EngineSpec  # noqa: E402
from tests.probe.attribution.cases import measured, plain  # noqa: E402
from tests.probe.attribution.in_process import InProcess  # noqa: E402
from tests.probe.plants.catalogue import MOE  # noqa: E402
from tests.probe.plants.families import adapter, prompts  # noqa: E402
from tests.probe.plants.trained import STEPS, trained  # noqa: E402

PROMPTS, SAMPLES, TOKENS = 24, 3, 40
SECONDS = 240.0
"""Time budget of each pair."""
ENGINE = ROOT / "tests" / "probe" / "plants" / "planted_engine.py"
OLD = frozenset(
    {"earlier-weights", "stale-weights", "partial-sync", "weight-update", "mixed-weights"}
)
"""Names that say that the sampler's weights are other than the learner's."""
STALE = frozenset({"earlier-weights", "stale-weights"})
PARTIAL = frozenset({"partial-sync"})
OPTIMIZER = ("optimizer.pt", "trainer_state.json", "scheduler.pt")


@dataclass(frozen=True)
class Pair:
    """A learner with the files next to it, and a sampler with one fault."""

    name: str
    family: str
    causes: frozenset[str]
    """The names that are right; empty for a healthy pair."""
    age: int = 0
    """Steps by which the sampler's weights are old."""
    only: str = ""
    """Regular expression: the tensors that are old."""
    layout: str = "alone"
    """Where the learner is; see `_laid_out`."""
    earlier: int = 0
    """Steps before the learner of the checkpoint next to it."""
    faults: str = ""
    """Of the planted engine."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of the sampler."""
    others: dict[str, Any] = field(default_factory=dict)
    """Of the learner."""
    training: dict[str, Any] = field(default_factory=dict)

    @property
    def is_old(self) -> bool:
        """Whether old weights are the fault."""
        return self.age > 0


def _old(name: str, family: str, age: int, **more: Any) -> Pair:
    causes = more.pop("causes", STALE)
    return Pair(f"old: {name}", family, causes, age=age, **more)


def _other(name: str, family: str, cause: str, **more: Any) -> Pair:
    layout = more.pop("layout", "optimizer")
    return Pair(f"other: {name}", family, frozenset(cause.split()), layout=layout, **more)


HALF = {"dtype": "bfloat16"}
PAIRS = (
    _old("1 step, optimizer.pt", "llama", 1, layout="optimizer"),
    _old("1 step, optimizer.pt, bf16 sampler", "qwen3", 1, layout="optimizer", options=HALF),
    _old("1 step, optimizer.pt, end of the schedule", "gemma2", 1, layout="optimizer",
         training={"schedule": "linear"}),
    _old("1 step, optimizer.bin", "phi", 1, layout="accelerate", training={"groups": "one"}),
    _old("3 steps, optimizer.pt", "gpt_neox", 3, layout="optimizer"),
    _old("3 steps, optimizer.pt, 16 bits", "mistral", 3, layout="optimizer", options=HALF,
         others=HALF),
    _old("20 steps, optimizer.pt", "llama", 20, layout="optimizer"),
    _old("20 steps, optimizer.pt", "gemma2", 20, layout="optimizer"),
    _old("20 steps, model folder above its checkpoints", "phi", 20, layout="above", earlier=20),
    _old("20 steps, checkpoint-N next to it", "qwen3", 20, layout="siblings", earlier=20),
    _old("10 steps, checkpoint of 20 steps ago", "qwen3_moe", 10, layout="siblings", earlier=20),
    _old("20 steps, verl's folders", "mistral", 20, layout="verl", earlier=20),
    _old("attention 1 step, optimizer.pt", "llama", 1, layout="optimizer", only="self_attn",
         causes=PARTIAL),
    _old("MLPs 20 steps, checkpoint-N next to it", "gemma2", 20, layout="siblings", earlier=20,
         only="mlp", causes=PARTIAL),
    _old("1 step, nothing next to it", "gpt_neox", 1, causes=frozenset({"unknown"})),
    _other("attention scale", "llama", "attention-scale", faults="attention_scale:1.3"),
    _other("rope base", "qwen3", "rope-base", faults="rope_theta:500"),
    _other("int8 weights", "gemma2", "quantisation", options={"quantise": "int8"}),
    _other("fp8 weights, checkpoint-N next to it", "mistral", "quantisation", layout="both",
           earlier=20, options={"quantise": "fp8"}),
    _other("temperature", "gpt_neox", "temperature", faults="hidden_temperature:1.25"),
    _other("dropout", "llama", "nondeterminism batch-variance", faults="dropout:0.1"),
    _other("norm epsilon", "phi", "norm-epsilon", faults="norm_eps:0.1"),
    _other("dtype", "qwen3", "precision", options=HALF),
    _other("sliding window, checkpoint-N next to it", "llama", "sliding-window", layout="both",
           earlier=20, faults="window:12"),
    _other("embedding scale", "gemma2", "embedding-scale", faults="embedding_scale:1.5"),
    _other("adapter missing", "mistral", "adapter", others={"adapter": "ADAPTER"}),
    _other("temperature, checkpoint-N next to it", "qwen3_moe", "temperature", layout="both",
           earlier=20, faults="hidden_temperature:0.9"),
    _other("random noise on the weights", "llama", "unknown", options={"perturb": 0.03}),
    _other("healthy, 16 bits", "gemma2", "", options=HALF, others=HALF, layout="both",
           earlier=20),
)  # fmt: skip

SMALL = {"rate": 3e-4, "seed": 21}
"""A training with smaller updates on other texts."""


def _later(pair: Pair) -> Pair:
    return replace(pair, name=f"later {pair.name}", training=SMALL)


LATER = tuple(
    _later(pair)
    for pair in (
        _old("1 step, optimizer.pt", "gpt_neox", 1, layout="optimizer"),
        _old("1 step, optimizer.pt", "mixtral", 1, layout="optimizer"),
        _old("1 step, optimizer.pt, 16 bits", "gemma2", 1, layout="optimizer", options=HALF,
             others=HALF),
        _old("3 steps, optimizer.pt", "qwen3", 3, layout="optimizer"),
        _old("3 steps, optimizer.pt", "phi", 3, layout="optimizer"),
        _old("10 steps, optimizer.pt", "llama", 10, layout="optimizer"),
        _old("20 steps, optimizer.pt", "qwen3_moe", 20, layout="optimizer"),
        _old("20 steps, optimizer.pt", "mistral", 20, layout="optimizer"),
        _old("10 steps, checkpoint of 20 steps ago", "gpt_neox", 10, layout="siblings",
             earlier=20),
        _old("20 steps, checkpoint-N next to it", "deepseek_v3", 20, layout="siblings",
             earlier=20),
        _old("MLPs 1 step, optimizer.pt", "phi", 1, layout="optimizer", only="mlp",
             causes=PARTIAL),
        _old("layer 1 1 step, optimizer.pt", "mistral", 1, layout="optimizer",
             only=r"layers\.1\.", causes=PARTIAL),
        _old("3 steps, nothing next to it", "gemma2", 3, causes=frozenset({"unknown"})),
        _other("rope base", "mixtral", "rope-base", faults="rope_theta:500"),
        _other("attention scale", "gpt_neox", "attention-scale", faults="attention_scale:1.05"),
        _other("soft cap", "phi", "attention-soft-cap", faults="softcap:8"),
        _other("temperature", "gemma2", "temperature", faults="hidden_temperature:1.03"),
        _other("norm epsilon", "mistral", "norm-epsilon", faults="norm_eps:0.001", layout="both",
               earlier=20),
        _other("int4 weights", "qwen3", "quantisation", options={"quantise": "int4"}),
        _other("fp8 weights", "deepseek_v3", "quantisation", options={"quantise": "fp8"},
               layout="both", earlier=20),
        _other("activation", "llama", "activation", faults="activation:gelu"),
        _other("rope scaling", "qwen3_moe", "rope-scaling", faults="rope_linear:2",
               layout="both", earlier=3),
        _other("random noise on the weights", "llama", "unknown", options={"perturb": 0.005},
               layout="both", earlier=10),
        _other("dropout", "gemma2", "nondeterminism batch-variance", faults="dropout:0.02"),
        _other("healthy, float32", "phi", ""),
    )
)  # fmt: skip
"""Written after attribution was changed for the first pairs."""


def _laid_out(pair: Pair, run: Path, folder: Path) -> Path:
    """The learner's folder with what the pair's layout has next to it."""
    now, before = run / f"checkpoint-{STEPS}", run / f"checkpoint-{STEPS - pair.earlier}"
    places = {
        "siblings": (f"checkpoint-{STEPS}", f"checkpoint-{STEPS - pair.earlier}"),
        "both": (f"checkpoint-{STEPS}", f"checkpoint-{STEPS - pair.earlier}"),
        "verl": tuple(
            f"global_step_{step}/actor/huggingface" for step in (STEPS, STEPS - pair.earlier)
        ),
        "above": (".", f"checkpoint-{STEPS - pair.earlier}"),
    }
    learner, sibling = places.get(pair.layout, ("model", ""))
    without = () if pair.layout in ("optimizer", "both") else OPTIMIZER
    _copied(now, folder / learner, without)
    if sibling:
        _copied(before, folder / sibling, OPTIMIZER)
    if pair.layout == "accelerate":
        shutil.copy(now / "optimizer.pt", folder / learner / "optimizer.bin")
    return folder / learner


def _copied(source: Path, target: Path, without: Sequence[str]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.is_file() and path.name not in without:
            shutil.copy(path, target / path.name)


def outcome(pair: Pair, root: Path) -> dict[str, Any]:
    """What attribution says about a pair, as one line of JSON."""
    run = trained(root / "runs", pair.family, **pair.training)
    with tempfile.TemporaryDirectory() as scratch:
        learner = _laid_out(pair, run, Path(scratch) / "out")
        options: dict[str, Any] = {"model": str(learner), "threads": 1, **pair.options}
        if pair.age:
            # A copy: the probe must not find the weights by the sampler's options.
            _copied(run / f"checkpoint-{STEPS - pair.age}", Path(scratch) / "held", OPTIMIZER)
            options["weights"] = str(Path(scratch) / "held")
            options |= {"weights_only": pair.only} if pair.only else {}
        others = dict(pair.others)
        if "adapter" in others:
            adapter(root / "adapter", learner, alpha=16)
            others["adapter"] = str(root / "adapter")
        sampler = EngineSpec.of("program", str(ENGINE), {"faults": pair.faults, **options})
        began = time.monotonic()
        line: dict[str, Any] = {"pair": pair.name, "family": pair.family}
        deadline = began + SECONDS
        lab = Path(scratch) / "lab"
        with InProcess(lab, prompts(PROMPTS), deadline=deadline) as runner:
            sampling = Sampling(samples=SAMPLES, max_tokens=TOKENS)
            try:
                case = measured(
                    runner, sampler, plain(learner, **others), sampling,
                    experts=pair.family in MOE,
                )  # fmt: skip
                found = investigate(runner, case)
            except GrpodoctorError as error:
                return line | {"error": str(error)}
        return line | {
            "causes": [(each.cause, each.confidence, each.explained) for each in found.causes],
            "titles": [each.title for each in found.causes],
            "summaries": [each.summary for each in found.causes],
            "first remedy": found.causes[0].remedies[0] if found.causes else "",
            "verdict": found.verdict,
            "notes": found.notes,
            "gap": found.gap,
            "noise": found.noise,
            "seconds": round(time.monotonic() - began, 1),
            "scorings": sum(1 for _ in lab.glob("scored/*/done.json")),
        }


def judged(pair: Pair, line: dict[str, Any]) -> dict[str, bool]:
    """Whether the cause is named first, another called proven, or old weights named wrongly."""
    causes = line.get("causes", [])
    first = causes[0][0] if causes else ""
    named = first in pair.causes if pair.causes else not any(c[1] == "proven" for c in causes)
    right = pair.causes | (OLD if pair.is_old else frozenset())
    return {
        "named": named,
        "wrongly proven": any(c[1] == "proven" and c[0] not in right for c in causes),
        "taken for old": not pair.is_old and any(c[0] in OLD for c in causes),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen pairs and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("words", nargs="*")
    parser.add_argument("-o", dest="output", type=Path)
    given = parser.parse_args(arguments)
    known: dict[str, Any] = {}
    if given.output and given.output.exists():
        lines = map(json.loads, given.output.read_text("utf-8").splitlines())
        known = {f"{line['pair']} {line['family']}": line for line in lines}
    pairs = (*PAIRS, *LATER)
    chosen = [p for p in pairs if not given.words or any(w in p.name for w in given.words)]
    verdicts = []
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(os.environ.get("GRPODOCTOR_BENCH_LAB") or scratch)
        print("| pair | family | causes | s | scorings | named | wrong |", flush=True)
        print("|---|---|---|---|---|---|---|", flush=True)
        for pair in chosen:
            line = known.get(f"{pair.name} {pair.family}") or outcome(pair, root)
            if given.output and f"{pair.name} {pair.family}" not in known:
                with given.output.open("a", encoding="utf-8") as file:
                    print(json.dumps(line), file=file)
            verdicts.append((pair, judged(pair, line)))
            _print_row(pair, line, verdicts[-1][1])
    old = [verdict for pair, verdict in verdicts if pair.is_old]
    rest = [verdict for pair, verdict in verdicts if not pair.is_old]
    print(f"\nold weights: {sum(v['named'] for v in old)} of {len(old)} named first")
    print(f"others: {sum(v['named'] for v in rest)} of {len(rest)} named first; "
          f"{sum(v['taken for old'] for v in rest)} taken for old weights")  # fmt: skip
    print(f"wrongly proven: {sum(v['wrongly proven'] for _, v in verdicts)}")
    return 0


def _print_row(pair: Pair, line: dict[str, Any], verdict: dict[str, bool]) -> None:
    shown = [
        f"{name} ({sure}{'' if share is None else f', {share:.0%}'})"
        for name, sure, share in line.get("causes", [])
    ]
    wrong = ", ".join(key for key in ("wrongly proven", "taken for old") if verdict[key])
    print(
        f"| {pair.name} | {pair.family} | {'; '.join(shown) or line.get('error', 'none')} | "
        f"{line.get('seconds', '')} | {line.get('scorings', '')} | "
        f"{'yes' if verdict['named'] else '**no**'} | {wrong} |",
        flush=True,
    )


if __name__ == "__main__":
    raise SystemExit(main())
