"""Two gloo ranks with half of the weights each give the scores of one process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.forked import SCRIPT, forked_ranks
from tests.probes.conftest import PROBES
from tests.probes.models import ROWS, prompts_file, texts

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
OPTIONS = {"dtype": "bfloat16", "batch_tokens": 400}
"""Several batches, with different numbers of responses per rank."""
WANT = ["entropy", "experts"]
EXPERTS = 8
"""Experts per layer of `moe_model`."""


def launch(
    folder: Path,
    model: Path,
    processes: int,
    options: dict[str, Any],
    tasks: list[dict[str, Any]],
    torchrun: bool = False,
) -> tuple[int, dict[str, Any], str]:
    """Exit code, answer and log of the program; all its processes are ended."""
    request, answer = folder / "request.json", folder / "answer.json"
    told = {"contract": 1, "model": str(model), "options": OPTIONS | options, "tasks": tasks}
    request.write_text(json.dumps(told | {"answer": str(answer)}), encoding="utf-8")
    program = str(PROBES / "engine_fsdp.py")
    if not torchrun:
        with forked_ranks(SCRIPT, program, str(request), cwd=folder, count=processes) as ranks:
            log = "".join(rank.communicate(timeout=200)[1] for rank in ranks)
            codes = [abs(rank.returncode or 0) for rank in ranks]
        return max(codes), json.loads(answer.read_text(encoding="utf-8")), log
    process = subprocess.Popen(
        [sys.executable, *TORCHRUN, str(processes), program, str(request)],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, log = process.communicate(timeout=200)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)  # torchrun then ends its ranks
    return process.returncode, json.loads(answer.read_text(encoding="utf-8")), log


def task(kind: str, folder: Path, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "name": folder.name, "output": str(folder), **more}


def draw(model: Path, folder: Path, want: Sequence[str] = ()) -> list[list[Any]]:
    """Two shards of different sizes, with an empty response."""
    from contract import Response, Sampling, write_shard
    from engine_transformers import load

    source = load(str(model), OPTIONS)
    ids = source.tokenise([{"text": text} for text in texts(5)])
    drawn = source.sample(ids, Sampling(samples=4, max_tokens=40), want)
    none = {name: values[:0] for name, values in drawn[0].extras.items()}
    shards = [[*drawn[:13], Response(ids[0], [], [], extras=none)], drawn[13:]]
    folder.mkdir()
    for number, shard in enumerate(shards):
        write_shard(folder / f"shard-{number:05d}.npz", shard)
    return shards


def alone(model: Path, shards: Sequence[Sequence[Any]]) -> dict[str, np.ndarray]:
    """The scores of one process for the same shards."""
    from contract import Processing
    from engine_transformers import load

    source = load(str(model), OPTIONS)
    told = [each for shard in shards for each in source.score(shard, Processing(), WANT)]
    found = {name: np.concatenate([each.extras[name] for each in told]) for name in told[0].extras}
    logprobs = np.concatenate([np.array(each.logprobs, np.float32) for each in told])
    return found | {"logprobs": logprobs}


def told_by(folder: Path) -> dict[str, np.ndarray]:
    """All shards of a folder, by column name without the shape."""
    shards: list[dict[str, np.ndarray]] = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as arrays:
            shards.append({name.rpartition("_")[0]: arrays[name] for name in arrays.files})
    return {name: np.concatenate([shard[name] for shard in shards]) for name in shards[0]}


def test_fsdp_scores_equal_one_process_to_the_bit(dense_model: Path, tmp_path: Path) -> None:
    inputs, scored = tmp_path / "inputs", tmp_path / "scored"
    drawn, own = tmp_path / "drawn", tmp_path / "own"
    shards = draw(dense_model, inputs)
    prompts = str(prompts_file(tmp_path / "prompts.json", 3))
    sampling = {"samples": 2, "max_tokens": 9, "temperature": 0.8}
    code, answer, log = launch(
        tmp_path,
        dense_model,
        2,
        {"fsdp": 2},
        [
            task("score", scored, inputs=str(inputs), want=WANT),
            task("sample", drawn, prompts=prompts, sampling=sampling, shard_responses=4),
            task("score", own, inputs=str(drawn), processing={"temperature": 0.8}),
        ],
    )
    assert code == 0, log
    assert answer["engine"]["layout"] == {"fsdp": 2, "tensor_parallel": 1}
    assert answer["tasks"]["scored"]["responses"] == sum(map(len, shards))
    wanted, told = alone(dense_model, shards), told_by(scored)
    assert np.array_equal(told["logprobs"], wanted["logprobs"])
    assert np.array_equal(told["entropy"], wanted["entropy"])
    assert len(told_by(own)["logprobs"]) == answer["tasks"]["drawn"]["tokens"] > 20
    gap = np.exp(told_by(own)["logprobs"]) - np.exp(told_by(drawn)["logprobs"])
    assert np.abs(gap).mean() < 5e-3


def _with_next_experts(response: Any) -> Any:
    """The response with each of its experts replaced by the next one."""
    experts = response.extras["experts"]
    shifted = np.where(experts < 0, experts, (experts + 1) % EXPERTS).astype(experts.dtype)
    return replace(response, extras={**response.extras, "experts": shifted})


@pytest.mark.slow
def test_tensor_parallel_differs_only_by_rounding(moe_model: Path, tmp_path: Path) -> None:
    from contract import Response, write_shard

    inputs, scored, strange = tmp_path / "inputs", tmp_path / "scored", tmp_path / "strange"
    shards, held = draw(moe_model, inputs, ["experts"]), tmp_path / "held"
    # Replay experts that the routers do not choose by themselves, so that following them does not
    # depend on how this machine rounds.
    forced = [[_with_next_experts(response) for response in shard] for shard in shards]
    for folder, content in ((tmp_path / "forced", forced), (strange, [])):
        folder.mkdir()
        for number, shard in enumerate(content):
            write_shard(folder / f"shard-{number:05d}.npz", shard)
    write_shard(strange / "shard-00000.npz", [Response([5], [ROWS + 3])])
    code, answer, log = launch(
        tmp_path,
        moe_model,
        2,
        {"tensor_parallel": 2},
        [
            task("score", scored, inputs=str(inputs), want=WANT),
            task("score", held, inputs=str(tmp_path / "forced"), want=WANT, replay=True),
            task("score", tmp_path / "refused", inputs=str(strange)),
        ],
    )
    assert answer["engine"]["layout"] == {"fsdp": 1, "tensor_parallel": 2}
    wanted, told = alone(moe_model, shards), told_by(scored)
    gap = np.abs(np.exp(told["logprobs"]) - np.exp(wanted["logprobs"]))
    assert 0 < gap.mean() < 3e-3, "another layout changes the rounding and nothing else"
    assert gap.max() < 0.3
    same = np.sort(told["experts"], axis=2) == np.sort(wanted["experts"], axis=2)
    assert same.all(axis=2).mean() > 0.95
    replayed = np.concatenate([each.extras["experts"] for shard in forced for each in shard])
    assert (np.sort(told_by(held)["experts"], axis=2) == np.sort(replayed, axis=2)).all()
    followed = np.sort(told["experts"], axis=2) == np.sort(replayed, axis=2)
    assert followed.all(axis=2).mean() < 0.5, "without replay the routers make their own choice"
    # The refusal of all ranks is in the answer; finished tasks are kept.
    assert code != 0
    assert f"has the token id {ROWS + 3}" in answer["error"]["what"]
    assert set(answer["tasks"]) == {"scored", "held"}
    assert 'engine_fsdp.py", line' not in log, "a refusal has no traceback"


@pytest.mark.slow
def test_fsdp_and_tensor_parallel_on_four_ranks(dense_model: Path, tmp_path: Path) -> None:
    inputs, scored = tmp_path / "inputs", tmp_path / "scored"
    shards = draw(dense_model, inputs)
    options = {"tensor_parallel": 2, "dtype": "float32"}  # fsdp follows from the processes
    work = [task("score", scored, inputs=str(inputs))]
    code, answer, log = launch(tmp_path, dense_model, 4, options, work, torchrun=True)
    assert code == 0, log
    assert answer["engine"]["layout"] == {"fsdp": 2, "tensor_parallel": 2}
    from contract import Processing
    from engine_transformers import load

    source = load(str(dense_model), OPTIONS | {"dtype": "float32"})
    told = [each for shard in shards for each in source.score(shard, Processing(), ())]
    wanted = np.concatenate([each.logprobs for each in told])
    assert np.abs(told_by(scored)["logprobs"] - wanted).max() < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["fsdp", "tensor_parallel"])
def test_perturb_affects_the_shards_of_all_ranks(
    moe_model: Path, tmp_path: Path, layout: str
) -> None:
    """As much as in one process, in the mean over all tokens."""
    from contract import Processing
    from engine_transformers import load

    inputs, scored = tmp_path / "inputs", tmp_path / "scored"
    shards = draw(moe_model, inputs)
    options = {layout: 2, "perturb": 0.05, "dtype": "float32"}
    work = [task("score", scored, inputs=str(inputs))]
    code, answer, log = launch(tmp_path, moe_model, 2, options, work)
    assert code == 0, log
    assert answer["engine"]["settings"]["perturb"] == 0.05
    sound, noisy = (
        np.concatenate(
            [
                each.logprobs
                for shard in shards
                for each in load(str(moe_model), own).score(shard, Processing(), ())
            ]
        )
        for own in ({"dtype": "float32"}, {"dtype": "float32", "perturb": 0.05})
    )
    wanted = np.abs(noisy - sound).mean()
    assert wanted / 2 < np.abs(told_by(scored)["logprobs"] - sound).mean() < 2 * wanted


def test_perturb_is_equal_on_tensors_that_all_ranks_hold_whole() -> None:
    """Independent of the shapes of the sharded matrices."""
    import torch
    from hf.loading import _perturb

    ranks = []
    for own in (3, 5):
        layers = {"part": torch.nn.Linear(8, own), "whole": torch.nn.Linear(8, 8)}
        ranks.append(torch.nn.ModuleDict(layers).requires_grad_(False))
    ranks[1]["whole"].load_state_dict(ranks[0]["whole"].state_dict())
    before = ranks[0]["whole"].weight.clone()
    for rank in ranks:
        _perturb(rank, 0.1, seed=3)
    assert torch.equal(ranks[0]["whole"].weight, ranks[1]["whole"].weight)
    assert not torch.equal(ranks[0]["whole"].weight, before)
    assert torch.equal(ranks[0]["whole"].bias, ranks[1]["whole"].bias)


@pytest.mark.parametrize("lots", [0, 1, 5, 8])
def test_ranks_make_equally_many_passes_and_count_each_batch_once(
    lots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine_fsdp import ShardedRanks

    work = [[10 * lot, 10 * lot + 1] for lot in range(lots)]
    passes, counted = [], []
    for rank in range(6):
        monkeypatch.setenv("RANK", str(rank))
        shares = ShardedRanks(3, 2).share(work)
        passes.append(len(shares))
        counted += [lot for lot, counts in shares if counts]
    assert len(set(passes)) == 1
    assert sorted(counted) == work


def test_degrees_must_multiply_to_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    from contract import RefusalError
    from engine_fsdp import _degrees, load

    monkeypatch.setenv("WORLD_SIZE", "8")
    assert _degrees(0, 0) == (8, 1)
    assert _degrees(0, 2) == (4, 2)
    assert _degrees(2, 4) == (2, 4)
    for fsdp, tensor in ((2, 2), (8, 2), (0, 3), (0, 16)):
        with pytest.raises(RefusalError, match="is not the number of processes, 8"):
            _degrees(fsdp, tensor)
    with pytest.raises(RefusalError, match="no option 'quantise'"):
        load("nowhere", {"quantise": "int8"})


def test_attention_heads_are_not_split() -> None:
    from contract import RefusalError
    from engine_fsdp import _check_heads
    from transformers import Qwen2Config

    config = Qwen2Config(num_attention_heads=8, num_key_value_heads=2)
    _check_heads(config, 2)
    with pytest.raises(RefusalError, match="2 key-value heads"):
        _check_heads(config, 4)
