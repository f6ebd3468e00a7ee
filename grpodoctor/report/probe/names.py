"""Short display names of the engines of a probe."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from grpodoctor.probe.results.results import ProbeResult

_ALWAYS_SHOWN = ("dtype", "quantise", "quantization")
"""Options that are shown even if all engines share them."""
_NEVER_SHOWN = (
    "processes", "batch_tokens", "gpu_memory_utilization", "max_model_len", "max_num_seqs",
    "enforce_eager", "threads", "connections", "wait", "request_timeout",
)  # fmt: skip
"""Options that do not affect what an engine computes."""


def short_names(result: ProbeResult) -> Mapping[str, str]:
    """A short name for each label: the engine, and the options in which it differs from others.

    `vllm:model?dtype=bfloat16&seed=1&max_model_len=512` becomes `vllm bfloat16` if most engines
    have that model, and every vLLM engine that seed. Two labels never share a name.
    """
    sides = (side for cell in result.cells for side in (cell.sampler, cell.learner))
    parsed = {label: parse_label(label) for label in dict.fromkeys(sides)}
    models = Counter(model for _, model, _ in parsed.values())
    shared = _shared_options(parsed.values())
    names = {}
    for label, (engine, model, options) in parsed.items():
        shown = [
            option
            for option in options
            if option not in shared[engine] and _key(option) not in _NEVER_SHOWN
        ]
        words = [engine, *([] if 2 * models[model] > len(parsed) else [model]), *shown]
        names[label] = " ".join(word.removeprefix("dtype=") for word in words if word)
    counts = Counter(names.values())
    return {label: name if counts[name] == 1 else label for label, name in names.items()}


def parse_label(label: str) -> tuple[str, str, tuple[str, ...]]:
    """Engine, model and options of a label such as `vllm:model?dtype=float32&seed=1`."""
    engine, _, rest = label.partition(":")
    model, _, options = rest.partition("?")
    return engine, model, tuple(options.split("&")) if options else ()


def _key(option: str) -> str:
    return option.partition("=")[0]


def _shared_options(
    labels: Iterable[tuple[str, str, tuple[str, ...]]],
) -> Mapping[str, frozenset[str]]:
    """By engine, the options that all its labels have; none for an engine with one label."""
    options_by_engine: dict[str, list[frozenset[str]]] = defaultdict(list)
    for engine, _, options in labels:
        options_by_engine[engine].append(frozenset(options))
    return {
        engine: frozenset(
            option
            for option in frozenset.intersection(*option_sets)
            if len(option_sets) > 1 and _key(option) not in _ALWAYS_SHOWN
        )
        for engine, option_sets in options_by_engine.items()
    }
