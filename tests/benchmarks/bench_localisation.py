"""Where the engines of planted faults differ, found without any what-if edit.

`python tests/benchmarks/bench_localisation.py [--half first|second] [WORD …]` measures pairs with a
fault whose place in the model is known, as if its kind were unknown, and asks for the place alone.
`first` are the families with which the bounds were chosen, `second` the others: nearly every second
family in alphabetical order. `--sample SHARE` runs that share, `-o FILE` resumes an earlier run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from grpodoctor.errors import GrpodoctorError  # noqa: E402  # after the path to it
from grpodoctor.probe.attribution.experiments import Experiments  # noqa: E402
from grpodoctor.probe.attribution.localisation.locate import Location, located  # noqa: E402
from grpodoctor.probe.contract import Sampling  # noqa: E402
from grpodoctor.probe.inputs.engine_spec import EngineSpec  # noqa: E402
from tests.probe.attribution.cases import measured, plain  # noqa: E402
from tests.probe.attribution.in_process import InProcess  # noqa: E402
from tests.probe.plants.catalogue import MOE, Plant, plants, unseen  # noqa: E402
from tests.probe.plants.families import checkpoint, prompts  # noqa: E402

PROMPTS, SAMPLES, TOKENS = 24, 3, 40
ENGINE = ROOT / "tests" / "probe" / "plants" / "planted_engine.py"
ATTENTION = r"attn|attention|mixer|mamba|conv|temporal"
MLP = r"mlp|moe|feed_forward|experts|block_sparse|ffn|fc"

_EVERY_LAYER: dict[str, str] = {
    ATTENTION: (
        "window without_window rope_theta rope_linear rope_interleaved attention_scale softcap "
        "qk_norm kv rope_reversed partial_rotary norm_after_rope distance_bias "
        "rope_of_type rope_everywhere whole_head_rotated rope_long rope_halves pattern_shifted "
        "without_sinks norm_sharded without_alibi rotated_where_full alibi_max halves_for_pairs "
        "norm_before_rope output_gate_open prompt_bidirectional kv_saturated qkv_grouped "
        "tuning_off chunks_ignored kv_heads_reversed window_plus sinks_twice yarn_factor "
        "keys_permuted indexer_halves negative_lost decay_heads linear_split unclipped"
    ),
    MLP: (
        "activation router_k not_renormalised without_shared routed_scaling experts_swapped "
        "router_before swiglu_alpha without_shared_gate correction_lost correction_in_weights "
        "group_count shared_twice gate_up_interleaved halves_swapped router_on_output "
        "groups_by_max zero_experts_lost router_root router_softmax"
    ),
    "^norms$": "norm_eps norm_offset norm_uncentred norm_centred",
    "^embedding$": "embedding_scale",
    "": (  # no place: sampling and logits, or all places
        "final_softcap logits_clamped vocabulary_shift head_tied head_bias_lost uniform "
        "vocabulary_cut "
        "hidden_temperature hidden_top_p hidden_top_k hidden_min_p repetition presence frequency "
        "bias banned min_tokens quantised noise shift off_by_one"
    ),
}
"""The block by fault; empty if there is none, or all of them."""
_ONE_LAYER: dict[str, tuple[int, str]] = {
    "window_layer:1,8": (1, ATTENTION),
    "keys_values_exchanged:1": (1, ATTENTION),
    "attention_slice_lost:2,0,4": (2, ATTENTION),
    "mlp_slice_lost:1,1,2": (1, MLP),
    "block_scaled:0,mlp,0.7": (0, MLP),
    "block_scaled:1,attention,1.4": (1, ATTENTION),
    "experts_exchanged:1,0,2": (1, MLP),
    "skip_layer:1": (1, ""),
}
_SEEN = {"qwen3"}
"""Families of the second half that the bounds were chosen with, too."""
_BLOCKS = (r"layers\.1\.(mlp|feed_forward|block_sparse)", r"layers\.0\.(self_attn|attention)")
_OPTIONS = ({"weights": "STALE"}, {"quantise": "int4"})


@dataclass(frozen=True)
class Known:
    """A pair with the place of its fault."""

    plant: Plant
    layer: int | None
    """The faulty layer; None for all layers, or outside of them."""
    block: str
    """Matches the block's name; empty for all blocks of the layer, or if there is no place."""

    @property
    def has_place(self) -> bool:
        """Whether one place is faulty."""
        return bool(self.block) or self.layer is not None

    def verdict(self, place: str) -> str:
        """`right`, `block only`, `wrong`, or `none`."""
        if not place:
            return "none"
        if not self.has_place:
            return "wrong"
        layer, dot, kind = place.partition(".")
        if place.startswith("layer "):
            is_own = self.layer is not None and place == f"layer {self.layer}"
            return "right" if is_own and not self.block else "wrong"
        if not re.search(self.block, kind if dot else place.removeprefix("all ")):
            return "wrong"
        if self.layer is None:
            return "right"
        return "right" if dot and layer == str(self.layer) else "block only" if not dot else "wrong"


def known() -> Iterator[Known]:
    """The pairs whose faults have a known place, or none."""
    blocks = {fault: block for block, faults in _EVERY_LAYER.items() for fault in faults.split()}
    seen = set()
    for plant in (*plants(), *unseen()):
        fault = plant.faults
        is_other = plant.side != "sampler" or plant.options.keys() & {"adapter", "weights"}
        if is_other or "+" in fault or "STALE" in fault or plant.name in seen:
            continue
        seen.add(plant.name)
        if fault in _ONE_LAYER:
            yield Known(plant, *_ONE_LAYER[fault])
        elif not fault or fault.partition(":")[0] in blocks:
            yield Known(plant, None, blocks.get(fault.partition(":")[0], ""))
    for family in dict.fromkeys(plant.family for plant in (*plants(), *unseen())):
        for number, only in enumerate(_BLOCKS):
            for option in _OPTIONS:
                key = "weights_only" if "weights" in option else "quantise_only"
                plant = Plant(family, "", (), "one-block", options={**option, key: only})
                yield Known(plant, 1 - number, (MLP, ATTENTION)[number])


def half(which: str) -> list[Known]:
    """Those of every second family in alphabetical order; all if neither half is meant."""
    pairs = list(known())
    families = sorted({pair.plant.family for pair in pairs})
    second = set(families[1::2]) - _SEEN
    chosen = {"first": set(families) - second, "second": second}.get(which, set(families))
    return [pair for pair in pairs if pair.plant.family in chosen]


def location(plant: Plant, root: Path) -> Location:
    """The place of a pair's gap; nothing else is examined.

    Raises:
        GrpodoctorError: if the pair cannot be measured.
    """
    model = checkpoint(root / plant.family, plant.family)
    stale = checkpoint(root / f"{plant.family}-stale", plant.family, changed=0.15)
    options = {k: str(stale) if v == "STALE" else v for k, v in plant.options.items()}
    broken = EngineSpec.of(
        "program", str(ENGINE),
        {"model": str(model), "faults": plant.faults, "threads": 1, **options},
    )  # fmt: skip
    sampling = Sampling(**{"samples": SAMPLES, "max_tokens": TOKENS} | plant.sampling)
    with InProcess(root / "runner", prompts(PROMPTS)) as runner:
        case = measured(
            runner, broken, plain(model, **plant.others), sampling, experts=plant.family in MOE
        )
        experiments = Experiments(runner, case)
        variant = experiments.first()
        if not experiments.exceeds_rounding(variant):
            return Location(reason="rounding")
        return located(experiments, variant)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen pairs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--half", default="")
    parser.add_argument("--sample", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", dest="output", type=Path)
    options = parser.parse_args(arguments)
    chosen = [
        pair
        for pair in half(options.half)
        if not options.words or any(word in pair.plant.name for word in options.words)
    ]
    random.Random(options.seed).shuffle(chosen)
    chosen = chosen[: max(1, round(options.sample * len(chosen)))]
    done = _earlier(options.output)
    with tempfile.TemporaryDirectory() as scratch:
        for pair in chosen:
            if pair.plant.key not in done:
                done[pair.plant.key] = _line(pair, Path(scratch), options.output)
    print_table(chosen, done)
    return 0


def _earlier(output: Path | None) -> dict[str, dict[str, str]]:
    if output is None or not output.exists():
        return {}
    lines = map(json.loads, output.read_text("utf-8").splitlines())
    return {line["key"]: line for line in lines}


def _line(pair: Known, root: Path, output: Path | None) -> dict[str, str]:
    began = time.monotonic()
    try:
        found = location(pair.plant, root)
    except GrpodoctorError as error:
        found = Location(reason=f"not measured: {error}")
    line = {
        "key": pair.plant.key, "pair": pair.plant.name, "place": found.place,
        "rival": found.rival, "margin": f"{found.margin:.1f}", "held_out": f"{found.held_out:.2f}",
        "own": f"{found.own_share:.2f}", "reason": found.reason,
        "fits": ", ".join(f"{fit.name} {fit.evidence:.0f}" for fit in found.fits[:5]),
        "verdict": pair.verdict(found.place), "seconds": f"{time.monotonic() - began:.1f}",
    }  # fmt: skip
    print(f"{line['seconds']} s {pair.plant.name}: {found.place or 'no place'} "
          f"{line['verdict']} {found.reason}", file=sys.stderr, flush=True)  # fmt: skip
    if output:
        with output.open("a", encoding="utf-8") as lines:
            print(json.dumps(line), file=lines)
    return line


def print_table(chosen: Sequence[Known], done: dict[str, dict[str, str]]) -> None:
    """How often the place is right, by what was planted."""
    groups: dict[str, Counter[str]] = {}
    for pair in chosen:
        line = done[pair.plant.key]
        if line["reason"].startswith("not measured"):
            continue
        group = "one layer" if pair.layer is not None else "one kind of block, all layers"
        if not pair.has_place:
            group = "no place" if pair.plant.faults else "healthy"
        verdict = pair.verdict(line["place"])
        groups.setdefault(group, Counter())["pairs"] += 1
        groups[group]["rounding" if line["reason"] == "rounding" else verdict] += 1
    columns = ("pairs", "right", "block only", "wrong", "none", "rounding")
    print(f"| planted | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for group, counts in groups.items():
        print(f"| {group} | {' | '.join(str(counts[name]) for name in columns)} |")


if __name__ == "__main__":
    raise SystemExit(main())
