"""A small sound log in each format, for tests that damage it."""

from __future__ import annotations

import json
import sqlite3
import struct
import tempfile
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from grpodoctor.runs.log_formats.decoding.crc32c import masked_crcs

ROW = {"step": 1, "loss": 0.01, "reward": 0.5, "reward_std": 0.2, "kl": 0.001,
       "completion_length": 9.0, "learning_rate": 1e-6}  # fmt: skip


def frame(message: bytes) -> bytes:
    length = struct.pack("<Q", len(message))
    sums = masked_crcs([length, message])
    return length + struct.pack("<I", sums[0]) + message + struct.pack("<I", sums[1])


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def events() -> bytes:
    def event(step: int) -> bytes:
        value = field(1, b"train/reward") + b"\x15" + struct.pack("<f", step / 8)
        summary = field(1, value)
        return b"\x09" + struct.pack("<d", 1e9) + b"\x10" + bytes([step]) + field(5, summary)

    return b"".join(frame(event(step)) for step in range(1, 20))


def piece(message: bytes) -> bytes:
    return struct.pack("<IHB", zlib.crc32(message, zlib.crc32(b"\x01")), len(message), 1) + message


def wandb_log() -> bytes:
    item = field(1, b"reward") + b"\x82\x01\x030.5"
    return b":W&B\xe1\xbe\x00" + piece(field(2, field(1, item))) * 20


def database() -> bytes:
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "x.db"
        with sqlite3.connect(path) as base:
            base.execute(
                "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, "
                "step INTEGER, metrics TEXT)"
            )
            for step in range(20):
                base.execute(
                    "INSERT INTO metrics VALUES (NULL, '', 'r', ?, ?)", (step, json.dumps(ROW))
                )
        base.close()
        return path.read_bytes()


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([{**ROW, "step": step} for step in range(20)]), sink)
    return sink.getvalue().to_pybytes()


def notebook() -> bytes:
    header = "".join(f"<th>{title}</th>" for title in ("Step", "Training Loss", "reward", "kl"))
    body = "".join(
        f"<tr><td>{step}</td><td>0.01</td><td>{step / 8}</td><td>0.1</td></tr>"
        for step in range(1, 20)
    )
    table = {"data": {"text/html": [f"<table><tr>{header}</tr>", f"{body}</table>"]}}
    printed = {"name": "stdout", "text": ["{'loss': 0.1, 'reward': 0.5, 'step': 3}\n"]}
    return json.dumps({"cells": [{"outputs": [table]}, {"outputs": [printed]}]}).encode()


def kaggle() -> bytes:
    texts = (f"{{'loss': 0.1, 'reward': {step}, 'step': {step}}}\n" for step in range(20))
    entries = (json.dumps({"stream_name": "stdout", "time": 0.5, "data": text}) for text in texts)
    return ("[" + "\n,".join(entries) + "\n]").encode()


LINES = [json.dumps({**ROW, "step": step}) for step in range(1, 20)]
SOUND: dict[str, bytes] = {
    "jsonl": "\n".join(LINES).encode(),
    "json": ("[" + ",".join(LINES) + "]").encode(),
    "trainer_state": ('{"log_history": [' + ",".join(LINES) + "]}").encode(),
    "notebook": notebook(),
    "kaggle": kaggle(),
    "csv": (",".join(ROW) + "\n" + "\n".join(",".join(map(str, ROW.values())) for _ in LINES)
            ).encode(),
    "console": "".join(
        f"(pid=1) \x1b[31mstep:{step} - actor/entropy:0.3 - actor/pg_loss:0.1\x1b[0m\n"
        f"{{'loss': 0.1, 'reward': {step}}}\n 10%|#| 1/10 [00:01<00:09]\r"
        for step in range(20)
    ).encode(),
    "tensorboard": events(),
    "wandb": wandb_log(),
    "trackio": database(),
    "mlflow": b"".join(b"1700000000000 0.5 %d\n" % step for step in range(20)),
    "parquet": parquet(),
}  # fmt: skip
