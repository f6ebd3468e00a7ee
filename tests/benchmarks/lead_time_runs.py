"""Write simulated runs in which a fault begins at a known step, for `bench_lead_time.py`.

They are for rules whose alarm no recorded run and no run of `planted_runs` raises: each run has the
metrics of one fault, and a reward that stays level. So they show how long a rule takes to see what
it looks for, and nothing about a later loss of the reward.

    python -m tests.benchmarks.lead_time_runs --out DIR
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

from grpodoctor.runs.records import Manifest, StepRecord
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Mean
from tests.rules.scenario import Curve, healthy, noisy, ramp, steps

COUNT = 120
SEEDS = 4
REWARD = "reward/mean"

Fault = Callable[[int, int], Mapping[str, Curve]]
"""Curves of a fault, by the step at which it begins and a seed."""


def _at(begin: int, before: Curve, after: Curve) -> Curve:
    def curve(step: int) -> object:
        chosen = after if step >= begin else before
        return chosen(step) if callable(chosen) else chosen

    return curve  # type: ignore[return-value]


def _clipped_forks(begin: int, seed: int) -> Mapping[str, Curve]:
    return {
        "clip/high_rate": noisy(0.01, 0.002, seed),
        "clip/fork_token_rate": noisy(0.05, 0.01, seed + 1),
        "clip/high_probability": noisy(0.12, 0.03, seed + 2),
        "entropy/mean": noisy(ramp(0.5, 0.1, 30, begin=begin), 0.01, seed + 3),
    }


def _rambling(begin: int, seed: int) -> Mapping[str, Curve]:
    return {
        "length/group_gap": noisy(ramp(0.0, 300.0, 30, begin=begin), 8, seed, low=-90),
        "length/correct": noisy(200, 6, seed + 1),
        "length/incorrect": noisy(ramp(200, 500, 30, begin=begin), 8, seed + 2),
        "length/mean": noisy(ramp(200, 350, 30, begin=begin), 6, seed + 3),
    }


def _never_ending(_begin: int, seed: int) -> Mapping[str, Curve]:
    return {
        "length/mean": 128.0,
        "length/max": 128.0,
        "length/truncated_rate": 1.0,
        "accuracy/train": noisy(0.3, 0.03, seed),
    }


def _uneven_experts(begin: int, seed: int) -> Mapping[str, Curve]:
    return {
        "experts/router_entropy": noisy(ramp(0.7, 0.1, 40, begin=begin), 0.03, seed),
        "experts/load_max_over_mean": noisy(ramp(2.65, 3.8, 40, begin=begin), 0.07, seed + 1),
    }


def _wrong_log(begin: int, seed: int) -> Mapping[str, Curve]:
    dumped = noisy(0.45, 0.02, seed)

    def recomputed(step: int) -> Mean:
        return Mean(Fraction(float(dumped(step))) * 512, 512)  # type: ignore[arg-type]

    def logged(step: int) -> float:
        return float(dumped(step)) * (2 if step >= begin else 1)  # type: ignore[arg-type]

    return {REWARD: logged, f"{REWARD}/recomputed": recomputed}  # type: ignore[dict-item]


def _delivery(**figures: float) -> Fault:
    usual = {
        "gap": 0.02, "noise": 0.02, "unexplained": 0.02, "change": 0.1, "change_missing": 0.0,
        "change_missing_low": -0.1, "update": 0.05, "update_missing": 0.0,
        "update_missing_low": -0.1,
    }  # fmt: skip

    def fault(begin: int, _seed: int) -> Mapping[str, Curve]:
        return {
            f"delivery/{name}": _at(begin, value, figures.get(name, value))
            for name, value in usual.items()
        }

    return fault


def _one(metric: str, before: float, after: float, noise: float) -> Fault:
    """A single metric that jumps."""

    def level(value: float, seed: int) -> Curve:
        return noisy(value, noise, seed) if noise else value

    return lambda begin, seed: {metric: _at(begin, level(before, seed), level(after, seed))}


def _moving_reference(_begin: int, seed: int) -> Mapping[str, Curve]:
    update = noisy(0.0004, 0.0002, seed, low=1e-5)
    return {"kl/old_policy/k3": update, "kl/reference/k3": update}


def _other_weights(begin: int, seed: int) -> Mapping[str, Curve]:
    """Weights that were replaced between two ordinary updates."""

    def level(before: float, after: float, noise: float, place: int) -> Curve:
        return _at(begin, noisy(before, noise, seed + place), noisy(after, noise, seed + place))

    return {
        REWARD: level(0.4, 0.05, 0.02, 0),
        "accuracy/train": level(0.4, 0.05, 0.02, 1),
        "length/mean": level(200, 700, 6, 2),
        "entropy/mean": level(0.4, 0.1, 0.01, 3),
        "optimizer/grad_norm": noisy(0.2, 0.01, seed + 4),
    }


FAULTS: Mapping[str, tuple[Fault, Mapping[str, Setting]]] = {
    "CLP003": (_clipped_forks, {}),
    "DAT001": (_one("optimizer/environment_token_rate", 0.0, 0.3, 0.002), {}),
    "DAT005": (_one("optimizer/untrained_token_rate", 0.0, 1 / 12, 0.0), {}),
    "ENT004": (
        lambda begin, seed: {
            "text/reflection_rate": noisy(ramp(0.6, 0.03, 30, begin=begin), 0.01, seed)
        },
        {},
    ),
    "ENT005": (_one("optimizer/entropy_coefficient", 0.01, -0.01, 0.0), {}),
    "INS001": (_wrong_log, {}),
    "KLD005": (_moving_reference, {}),
    "LEN001": (_rambling, {}),
    "LEN007": (_never_ending, {}),
    "MOE004": (_uneven_experts, {}),
    "MOE006": (_one("experts/auxiliary_loss", 0.0, 0.02, 0.001), {}),
    "REW009": (
        lambda begin, seed: {
            REWARD: noisy(ramp(0.1, 0.5, 40, begin=begin), 0.02, seed),
            "accuracy/train": 0.0,
        },
        {},
    ),
    "REW011": (
        lambda _begin, seed: {REWARD: noisy(0.5, 0.3, seed, low=-9), "reward/std": 0.5},
        {"prompts_per_batch": 64},
    ),
    "SYN006": (
        _delivery(change_missing=1.0, change_missing_low=0.9, update_missing=1.0,
                  update_missing_low=0.9),
        {},
    ),
    "SYN007": (
        _delivery(change_missing=3.0, change_missing_low=2.9, update_missing=9.0,
                  update_missing_low=8.9, unexplained=0.5),
        {},
    ),
    "SYN009": (_other_weights, {}),
}  # fmt: skip
"""The fault of each rule, and the settings of its run."""


BARE = frozenset({"CLP003", "ENT004", "INS001", "LEN007", "REW009", "REW011", "SYN009"})
"""Rules whose runs log nothing but the metrics of the fault and the reward."""


def resumed(seed: int) -> list[StepRecord]:
    """A run whose mismatch is five times as high after it was resumed at step 40."""
    name, level = "mismatch/logprob_diff_mean", noisy(0.4, 0.05, seed)
    first = steps(60, {name: noisy(0.006, 0.0004, seed), REWARD: level})
    later = noisy(0.03, 0.002, seed + 1)
    return [*first, *steps(60, {name: later, REWARD: level}, first=40)]


def records_of(code: str, seed: int) -> list[StepRecord]:
    """The steps of a run with the fault of a rule."""
    if code == "SYN004":
        return resumed(seed)
    fault, knobs = FAULTS[code]
    level: Mapping[str, Curve] = {REWARD: noisy(0.4, 0.05, 100 + seed)}
    curves = {**(healthy(seed) if code not in BARE else {}), **level}
    if code not in BARE:
        curves["accuracy/train"] = noisy(0.4, 0.03, 200 + seed)
    curves |= fault(40 + 5 * seed, 10 * seed)
    return steps(COUNT, curves, knobs={0: knobs})


def main() -> None:
    """Write the runs, one folder for each rule and seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    for code in sorted([*FAULTS, "SYN004"]):
        for seed in range(SEEDS):
            folder = out / f"{code}-{seed}"
            folder.mkdir(parents=True)
            (folder / "run.json").write_bytes(Manifest().to_json())
            lines = b"".join(record.to_line() for record in records_of(code, seed))
            (folder / "steps.jsonl").write_bytes(lines)


if __name__ == "__main__":
    main()
