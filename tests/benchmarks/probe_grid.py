"""The grid of docs/probe-results.md: real vLLM, real learners, a dense model and a mixture.

`make probe-grid` runs it (about half an hour on two cores) and writes a report to
`probe-grid/dense` and to `probe-grid/moe`; an interrupted run resumes. It prints the figures of
the docs: mean |Δp|, mean over responses of the largest |Δp|, the largest |Δp|, k3, and the causes;
for a mixture also the share of tokens with a different expert in any layer, and k3 with the
learner's routers forced to the sampler's experts.
"""

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from grpodoctor.probe.results.results import Cell  # noqa: E402 - found by the line above
from grpodoctor.probe.results.results_json import read_result  # noqa: E402
from grpodoctor.report.probe.charts import figure_of  # noqa: E402
from tests.probes import models, quantised  # noqa: E402

_VLLM = ROOT / ".venv-vllm" / "bin" / "python"
_FIGURES = (
    "mismatch/prob_diff_mean",
    "mismatch/prob_diff_max",
    "mismatch/prob_diff_max/worst_sequence",
    "mismatch/kl_k3",
)
_SHARED = ("enforce_eager=True", "gpu_memory_utilization=0.2", "max_model_len=512", "processes=2")
_GRID = """
model = "{model}"
prompts = "{prompts}"
limit = {limit}

[sampling]
samples = 1
max_tokens = {tokens}
ignore_end = true

[[sampler]]
engine = "vllm"
python = "{python}"
[sampler.options]
dtype = ["bfloat16", "float32"]
max_model_len = 512
enforce_eager = true
gpu_memory_utilization = 0.2

[[sampler]]
engine = "vllm"
python = "{python}"
[sampler.options]
dtype = "bfloat16"
tensor_parallel_size = 2
max_model_len = 512
enforce_eager = true
gpu_memory_utilization = 0.2

[[sampler]]
engine = "vllm"
python = "{python}"
model = "{int8}"
[sampler.options]
dtype = "bfloat16"
max_model_len = 512
enforce_eager = true
gpu_memory_utilization = 0.2

[[sampler]]
engine = "transformers"
options = {{ dtype = "bfloat16" }}

[[sampler]]
engine = "transformers"
options = {{ dtype = "bfloat16", quantise = "int8" }}

[[learner]]
engine = "transformers"
options = {{ dtype = ["float32", "bfloat16"] }}

[[learner]]
engine = "fsdp"
processes = 2
options = {{ dtype = "bfloat16", fsdp = 2 }}

[[learner]]
engine = "fsdp"
processes = 2
options = {{ dtype = "bfloat16", tensor_parallel = 2 }}
"""


def main() -> None:
    """Create both models, probe them, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "probe-grid")
    parser.add_argument("--limit", type=int, default=64, help="prompts")
    parser.add_argument("--tokens", type=int, default=96, help="tokens of each response")
    parser.add_argument("--only", choices=["dense", "moe"])
    given = parser.parse_args()
    for name in ("dense", "moe"):
        if given.only in (None, name):
            _probe(name, given.folder.resolve() / name, given.limit, given.tokens)


def _probe(name: str, folder: Path, limit: int, tokens: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model, int8, prompts = folder / "model", folder / "model-int8", folder / "prompts.txt"
    if not prompts.exists():
        quantised.int8(int8, getattr(models, name)(model))
        prompts.write_text("\n".join(models.texts(limit, seed=1)), encoding="utf-8")
    grid = folder / "grid.toml"
    grid.write_text(
        _GRID.format(
            model=model, int8=int8, prompts=prompts, limit=limit, tokens=tokens, python=_VLLM
        ),
        encoding="utf-8",
    )
    command = [
        sys.executable,
        "-m",
        "grpodoctor",
        "probe",
        str(grid),
        "--output",
        str(folder / "probe"),
    ]
    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    print(f"\n{name}: exit code {done.returncode}, {limit} prompts of {tokens} tokens")
    cells = read_result(folder / "probe" / "probe.json").cells
    is_mixture = any(cell.comparison and cell.comparison.experts for cell in cells)
    names = ["sampler", "learner", "mean / mean of max / max Δp", "k3"]
    names += ["flips", "k3 replayed"] * is_mixture + ["why"]
    print(f"| {' | '.join(names)} |\n{'|---' * len(names)}|")
    for cell in cells:
        print(_line(cell, is_mixture=is_mixture), flush=True)


def _line(cell: Cell, *, is_mixture: bool) -> str:
    pair = f"| {_short(cell.sampler)} | {_short(cell.learner)} |"
    if cell.status != "done":
        return f"{pair} {cell.status} | | {cell.reason[:200]} |"
    mean, most, worst, k3 = (figure_of(cell, metric) or 0.0 for metric in _FIGURES)
    verdict = "rounding" if cell.verdict.startswith("The engines agree") else cell.verdict
    causes = ", ".join(f"{each.cause} ({each.confidence})" for each in cell.causes)
    routed = _routed(cell) if is_mixture else ""
    figures = f"{mean:.1e} / {most:.1e} / {worst:.1e} | {k3:.1e}"
    return f"{pair} {figures} |{routed} {causes or verdict} |"


def _routed(cell: Cell) -> str:
    """Additional columns of a mixture."""
    experts = cell.comparison.experts if cell.comparison else None
    flips = f"{experts.any_flip_rate:.2%}" if experts else "not reported"
    after = f"{cell.replayed.kl_k3_after:.1e}" if cell.replayed else "not made"
    return f" {flips} | {after} |"


def _short(label: str) -> str:
    """A label without the options that all engines of the grid share."""
    for option in _SHARED:
        label = label.replace(f"&{option}", "")
    engine, _, rest = label.partition(":")
    checkpoint, _, options = rest.partition("?")
    words = [engine, *(["int8"] if checkpoint.endswith("int8") else []), *options.split("&")]
    return " ".join(word.removeprefix("dtype=") for word in words)


if __name__ == "__main__":
    main()
