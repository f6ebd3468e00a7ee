"""Files of the probe, the preflight checks and the training data."""

from __future__ import annotations

import csv
import json
import struct
import tempfile
from collections.abc import Callable
from functools import cache
from io import BytesIO, StringIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from grpodoctor.preflight.inputs.prompt_rows import read_prompt_table
from grpodoctor.probe.contract import RefusalError, Response, read_shard, write_shard
from grpodoctor.probe.engines.output_validation import read_ids
from grpodoctor.probe.inputs.checksums import compare_checkpoints, open_checkpoint
from grpodoctor.probe.results.results_json import read_result, to_json, write_result
from grpodoctor.probe.results.token_text import texts_of
from grpodoctor.report.probe.view import view_of
from grpodoctor.report.text import render
from grpodoctor.trainer.data.loading import FileTask
from tests.fuzz.mutations import binaries, texts
from tests.fuzz.targets.base import Mutation, Target
from tests.report.probed import result

_PROBLEMS = [{"id": f"p{n}", "prompt": f"{n} + {n} =", "answer": 2 * n} for n in range(8)]


def targets() -> list[Target]:
    """Everything that the probe, the trainer and the preflight checks read."""
    return [
        *_prompt_targets(),
        *_problem_targets(),
        Target("probe report", "probe.json", _report, _probe_report, texts.json_document,
               weight=0.3),
        Target("probe report, schema 1", "probe.json",
               (Path(__file__).parents[2] / "data" / "probe-schema-1.json").read_bytes,
               _probe_report, texts.json_document, weight=0.3),
        Target("probe shard", "shard-000000.npz", _shard, read_shard, binaries.npz_arrays,
               refusals=(RefusalError,)),
        Target("probe token ids", "ids.json", lambda: b"[[1, 2, 3], [4]]", read_ids,
               texts.json_document),
        Target("tokenizer.json", "tokenizer.json", _tokenizer, _token_texts, texts.json_document),
        Target("safetensors header", "model.safetensors", _weights, _checkpoint,
               binaries.safetensors_header,
               {"config.json": lambda: b'{"tie_word_embeddings": true}'}),
    ]  # fmt: skip


def _prompt_targets() -> list[Target]:
    rows = [{"prompt": row["prompt"], "messages": [{"role": "user", "content": "hi"}],
             "prompt_token_ids": [1, 2]} for row in _PROBLEMS]  # fmt: skip
    forms: list[tuple[str, Callable[[], bytes], Mutation]] = [
        ("jsonl", lambda: _lines(rows), texts.json_lines),
        ("json", lambda: json.dumps(rows).encode(), texts.json_document),
        ("txt", lambda: b"one plus one?\nzwei plus zwei?\n", texts.words),
        ("csv", lambda: _cells(rows), texts.csv_cells),
        ("parquet", lambda: _table(rows), binaries.parquet_columns),
    ]
    return [
        Target(f"prompts: {suffix}", f"prompts.{suffix}", sound, _prompts, mutation)
        for suffix, sound, mutation in forms
    ]


def _problem_targets() -> list[Target]:
    return [
        Target("training data: jsonl", "data.jsonl", lambda: _lines(_PROBLEMS), _problems,
               texts.json_lines),
        Target("training data: parquet", "data.parquet", lambda: _table(_PROBLEMS), _problems,
               binaries.parquet_columns),
    ]  # fmt: skip


def _lines(rows: list[dict[str, object]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _table(rows: list[dict[str, object]]) -> bytes:
    sink = BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


def _cells(rows: list[dict[str, object]]) -> bytes:
    """A table as pandas writes it: lists as Python writes them."""
    sink = StringIO(newline="")
    writer = csv.DictWriter(sink, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    return sink.getvalue().encode()


def _prompts(path: Path) -> None:
    read_prompt_table(path, most=100)


def _problems(path: Path) -> None:
    FileTask(path, keep_columns=True)


@cache
def _report() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probe.json"
        write_result(result(), path)
        return path.read_bytes()


def _probe_report(path: Path) -> None:
    read = read_result(path)
    render(view_of(read))
    to_json(read)


@cache
def _shard() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shard-000000.npz"
        responses = [
            Response(prompt=0, sample=n, prompt_ids=[1, 2], response_ids=[3, 4, 5],
                     logprobs=[-0.1, -0.2, -0.3])
            for n in range(3)
        ]  # fmt: skip
        write_shard(path, responses)
        return path.read_bytes()


def _tokenizer() -> bytes:
    vocabulary = {"a": 0, "b": 1, "Ġthe": 2}
    added = [{"id": 3, "content": "<end>", "special": True}]
    decoder = {"type": "ByteLevel", "add_prefix_space": False}
    return json.dumps(
        {"model": {"type": "BPE", "vocab": vocabulary}, "decoder": decoder, "added_tokens": added}
    ).encode()


def _token_texts(path: Path) -> None:
    texts_of(str(path.parent))


def _weights() -> bytes:
    tensors = {
        "model.embed_tokens.weight": np.ones((4, 2), np.float32),
        "lm_head.weight": np.ones((4, 2), np.float32),
    }
    header, at = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": [4, 2], "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(header).encode()
    content = b"".join(tensor.tobytes() for tensor in tensors.values())
    return struct.pack("<Q", len(text)) + text + content


def _checkpoint(path: Path) -> None:
    read = open_checkpoint(str(path.parent))
    if read is not None:
        compare_checkpoints(read, read)
