"""An examination: causes planted in real training runs, and whether `check` names them.

Trains each run that is missing in `--out`, examines it as `grpodoctor check` does, and prints a
Markdown table:

    python tests/benchmarks/planted_causes.py --out RUNS --seeds 3

A cause counts as *first* if the first finding of the report is one that a practitioner would accept
as its name, and as *named* if any finding of at least a warning is. The runs of the bundled trainer
log everything; those of TRL have the keys of TRL alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import planted_faults
import planted_field
import planted_ordinary
import planted_pipeline
import planted_reports
import planted_truth
import planted_unseen

from grpodoctor.monitor.replay import replay
from grpodoctor.rules.base import Finding
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.trials import faults

HEALTHY = ()


@dataclass(frozen=True)
class Plant:
    """A run with a planted cause."""

    settings: tuple[str, ...] = ()
    """Settings of the bundled trainer, or `name=value` of TRL's `GRPOConfig`."""
    named: tuple[str, ...] = HEALTHY
    """Codes that name the cause; empty for a healthy run."""
    fault: str | None = None
    """Function in `trials.faults` or a module `planted_*` that injects the cause."""
    preset: str | None = None
    steps: int = 60
    with_config: bool = False
    """Whether the user gives the config of a TRL run; its log does not contain it."""
    must_harm: bool = False
    """Whether the cause counts only if the final policy is measurably worse for it."""
    stops_at: int = 0
    """Step at which the bundled trainer is stopped and resumed; 0 does not stop it."""


def _reward(name: str) -> str:
    return f"task.reward=grpodoctor.trials.rewards:{name}"


_SMALL = ("threads=1", "record.depth=off", "rollout.prompts_per_batch=8")
"""Settings of all runs, which a plant may override: batches of 64 responses cost few seconds."""
_SHORT_EPOCHS = ("optimizer.updates_per_batch=64", "optimizer.epochs=16")
_TOO_FAR = ("OPT006", "CLP001", "KLD001", "CFG050")
_OFF = ("MIS001", "MIS003", "SYN001", "SYN002", "SYN003", "SYN008", "MIS004")
_NO_REWARD = ("GRP002", "REW004", "GRP004")

_COMPLETIONS = ("log_completions=true", "num_completions_to_print=0")

BUNDLED: dict[str, Plant] = {
    "healthy": Plant(),
    "healthy-kl": Plant(("loss.kl_coefficient=0.04",)),
    "healthy-group-16": Plant(("rollout.group_size=16",)),
    "healthy-lr-3e-5": Plant(("optimizer.learning_rate=3e-5",)),
    "healthy-sorting": Plant(("task.name=sorting",)),
    "healthy-two-rewards": Plant(("task.format_weight=0.2",)),
    "lr-20x-too-high": Plant(("optimizer.learning_rate=2e-3",), _TOO_FAR),
    "lr-100x-too-high": Plant(("optimizer.learning_rate=1e-2",), _TOO_FAR),
    "lr-1000x-too-low": Plant(("optimizer.learning_rate=1e-7",), ("OPT005", "CFG051")),
    "lr-zero": Plant(("optimizer.learning_rate=0",), ("CFG051", "OPT005")),
    "bf16-updates-lost": Plant(
        ("optimizer.learning_rate=1e-6",), ("OPT005", "CFG052"), "bfloat16_weights"
    ),
    "grad-clip-too-low": Plant(("optimizer.max_grad_norm=1e-7",), ("OPT005",)),
    "reward-constant": Plant((_reward("one"),), ("REW004", "GRP004")),
    "reward-zero": Plant((_reward("zero"),), _NO_REWARD),
    "reward-negated": Plant((_reward("flipped"),), ("REW003", "REW005", "REW012")),
    "reward-inverted": Plant((_reward("wrong_is_right"),), ("REW003", "REW005", "REW012")),
    "reward-outweighed": Plant((_reward("outweighed"),), ("REW005", "REW010")),
    "reward-is-length": Plant((_reward("length_only"),), ("REW013", "LEN004", "LEN006", "REW010")),
    "length-bonus": Plant(
        (_reward("length_bonus"),), ("REW010", "REW013", "LEN004", "LEN006")
    ),
    "length-penalty": Plant((_reward("short_only"),), ("LEN005", "REW010", "REW013", "REW005")),
    "format-dominates": Plant((_reward("format_first"),), ("REW010", "REW007", "REW005")),
    "reward-random": Plant((_reward("noise"),), ("REW018", "REW001", "REW011"), steps=120),
    "reward-noisy": Plant((_reward("noisy"),), ("REW011", "REW001"), steps=120),
    "reward-dies": Plant((), ("REW002", *_NO_REWARD), "reward_dies"),
    "repetition": Plant((_reward("repeats"),), ("LEN008",)),
    "components-cancel": Plant((_reward("canceling"),), ("GRP003",)),
    "hacked-verifier": Plant(
        ("task.verifier=any", "task.hedge_rate=0.1"), ("REW005", "REW003", "REW008"), steps=150
    ),
    "nan-weights": Plant((), ("OPT003",), "weights_become_nan"),
    "group-of-two": Plant(("rollout.group_size=2",), ("GRP007", "CFG006", "CFG013")),
    "all-hard": Plant((_reward("almost_never"),), ("GRP002", "GRP007")),
    "too-hard": Plant(("model.warm_start_steps=0",), ("GRP002", "LEN007", "LEN002", "REW004")),
    "all-easy": Plant(("task.difficulty=1",), ("GRP001", "REW006", "OPT001"), steps=200),
    "limit-too-low": Plant(("rollout.max_length=12",), ("LEN002", "LEN003", "CFG025")),
    "end-token-ignored": Plant((), ("LEN007", "LEN002", "CFG024"), "end_token_ignored"),
    "wrong-template": Plant((), ("GRP002", "LEN002", "LEN007"), "wrong_template"),
    "same-prompt": Plant((), ("REW011",), "same_prompt"),
    "kl-sign-inverted": Plant(
        ("loss.kl_coefficient=0.3",), ("KLD004", "KLD002", "KLD001"), "kl_pushes_away"
    ),
    "other-reference": Plant(("loss.kl_coefficient=0.05",), ("KLD003",), "other_reference"),
    "kl-coefficient-too-high": Plant(("loss.kl_coefficient=10",), ("CFG043",)),
    "sampler-temperature": Plant(("engine.temperature=0.7",), ("CFG020", "MIS003", "MIS001")),
    "top-p": Plant(("rollout.top_p=0.7",), ("CFG021", "MIS003")),
    "stale-16": Plant(("engine.sync_every=16",), ("SYN001", "CFG033", "MIS003", "MIS001")),
    "weights-never-delivered": Plant((), ("SYN002", "MIS004", "MIS001"), "weights_never_delivered"),
    "weights-late": Plant((), _OFF, "weights_delivered_late"),
    "weights-half-delivered": Plant((), _OFF, "weights_half_delivered"),
    "sampler-int4": Plant(("engine.precision=int4",), ("CFG032", "MIS001")),
    "sampler-noisy": Plant((), ("MIS001", "MIS003", "SYN008"), "noisy_sampler"),
    "sampler-logprobs-as-old": Plant(
        ("engine.precision=int4", "engine.old_logprobs=sampler"), ("MIS002", "CFG032", "CFG030")
    ),
    "shifted-logprobs": Plant(
        ("engine.old_logprobs=sampler",), ("MIS002", "MIS001"), "shifted_logprobs"
    ),
    "clip-too-narrow": Plant(
        ("loss.clip_low=1e-4", "loss.clip_high=1e-4"), ("CLP001",)
    ),
    "gspo-clip-0.2": Plant(
        ("loss.clip_low=0.2", "loss.clip_high=0.2"), ("CFG001", "CLP002"), preset="gspo"
    ),
    "64-updates-per-batch": Plant(
        (*_SHORT_EPOCHS, "optimizer.learning_rate=3e-4"), _TOO_FAR
    ),
    "no-clip-16-updates": Plant(
        (
            "optimizer.updates_per_batch=16", "optimizer.epochs=4", "loss.clip_low=1",
            "loss.clip_high=10", "optimizer.learning_rate=5e-4",
        ),
        (*_TOO_FAR, "CFG010"),
    ),
    "no-baseline": Plant((), ("GRP005",), "raw_rewards"),
    "advantage-sign": Plant((), ("REW002", "REW001"), "flipped_advantages"),
    "advantages-shuffled": Plant((), ("REW002", "REW001"), "shuffled_advantages"),
    "dropout-in-learner": Plant((), ("MIS002", "MIS001", "MIS003"), "dropout_in_scores"),
    "optimizer-state-lost": Plant(
        ("optimizer.learning_rate=5e-4",), (*_TOO_FAR, "OPT002"), "optimizer_state_lost"
    ),
    "entropy-bonus": Plant(("loss.entropy_coefficient=0.3",), ("ENT002", "CFG056")),
    "critic-never-trained": Plant(
        ("advantage.kind=gae", "critic.learning_rate=0"), ("GRP006", "CFG055")
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Result:
    """What `check` reports about one run."""

    plant: Plant
    findings: tuple[Finding, ...]
    verdict: str
    is_harmless: bool = False
    """Whether the policy learned as healthy ones do, so the run does not count."""

    @property
    def loud(self) -> list[str]:
        """Codes of at least a warning, in the order of the report."""
        return list(dict.fromkeys(f.code for f in self.findings if f.severity != "info"))

    @property
    def notes(self) -> list[str]:
        """Codes of `info` alone."""
        return [f.code for f in self.findings if f.code not in self.loud]

    @property
    def is_noted(self) -> bool:
        """Whether a finding of any severity names the cause."""
        return self.is_named or any(code in self.plant.named for code in self.notes)

    @property
    def is_first(self) -> bool:
        """Whether the first finding names the cause, or a healthy run has no alarm."""
        if not self.plant.named:
            return not self.loud
        return bool(self.loud) and self.loud[0] in self.plant.named

    @property
    def is_named(self) -> bool:
        """Whether any alarm names the cause, or a healthy run has none."""
        if not self.plant.named:
            return not self.loud
        return any(code in self.plant.named for code in self.loud)


def train_bundled(plant: Plant, seed: int, run_dir: Path) -> None:
    """Train a run of the bundled trainer."""
    from grpodoctor.trainer.config.presets import preset_of
    from grpodoctor.trainer.config.train_config import load_config
    from grpodoctor.trainer.loop import Trainer

    layers = [preset_of(plant.preset).settings] if plant.preset else []
    assignments = [f"seed={seed}", *_SMALL, *plant.settings]
    if plant.stops_at:
        first = load_config(*layers, assignments=[*assignments, f"steps={plant.stops_at}"])
        Trainer(first, run_dir).run()
    config = load_config(*layers, assignments=[*assignments, f"steps={plant.steps}"])
    trainer = Trainer(config, run_dir, resume=plant.stops_at > 0)
    if plant.fault:
        _fault(plant.fault)(trainer)
    trainer.run()
    policy, length = trainer.policy, trainer.config.rollout.max_length
    task = trainer.config.task.model_copy(update={"reward": None})
    accuracy = planted_truth.true_accuracy(policy.model, policy.tokenizer, task, length)
    planted_truth.write(run_dir, accuracy)


def _fault(name: str) -> Callable[[Any], None]:
    """The function that injects a cause; those of `planted_unseen` share names with others."""
    if name.startswith(planted_ordinary.PREFIX):
        return planted_ordinary.FAULTS[name.removeprefix(planted_ordinary.PREFIX)]
    if name.startswith(planted_pipeline.PREFIX):
        return planted_pipeline.FAULTS[name.removeprefix(planted_pipeline.PREFIX)]
    if name.startswith(planted_reports.PREFIX):
        return planted_reports.FAULTS[name.removeprefix(planted_reports.PREFIX)]
    if name.startswith(planted_field.PREFIX):
        return planted_field.FAULTS[name.removeprefix(planted_field.PREFIX)]
    if name.startswith(planted_unseen.PREFIX):
        return planted_unseen.FAULTS[name.removeprefix(planted_unseen.PREFIX)]
    owner = planted_faults if hasattr(planted_faults, name) else faults
    function: Callable[[Any], None] = getattr(owner, name)
    return function


def train_trl(plant: Plant, seed: int, run_dir: Path) -> None:
    """Train a run of TRL."""
    import planted_trl

    planted_trl.train(plant.settings, plant.fault, seed, plant.steps, run_dir)


def examine(plant: Plant, run_dir: Path, view: str = "") -> Result:
    """Examine a run as `grpodoctor check` does.

    The view `log` is the log of a TRL run without its completions, and the view `config` is
    the folder of the run with its config.
    """
    config = run_dir.with_name(run_dir.name.replace("seed", "config") + ".json")
    with_config = plant.with_config or view == "config"
    options = ReadOptions(run_config=config) if with_config else None
    path = run_dir / "trainer_state.json" if view == "log" else run_dir
    report = replay(path, options=options).report
    findings = report.diagnosis.findings
    is_harmless = (
        plant.must_harm
        and bool(plant.named)
        and planted_truth.read(run_dir) >= planted_truth.HARMLESS
    )
    return Result(plant, findings, report.diagnosis.verdict.kind, is_harmless)


def plants() -> dict[str, tuple[Any, Plant]]:
    """Every planted run: its trainer and its plant."""
    import planted_trl

    runs: dict[str, tuple[Any, Plant]] = {
        f"bundled/{name}": (train_bundled, plant) for name, plant in BUNDLED.items()
    }
    trl = {f"trl/{name}": (train_trl, Plant(*row)) for name, row in planted_trl.PLANTS.items()}
    return runs | trl | _unseen() | _field() | _reports() | _pipeline() | _usage() | _ordinary()


def _unseen() -> dict[str, tuple[Any, Plant]]:
    """The causes that were planted after the rules were written."""
    import planted_trl_unseen

    runs: dict[str, tuple[Any, Plant]] = {}
    for name, (settings, codes, fault, preset) in planted_unseen.PLANTS.items():
        own = fault and f"{planted_unseen.PREFIX}{fault}"
        plant = Plant(settings, codes, own, preset, planted_unseen.STEPS)
        runs[f"new/{name}"] = (train_bundled, plant)
    for name, row in planted_trl_unseen.PLANTS.items():
        runs[f"new-trl/{name}"] = (train_trl, Plant(*row))
    return runs


def _field() -> dict[str, tuple[Any, Plant]]:
    """The third set in two halves: runs with an even number are in half A."""
    import planted_trl_field

    halves, runs = ("field-a", "field-b"), {}
    for number, (name, (settings, codes, fault)) in enumerate(planted_field.RUNS.items()):
        own = fault and f"{planted_field.PREFIX}{fault}"
        plant = Plant(settings, codes, own, None, planted_field.STEPS, must_harm=True)
        runs[f"{halves[number % 2]}/{name}"] = (train_bundled, plant)
    for number, (name, row) in enumerate(planted_trl_field.PLANTS.items()):
        defaults = ((), (), None, None, planted_trl_field.STEPS)
        full = (*row, *defaults[len(row) :])
        plant = replace(Plant(*full), must_harm=True)
        runs[f"{halves[number % 2]}-trl/{name}"] = (train_trl, plant)
    return runs


def _reports() -> dict[str, tuple[Any, Plant]]:
    """The fourth set in two halves."""
    import planted_trl_reports

    return _halves("reported", planted_reports, planted_trl_reports)


def _pipeline() -> dict[str, tuple[Any, Plant]]:
    """The fifth set in two halves."""
    import planted_trl_pipeline

    return _halves("pipeline", planted_pipeline, planted_trl_pipeline)


def _usage() -> dict[str, tuple[Any, Plant]]:
    """The sixth set in two halves, trained with TRL alone."""
    import planted_trl_usage

    return _halves("usage", None, planted_trl_usage)


def _ordinary() -> dict[str, tuple[Any, Plant]]:
    """The seventh set in two halves."""
    import planted_trl_ordinary

    return _halves("ordinary", planted_ordinary, planted_trl_ordinary)


def _halves(name: str, bundled: Any, trl: Any) -> dict[str, tuple[Any, Plant]]:
    """A set of cases in two halves: runs with an even number are in half A."""
    halves, runs = (f"{name}-a", f"{name}-b"), {}
    for number, (title, case) in enumerate(bundled.CASES.items() if bundled else ()):
        own = case.fault and f"{bundled.PREFIX}{case.fault}"
        plant = Plant(case.settings, case.codes, own, None, bundled.STEPS, must_harm=True)
        runs[f"{halves[number % 2]}/{title}"] = (
            train_bundled, replace(plant, stops_at=case.stops_at)
        )  # fmt: skip
    for number, (title, case) in enumerate(trl.CASES.items()):
        steps = case.steps or trl.STEPS
        plant = Plant(case.settings, case.codes, case.fault, None, steps, case.with_config)
        runs[f"{halves[number % 2]}-trl/{title}"] = (train_trl, replace(plant, must_harm=True))
    return runs


def train_missing(
    names: Sequence[str], seeds: Sequence[int], out: Path, *, completions: bool = False
) -> Iterator[tuple[str, int, Path]]:
    """Train the runs that are not there; yields the name, the seed and the folder of each run."""
    for name, (train, plant) in plants().items():
        if names and not any(part in name for part in names):
            continue
        if completions and train is train_trl:
            plant = replace(plant, settings=(*plant.settings, *_COMPLETIONS))  # noqa: PLW2901
        for seed in seeds:
            run_dir = out / name / f"seed-{seed}"
            if not run_dir.exists():
                print(f"{name}, seed {seed}", file=sys.stderr, flush=True)
                unfinished = run_dir.with_name(f"unfinished-{seed}")
                train(plant, seed, unfinished)
                unfinished.rename(run_dir)
            yield name, seed, run_dir


def results_of(
    names: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    *,
    examine_only: bool,
    completions: bool = False,
    view: str = "",
) -> Iterator[tuple[str, list[Result]]]:
    """Train the missing runs and examine all."""
    if not examine_only:
        deque(train_missing(names, seeds, out, completions=completions), maxlen=0)
    for name, (_, plant) in plants().items():
        if names and not any(part in name for part in names):
            continue
        run_dirs = [out / name / f"seed-{seed}" for seed in seeds]
        results = [examine(plant, run_dir, view) for run_dir in run_dirs if run_dir.exists()]
        if results:
            yield name, results


def table(results: dict[str, list[Result]]) -> Iterator[str]:
    """One row per planted cause."""
    yield "| run | first | named | noted | verdicts | alarms by seed | notes |"
    yield "|---|---|---|---|---|---|---|"
    for name, runs in results.items():
        first = f"{sum(run.is_first for run in runs)}/{len(runs)}"
        named = f"{sum(run.is_named for run in runs)}/{len(runs)}"
        verdicts = ", ".join(dict.fromkeys(run.verdict for run in runs))
        noted = f"{sum(run.is_noted for run in runs)}/{len(runs)}"
        alarms = "; ".join(" ".join(run.loud) or "none" for run in runs)
        notes = " ".join(dict.fromkeys(code for run in runs for code in run.notes))
        yield f"| {name} | {first} | {named} | {noted} | {verdicts} | {alarms} | {notes} |"


def totals(results: dict[str, list[Result]]) -> Iterator[str]:
    """The counts over all planted runs and over all healthy ones."""
    runs = [run for group in results.values() for run in group if not run.is_harmless]
    sick, healthy = [r for r in runs if r.plant.named], [r for r in runs if not r.plant.named]
    yield f"planted: {sum(r.is_first for r in sick)} of {len(sick)} first, " + (
        f"{sum(r.is_named for r in sick)} named, {sum(r.is_noted for r in sick)} named or noted"
    )
    if harmless := [name for name, group in results.items() if any(r.is_harmless for r in group)]:
        yield f"without effect on the policy, not counted: {', '.join(harmless)}"
    yield f"healthy: {sum(not r.is_first for r in healthy)} of {len(healthy)} with an alarm"


def main() -> None:
    """Train missing runs, examine all runs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; all runs by default")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--out", type=Path, help="folder in which runs are kept and reused")
    parser.add_argument("--examine-only", action="store_true", help="train nothing")
    parser.add_argument("--train-only", action="store_true", help="examine nothing")
    parser.add_argument("--completions", action="store_true", help="TRL logs the responses too")
    parser.add_argument(
        "--view", choices=["log", "config"], default="",
        help="examine the logs of TRL runs without completions, or the folders with the config",
    )  # fmt: skip
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="planted-"))
    if options.train_only:
        missing = train_missing(options.names, options.seeds, out, completions=options.completions)
        for name, seed, run_dir in missing:
            print(f"{name}, seed {seed}: {planted_truth.read(run_dir):.3f}", flush=True)
        return
    found = results_of(
        options.names,
        options.seeds,
        out,
        examine_only=options.examine_only,
        completions=options.completions,
        view=options.view,
    )
    results = dict(found)
    print(*table(results), "", *totals(results), sep="\n")


if __name__ == "__main__":
    main()
