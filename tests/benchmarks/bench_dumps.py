"""How fast rollout dumps are read, against merely parsing them, and against pandas.

Everyone reads the same files from the page cache, takes turns with the others so that a busy moment
hits all, and counts with the fastest of his turns. Polars and pyarrow use all processors.

Environment: `GRPODOCTOR_BENCH_MB` is the size of each dump in megabytes (default 1000).
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import orjson
import pyarrow.parquet as pq

from grpodoctor.frameworks.rollout_formats.registry import dumps_among
from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.runs.rollout_dumps import runners
from grpodoctor.runs.rollout_dumps.dump_reader import DumpReader
from grpodoctor.runs.rollouts import write_rollouts
from grpodoctor.support.files.regular_files import files_below

MEGABYTES = int(os.environ.get("GRPODOCTOR_BENCH_MB", "1000"))
PER_FILE = 6
REPEATS = 5
RESPONSES, TOKENS = 512, 1800
PER_TOKEN_FILE = 5.7
"""Megabytes of a step of so many responses."""
COLUMNS = ["token_ids", "learner_logprobs", "sampler_logprobs"]
SECOND_THOUGHTS = r"wait|hold on|re-?check|double-?check|alternatively|actually"


def write_texts(root: Path) -> None:
    """verl's format: 1,280 responses a step in groups of 8, each of up to 8,000 letters."""
    source = random.Random(0)
    words = ["".join(source.choices("etaoinshrdlu", k=source.randint(2, 9))) for _ in range(3000)]
    words += ["wait", "so", "$x^2 + 3$", "therefore", "\\frac{1}{2}", "\n\n"]
    pool = " ".join(source.choices(words, k=200_000))
    for step in range(1, MEGABYTES // PER_FILE + 1):
        with (root / f"{step}.jsonl").open("wb") as file:
            for _ in range(160):
                prompt = " ".join(source.choices(words, k=60))
                file.write(b"".join(_line(source, pool, prompt, step) for _ in range(8)))


def _line(source: random.Random, pool: str, prompt: str, step: int) -> bytes:
    length = source.randint(500, 8000)
    start = source.randrange(len(pool) - length)
    score = float(source.random() < 0.4)
    row = {"input": prompt, "output": pool[start : start + length], "gts": "42", "score": score}
    return orjson.dumps({**row, "step": step}) + b"\n"


def write_tokens(root: Path) -> None:
    """Our own format, every response's tokens and both sides' log-probabilities."""
    random_ = np.random.default_rng(0)
    for step in range(round(MEGABYTES / PER_TOKEN_FILE)):
        lengths = random_.integers(200, TOKENS, RESPONSES)
        shape = (RESPONSES, TOKENS)
        learner = -random_.exponential(0.3, shape).astype(np.float32)
        noise = 0.01 * random_.standard_normal(shape).astype(np.float32)
        batch = RolloutBatch(
            step=step,
            sequence_ids=[f"{step}-{row}" for row in range(RESPONSES)],
            group_ids_B=np.arange(RESPONSES) // 8,
            prompt_ids=[f"p{row // 8}" for row in range(RESPONSES)],
            prompts=[f"prompt {row // 8}" for row in range(RESPONSES)],
            texts=[""] * RESPONSES,
            references=[""] * RESPONSES,
            tokens_BT=random_.zipf(1.3, shape) % 150_000,
            mask_BT=np.arange(TOKENS) < lengths[:, None],
            rewards_B=random_.integers(0, 2, RESPONSES).astype(float),
            truncated_B=lengths == TOKENS,
            learner_logprobs_BT=learner,
            sampler_logprobs_BT=learner + noise,
        )
        write_rollouts(root, batch, depth="full")


def best_of_turns(works: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds of the fastest turn of each; the first turns only warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(REPEATS + 1):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            if turn:
                seconds[name].append(time.perf_counter() - began)
    return {name: min(each) for name, each in seconds.items()}


def ours(root: Path, runner: runners.Runner) -> None:
    """All readings of all steps."""
    reader = DumpReader(dumps_among(files_below(root)), runner=runner)
    if not list(reader.steps()) or reader.failed:
        raise SystemExit(f"not read: {reader.failed[:3]}")


def texts_with_pandas(files: list[Path]) -> None:
    """As people do it now: half of our readings, in lines of their own."""
    import pandas as pd

    for path in files:
        frame = pd.read_json(path, lines=True)
        groups = frame.groupby("input")["score"]
        _ = frame["score"].mean(), (groups.std() == 0).mean(), groups.mean()
        _ = frame.groupby("input")["output"].nunique()
        _ = frame["output"].str.contains(SECOND_THOUGHTS, case=False, regex=True).mean()


def tokens_with_pandas(files: list[Path]) -> None:
    """As people do it now: the gap of the two policies per response."""
    import pandas as pd

    for path in files:
        frame = pd.read_parquet(path, columns=["reward", "group_id", *COLUMNS])
        gaps = [
            np.abs(np.exp(a) - np.exp(b))
            for a, b in zip(frame.learner_logprobs, frame.sampler_logprobs, strict=True)
        ]
        _ = np.mean([gap.mean() for gap in gaps]), max(gap.max() for gap in gaps)
        _ = (frame.groupby("group_id")["reward"].std() == 0).mean()


def compare(root: Path, title: str, others: Mapping[str, Callable[[list[Path]], object]]) -> None:
    """Print the speed of each, the first of the others being what ours is measured against."""
    files = [path for _, path in dumps_among(files_below(root))]
    megabytes = sum(path.stat().st_size for path in files) / 1e6
    print(f"{title}: {len(files)} files, {megabytes:.0f} MB", flush=True)
    works: dict[str, Callable[[], object]] = {
        name: partial(work, files) for name, work in others.items()
    }
    works["grpodoctor, one process"] = partial(ours, root, runners.in_process)
    works[f"grpodoctor, a pool of {len(os.sched_getaffinity(0))}"] = partial(
        ours, root, runners.in_process_pool()
    )
    seconds = best_of_turns(works)
    bar = next(iter(seconds.values()))
    for name, each in seconds.items():
        print(f"  {name:<38} {megabytes / each:7.0f} MB/s  {bar / each:.2f} of the first")


def main() -> None:
    """Print both comparisons."""
    import polars

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_texts(root)
        parse = {
            "polars, parsing alone": lambda files: [polars.read_ndjson(each) for each in files],
            "pandas, half of the readings": texts_with_pandas,
        }
        compare(root, "verl's JSONL", parse)
        shutil.rmtree(root)
        (root / "rollouts").mkdir(parents=True)
        write_tokens(root)
        columns = {
            "pyarrow, reading the columns alone": lambda files: [
                pq.read_table(each, columns=COLUMNS).num_rows for each in files
            ],
            "pandas, a few readings": tokens_with_pandas,
        }
        compare(root, "Parquet with per-token columns", columns)


if __name__ == "__main__":
    main()
