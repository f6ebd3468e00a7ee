"""Flips of experts by rounding and by faults, in a tiny trained mixture of experts in bfloat16.

`python tests/benchmarks/bench_router_flips.py healthy` samples with vLLM from models of several
seeds, and prints how often random subsets of the responses exceed rounding: by their mean alone,
flip by flip, and if the sampler's experts are unknown. `… faults` perturbs the weights of routers
and of experts by growing amounts, and prints what is named. Environment: `GRPODOCTOR_BENCH_LAB`
keeps the engines' answers in a folder.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from grpodoctor.probe.attribution.experiments import Experiments  # noqa: E402  # after the path
from grpodoctor.probe.attribution.investigate import investigate  # noqa: E402
from grpodoctor.probe.attribution.rounding import Rounding  # noqa: E402
from grpodoctor.probe.attribution.tokens import Tokens  # noqa: E402
from grpodoctor.probe.contract import Sampling  # noqa: E402
from grpodoctor.probe.inputs.engine_spec import EngineSpec  # noqa: E402
from grpodoctor.probe.severity import EXACT, QUIET  # noqa: E402
from tests.benchmarks.bench_attribution import PROMPTS, SAMPLES, TOKENS, vllm  # noqa: E402
from tests.probe.attribution.cases import faulty, measured, plain  # noqa: E402
from tests.probe.attribution.in_process import InProcess  # noqa: E402
from tests.probes import models  # noqa: E402

SEEDS = (1, 2, 3, 4, 5, 6)
SUBSETS, RESPONSES = 100, 32
HALF = {"dtype": "bfloat16"}
GATES, EXPERTS = r"mlp\.gate\.", r"mlp\.experts"
FAULTS = {GATES: (0.003, 0.01, 0.03, 0.1, 0.3), EXPERTS: (0.003, 0.01, 0.03, 0.1)}
"""Noise on the tensors that match, relative to their standard deviation."""


def trained(folder: Path, seed: int) -> Path:
    """The mixture of experts of the tests, trained from other starting weights."""
    if not (folder / "config.json").exists():
        shape = models._SHAPE | models._EXPERTS
        config = Qwen3MoeConfig(**shape, tie_word_embeddings=False)
        torch.manual_seed(seed)
        model = Qwen3MoeForCausalLM(config)
        models._train(model)
        model.to(torch.bfloat16).save_pretrained(folder)
        models.tokenizer().save_pretrained(folder)
    return folder


def routed(folder: Path, sampler: EngineSpec, learner: EngineSpec) -> tuple[Tokens, Rounding, str]:
    """A pair's tokens, the learner's rounding, and what attribution names."""
    texts = [{"text": text} for text in models.texts(PROMPTS)]
    with InProcess(folder, texts) as runner:
        sampling = Sampling(samples=SAMPLES, max_tokens=TOKENS)
        case = measured(runner, sampler, learner, sampling, experts=True)
        experiments = Experiments(runner, case)
        tokens = experiments.first().tokens
        found = investigate(runner, case)
    named = ", ".join(f"{each.cause} ({each.confidence})" for each in found.causes) or "none"
    return tokens, experiments.rounding, named + "".join(f"; {note}" for note in found.notes)


def healthy(root: Path) -> None:
    """Print the alarms of healthy pairs under vLLM."""
    print("| seed | gap / noise | flips | learner's | named | up to | mean | flips | unknown |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for seed in SEEDS:
        model = trained(root / f"m{seed}", seed)
        sampler, learner = vllm(model), plain(model, **HALF)
        tokens, rounding, named = routed(root / f"r{seed}", sampler, learner)
        alarms = np.array(list(_alarms(tokens, rounding, np.random.default_rng(seed))))
        counts = [int(count) for count in alarms[:, 1:].sum(axis=0)]
        print(
            f"| {seed} | {tokens.gap / rounding.noise:.1f} | {_flips(tokens)} | "
            f"{_flips(rounding.own)} | {named} | {alarms[:, 0].max():.1f} | "
            f"{' | '.join(map(str, counts))} |",
            flush=True,
        )


def _alarms(
    tokens: Tokens, rounding: Rounding, generator: np.random.Generator
) -> Iterator[tuple[float, bool, bool, bool]]:
    """Of random subsets: gap / noise, and alarms by mean, flip by flip, and without routes."""
    if rounding.own is None:
        return
    for _ in range(SUBSETS):
        chosen = generator.choice(tokens.lengths_B.size, RESPONSES, replace=False)
        at_N = np.isin(tokens.rows_N, chosen)
        part, own = tokens.where(at_N), rounding.own.where(at_N)
        of_part = Rounding(max(own.gap, EXACT), own)
        loud = part.gap > QUIET * of_part.noise
        sick = loud and not of_part.remains_without_flips(part)
        unknown = part.gap > QUIET * of_part.without_routes().noise
        yield part.gap / of_part.noise, loud, sick, unknown


def faults(root: Path) -> None:
    """Print what is named by the strength of a fault."""
    model = models.moe(root / "moe")
    learner = plain(model, **HALF)
    print("| weights | perturbed by | gap / noise | flips | learner's | named |")
    print("|---|---|---|---|---|---|", flush=True)
    for pattern, strengths in FAULTS.items():
        for strength in strengths:
            folder = root / f"{'gates' if pattern == GATES else 'experts'}-{strength}"
            changed = models.variant(folder, model, perturb=strength, only=pattern)
            weights = {"weights": str(changed), "weights_only": pattern}
            sampler = faulty(model, "none", **weights, **HALF)
            tokens, rounding, named = routed(root / "faults", sampler, learner)
            print(
                f"| {pattern} | {strength} | {tokens.gap / rounding.noise:.1f} | "
                f"{_flips(tokens)} | {_flips(rounding.own)} | {named} |",
                flush=True,
            )


def _flips(tokens: Tokens | None) -> str:
    return "" if tokens is None else f"{tokens.flipped_N.mean():.2%}"


def main() -> int:
    """Print the wanted tables."""
    wanted = sys.argv[1:] or ["healthy", "faults"]
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(os.environ.get("GRPODOCTOR_BENCH_LAB") or scratch)
        root.mkdir(parents=True, exist_ok=True)
        for name, table in (("healthy", healthy), ("faults", faults)):
            if name in wanted:
                table(root)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
