"""One side's weights are quantized."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.engine_files import read_config
from grpodoctor.probe.attribution.engine_variants import model_path, with_model
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_gaps import regression
from grpodoctor.probe.attribution.tensors import KINDS
from grpodoctor.probe.attribution.tokens import Floats, difference_gap
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.engines.engine_facts import EngineFacts
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.severity import EXACT

_OPTIONS = ("quantise", "quantise_only", "quantise_skip", "quantization", "load_format")
_MODULES = ("attention", "MLP", "experts", "output head")
_GGUF = re.compile(r"I?Q[1-8]_")
_PART = 0.25
"""Share of the largest regression weight below which a module is not quantized."""
_CLIP = 3.0
"""Upper bound on |Δlogp| per token."""
_COMMON = 0.5
"""Share of the difference's variance that the learner's own quantization must explain where the
experiment exchanges the files of a side: these may differ by more than the quantization."""
_OTHER_FILES = (
    "the experiment exchanged the whole checkpoint: if the quantized one is also older, it shows "
    "the same; quantize the present weights again to tell"
)
_BEYOND = 10.0
"""A gap larger than this multiple of the learner's quantization effect has another cause."""


class Quantization(Cause):
    """Proven by running the quantized side without quantization.

    Quantizing modules of the learner shows which modules are quantized.
    """

    id = "quantisation"
    title = "The weights of one side are quantized"
    remedies = (
        "Do not quantize the modules with the largest effect (start with the output head, the "
        "router and the first and last layers), or use a finer scheme: per channel or per group "
        "instead of per tensor, 8 bits instead of 4.",
        "Correct the rest with truncated importance sampling, and watch whether the gap grows "
        "during training: quantized samplers drift.",
    )
    when = "gap"

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """One side's options or checkpoint report quantization."""
        sides = {
            "sampler": variant.setup.rescored or experiments.case.sampler,
            "learner": variant.setup.learner,
        }
        facts = {
            "sampler": experiments.case.sampler_facts,
            "learner": experiments.case.learner_facts,
        }
        schemes = {side: _scheme(engine, facts[side]) for side, engine in sides.items()}
        quantized = [side for side, scheme in schemes.items() if scheme]
        if not quantized or schemes["sampler"] == schemes["learner"]:
            return None
        return Hypothesis(0.75, {"side": quantized[0], "scheme": schemes[quantized[0]]})

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Run the quantized side without quantization, or else quantize the learner."""
        side, scheme = (str(hypothesis.facts[key]) for key in ("side", "scheme"))
        if side == "learner":
            plain = _plain(variant.setup.learner, model_path(experiments.case.sampler))
            before, after = variant, experiments.vary(variant, learner=plain)
        else:
            before, after = self._without(experiments, variant, scheme)
        whole = plain if side == "learner" else variant.setup.learner
        shares, effect, common = _by_module(experiments, before, side, whole, scheme)
        fits = effect is None or before.gap < _BEYOND * (effect + (experiments.noise or 0.0))
        details = tuple(f"{kind}: {share:.0%} of the effect" for kind, share in shares.items())
        is_alone = common >= _COMMON or not self._exchanges_files(experiments, side)
        details += () if is_alone else (_OTHER_FILES,)
        return ExperimentResult(
            summary=(
                f"the {side} is quantized ({scheme}); without quantization, k3 falls from "
                f"{before.gap:.2g} to {after.gap:.2g} nats per token"
                + ("" if fits else f", although quantization alone causes only {effect:.2g}")
            ),
            before=before,
            after=after,
            confidence=("proven" if is_alone else "likely") if fits else "possible",
            details=details,
            figures={} if effect is None else {"effect": effect},
        )

    @staticmethod
    def _exchanges_files(experiments: Experiments, side: str) -> bool:
        """Whether a side is unquantized by the files of the other side, which may differ in age."""
        case = experiments.case
        engine = case.learner if side == "learner" else case.sampler
        return bool(read_config(model_path(engine)).get("quantization_config"))

    @staticmethod
    def _without(
        experiments: Experiments, variant: Variant, scheme: str
    ) -> tuple[Variant, Variant]:
        spec = variant.setup.rescored or experiments.case.sampler
        plain = _plain(spec, model_path(experiments.case.learner))
        if plain != spec:
            with suppress(EngineError):  # a server, for example, cannot load other weights
                before = experiments.vary(variant, rescored=spec)
                return before, experiments.vary(before, rescored=plain)
        quantized = variant.setup.learner.with_options(quantise=_fake(scheme))
        return variant, experiments.vary(variant, learner=quantized)


def _scheme(engine: EngineSpec, facts: EngineFacts) -> str:
    """The quantization scheme of an engine's weights; empty if they are not quantized."""
    for option in ("quantise", "quantization"):
        if engine.options.get(option):
            return str(engine.options[option])
    stored = read_config(model_path(engine)).get("quantization_config")
    if not isinstance(stored, dict):
        reported = str(facts.settings.get("quantization") or "")
        # llama.cpp names its types Q4_K, IQ3_S and so on.
        return reported or (facts.dtype if _GGUF.match(facts.dtype) else "")
    bits = _bits(stored)
    method = str(stored.get("quant_method", "quantized"))[:40]
    return f"int{bits} {method}" if bits else method


def _bits(stored: dict[str, Any]) -> int | None:
    """Bits of the first group's weights, as compressed-tensors and GPTQ store them."""
    groups = stored.get("config_groups")
    first: Any = next(iter(groups.values()), {}) if isinstance(groups, dict) else {}
    weights = first.get("weights") if isinstance(first, dict) else None
    bits = weights.get("num_bits") if isinstance(weights, dict) else stored.get("bits")
    return bits if isinstance(bits, int) else None


def _plain(engine: EngineSpec, unquantised: Path) -> EngineSpec:
    """The engine without quantization; the other side's model replaces a quantized checkpoint."""
    changes = {name: None for name in _OPTIONS if name in engine.options}
    if read_config(model_path(engine)).get("quantization_config"):
        engine = with_model(engine, unquantised)
    return engine.with_options(**changes)


def _fake(scheme: str) -> str:
    if "fp8" in scheme.lower() or "float8" in scheme.lower():
        return "fp8_e5m2" if "e5m2" in scheme.lower() else "fp8"
    return "int4" if "4" in scheme else "int8"


def _by_module(
    experiments: Experiments, variant: Variant, side: str, learner: EngineSpec, scheme: str
) -> tuple[dict[str, float], float | None, float]:
    """Each kind of module's share of the quantization effect, and the effect in the learner in k3.

    The last number is the share of the difference's variance that this effect explains.

    Each kind is quantized alone in the learner. If the quantized side's difference contains the
    resulting change, that kind is quantized there. Empty if the learner cannot quantize.

    Args:
        experiments: runs the engines.
        variant: the quantized variant.
        side: the quantized side.
        learner: the learner without quantization.
        scheme: the quantization scheme.
    """
    if "quantise" not in learner.kind.experiment_options:
        return {}, None, 0.0
    processing = variant.setup.processing
    tokens = variant.tokens
    quantized_N = tokens.learner_N if side == "learner" else tokens.sampler_N
    try:
        plain_N = experiments.score(learner, processing)
        whole_N = experiments.score(learner.with_options(quantise=_fake(scheme)), processing)
    except EngineError:
        return {}, None, 0.0
    moves: dict[str, Floats] = {}
    for kind in _MODULES:
        only = learner.with_options(quantise=_fake(scheme), quantise_only=KINDS[kind])
        with suppress(EngineError):  # the model has no modules of this kind
            moves[kind] = experiments.score(only, processing) - plain_N
    effect = difference_gap(plain_N, whole_N)
    moved_N = quantized_N - plain_N
    _, common = regression(moved_N, whole_N - plain_N, _CLIP)
    return _shares(moves, moved_N), effect if effect > EXACT else None, common


def _shares(moves: dict[str, Floats], moved_N: Floats) -> dict[str, float]:
    """Each kind's share of a difference, largest first."""
    if not moves:
        return {}
    columns_NK = np.stack([*moves.values(), moved_N], axis=1)
    at = np.isfinite(columns_NK).all(axis=1)
    clipped_NK = np.clip(columns_NK[at], -_CLIP, _CLIP)
    weights_K, _ = nnls(clipped_NK[:, :-1], clipped_NK[:, -1])
    # A scheme that differs from the learner's causes less of the same change.
    parts_K = np.where(weights_K >= _PART * weights_K.max(), weights_K, 0.0)
    sizes_K = np.square(parts_K) * np.square(clipped_NK[:, :-1]).sum(axis=0)
    total = float(sizes_K.sum())
    shares = dict(zip(moves, (sizes_K / total).tolist(), strict=True)) if total > 0 else {}
    ranked = sorted(shares.items(), key=lambda pair: -pair[1])
    return {kind: share for kind, share in ranked if share >= 0.01}
