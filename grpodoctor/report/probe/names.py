"""What the engines of a probe are called where there is little room."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from grpodoctor.probe.results.results import Cell, ProbeResult

_TELLING = ("dtype", "quantise", "quantization")
"""Options that are named though all engines share them."""
_SILENT = (
    "processes", "batch_tokens", "gpu_memory_utilization", "max_model_len", "max_num_seqs",
    "enforce_eager", "threads", "connections", "wait", "request_timeout",
)  # fmt: skip
"""Options that say how an engine is run and not what it computes."""


def short_names(result: ProbeResult) -> Mapping[str, str]:
    """A name for each label: the engine, and what tells it from the others of its kind.

    `vllm:model?dtype=bfloat16&seed=1&max_model_len=512` is `vllm bfloat16` where most engines have
    that model, and every vLLM that seed. Two labels never share a name.
    """
    labels = list(dict.fromkeys(name for cell in result.cells for name in _sides(cell)))
    read = {label: _read(label) for label in labels}
    models = Counter(model for _, model, _ in read.values())
    shared = _shared(read.values())
    names = {}
    for label, (engine, model, options) in read.items():
        told = [
            each
            for each in options
            if each not in shared[engine] and each.partition("=")[0] not in _SILENT
        ]
        words = [engine, *([] if 2 * models[model] > len(read) else [model]), *told]
        names[label] = " ".join(word.removeprefix("dtype=") for word in words if word)
    counts = Counter(names.values())
    return {label: name if counts[name] == 1 else label for label, name in names.items()}


def _sides(cell: Cell) -> tuple[str, str]:
    return cell.sampler, cell.learner


def _read(label: str) -> tuple[str, str, tuple[str, ...]]:
    """Engine, model and options of a label such as `vllm:model?dtype=float32&seed=1`."""
    engine, _, rest = label.partition(":")
    model, _, options = rest.partition("?")
    return engine, model, tuple(options.split("&")) if options else ()


def _shared(engines: Iterable[tuple[str, str, tuple[str, ...]]]) -> Mapping[str, frozenset[str]]:
    """By engine the options that all its labels have; none where there is a single one."""
    options: dict[str, list[frozenset[str]]] = defaultdict(list)
    for engine, _, told in engines:
        options[engine].append(frozenset(told))
    return {
        engine: frozenset(
            each
            for each in frozenset.intersection(*sets)
            if len(sets) > 1 and each.partition("=")[0] not in _TELLING
        )
        for engine, sets in options.items()
    }
