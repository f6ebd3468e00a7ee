"""Runs that lie elsewhere: in an object store, behind a web server."""

from __future__ import annotations

import functools
import gzip
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath

import pytest
from typer.testing import CliRunner

from grpodoctor.cli.main import app
from grpodoctor.errors import MissingExtraError, RunError
from grpodoctor.frameworks.rollout_formats.dump_file import DumpFile
from grpodoctor.frameworks.rollout_formats.registry import all_dump_formats
from grpodoctor.runs.reading import remote as places
from grpodoctor.runs.reading.opening import FrameworkRun, open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.runs.reading.remote import _name_below, fetch_run, local_run
from grpodoctor.runs.rollout_dumps import runners
from grpodoctor.runs.rollout_dumps.dump_reader import DumpReader
from grpodoctor.runs.rollout_dumps.shards import plan_shards
from grpodoctor.support.files import remote_stores as stores
from grpodoctor.support.files.remote_stores import is_remote
from tests.runs.progress_log import ProgressLog
from tests.runs.rollout_dumps.samples import STEPS, WRITERS

boto3 = pytest.importorskip("boto3")

ROWS = [
    {"step": step, "reward": step / 64, "reward_std": 0.2, "completion_length": 100.0, "kl": 0.01,
     "loss": 0.0, "grad_norm": 0.3, "learning_rate": 1e-6}
    for step in range(1, 31)
]  # fmt: skip
LOG = "".join(json.dumps(row) + "\n" for row in ROWS)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """moto's server, with a bucket that holds a run."""
    port = free_port()
    command = [sys.executable, "-c", f"import moto.server; moto.server.main(['-p', '{port}'])"]
    environment = {**os.environ, "AWS_DEFAULT_REGION": "us-east-1"}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(port)
        client = boto3.client("s3", endpoint_url=address, region_name="us-east-1",
                              aws_access_key_id="x",
                              aws_secret_access_key="x")  # noqa: S106 - moto takes any  # fmt: skip
        client.create_bucket(Bucket="runs")
        for name, content in (
            ("one/metrics.jsonl", LOG),
            ("one/config.json", json.dumps({"num_generations": 8})),
            ("one/checkpoint-5/model.safetensors", "x" * 1000),
            ("one/big.bin2", "x" * 200_000),
        ):
            client.put_object(Bucket="runs", Key=name, Body=content.encode())
        yield address
    finally:
        server.terminate()
        server.wait()


def _wait_for(port: int) -> None:
    for _ in range(150):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the server did not start")


@pytest.fixture
def credentials(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", store)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def checked(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["check", *arguments])
    return result.exit_code, result.output


@pytest.mark.usefixtures("credentials")
def test_a_run_in_an_object_store_is_checked_like_one_on_disk(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(LOG)
    (tmp_path / "config.json").write_text(json.dumps({"num_generations": 8}))
    code, remote = checked("s3://runs/one", "--output-format", "json")
    assert code == checked(str(tmp_path))[0]
    report = json.loads(remote)
    local = json.loads(checked(str(tmp_path), "--output-format", "json")[1])
    assert report["run"].pop("path") == "s3://runs/one"
    local["run"].pop("path")
    assert report == local
    assert report["run"]["last_step"] == 30


@pytest.mark.usefixtures("credentials")
def test_a_single_log_of_a_store(tmp_path: Path) -> None:
    with fetch_run("s3://runs/one/metrics.jsonl") as found:
        assert found.path.name == "metrics.jsonl"
        assert found.path.read_text() == LOG
        kept = found.path
    assert not kept.exists(), "nothing is left behind"


@pytest.mark.usefixtures("credentials")
def test_weights_are_not_downloaded_and_large_files_are_reported() -> None:
    progress = ProgressLog()
    with fetch_run("s3://runs/one/", max_bytes=100_000, progress=progress) as found:
        names = {path.name for path in found.path.rglob("*") if path.is_file()}
    assert names == {"metrics.jsonl", "config.json"}
    assert found.notes == ["not downloaded, larger than 100000 bytes in total: big.bin2"]
    assert progress.updates[-1][0] == progress.updates[-1][1]


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize("url", ["s3://no-such-bucket/x", "s3://runs/nothing/here"])
def test_a_missing_object_is_one_clear_error(url: str) -> None:
    message = rf"no such bucket.*{re.escape(url)}.*check the address"
    with pytest.raises(RunError, match=message), fetch_run(url):
        pass


def test_without_credentials(store: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", store)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RunError, match="no credentials"), fetch_run("s3://runs/one"):
        pass


@contextmanager
def closing_server() -> Iterator[tuple[int, list[None]]]:
    """A server that closes each connection; its port, and an entry per connection."""
    connections: list[None] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    server.accept()[0].close()
                    connections.append(None)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1], connections
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow  # the client waits between its attempts
def test_a_store_that_does_not_respond_is_tried_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with closing_server() as (port, connections):
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        with pytest.raises(RunError, match="cannot be read"), fetch_run("s3://runs/one"):
            pass
        assert 1 <= len(connections) <= 40


@pytest.mark.parametrize("offline", ["0", "1"])
def test_an_unreachable_hub_is_one_clear_line(offline: str) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    environment = {**os.environ, "HF_ENDPOINT": address, "HF_HUB_OFFLINE": offline}
    command = [sys.executable, "-m", "grpodoctor", "check", "hf://datasets/somebody/run"]
    found = subprocess.run(command, env=environment, check=False,
                           capture_output=True, text=True, timeout=120)  # fmt: skip
    assert found.returncode == 2
    assert found.stderr.startswith("error: ")
    assert "Traceback" not in found.stderr
    assert len(found.stderr.splitlines()) == 1


@pytest.fixture
def website(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "metrics.jsonl").write_text(LOG)

    class Quiet(SimpleHTTPRequestHandler):
        log_message = lambda *_: None  # noqa: E731 - nothing is printed

    handler = functools.partial(Quiet, directory=str(tmp_path))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_log_behind_a_web_server(website: str) -> None:
    url = f"{website}/metrics.jsonl?token=secret"
    with fetch_run(url) as found:
        assert found.path.name == "metrics.jsonl"
        assert found.path.read_text() == LOG
    code, text = checked(f"{website}/metrics.jsonl", "--output-format", "json")
    assert code in (0, 1)
    assert json.loads(text)["run"]["framework"] == "trl"


def test_a_file_missing_on_a_web_server_is_one_clear_error(website: str) -> None:
    with pytest.raises(RunError, match="no such bucket, file"), fetch_run(f"{website}/nothing"):
        pass


@pytest.mark.parametrize("url", ["ftp://host/run", "ssh://host/run", "file:///etc/passwd"])
def test_other_kinds_of_places_are_named(url: str) -> None:
    with pytest.raises(RunError, match="runs cannot be read from"), fetch_run(url):
        pass


def test_a_missing_package_is_one_friendly_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    message = r"pip install 'grpodoctor\[remote\]'"
    with pytest.raises(MissingExtraError, match=message), fetch_run("s3://runs/one"):
        pass


def test_a_local_path_is_not_copied(tmp_path: Path) -> None:
    assert not is_remote(str(tmp_path))
    assert not is_remote("C:/runs")
    assert not is_remote("simplecache::s3://runs/one")
    with local_run(str(tmp_path)) as found:
        assert found.path == tmp_path


def test_watch_refuses_a_remote_run() -> None:
    result = CliRunner().invoke(app, ["watch", "s3://runs/one"])
    assert result.exit_code != 0
    assert "cannot watch a remote run" in str(result.exception) + result.output


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("base/../../etc/passwd", "etc/passwd"),
        ("base//a/./b", "a/b"),
        ("base/a\x1b[2Jb", "a[2Jb"),
        ("base/" + "x" * 300, "x" * 200),
    ],
)
def test_a_hostile_name_stays_in_its_directory(path: str, expected: str) -> None:
    assert _name_below(path, "base/") == PurePosixPath(expected)


def test_a_file_that_grows_while_it_is_read_cannot_fill_the_disk(tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/run/log.jsonl", LOG.encode() * 10)
    small = [places.RemoteFile("/run/log.jsonl", PurePosixPath("log.jsonl"), 500)]
    places._download(memory, small, tmp_path, 1000, ProgressLog())
    assert (tmp_path / "log.jsonl").stat().st_size == 500


@pytest.fixture
def dumped(credentials: None, store: str, tmp_path: Path) -> Iterator[Path]:
    """A run whose dumps are too large to be copied, here and in the store."""
    run = tmp_path / "run"
    run.mkdir()
    rows = [{"step": step, "data": {"actor/pg_loss": 0.1, "actor/grad_norm": 1.0 + step,
                                    "critic/score/mean": 0.9}} for step in STEPS]  # fmt: skip
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for write in ("verl rollouts", "grpodoctor rollouts", "slime details"):
        WRITERS[write](run / write.split()[0])
    for path in [*run.rglob("*.jsonl")]:
        if path.parent.name == "rollouts":  # as large as those that are not copied
            path.write_bytes(path.read_bytes() * 100)
    last = run / "verl/rollouts/3.jsonl"
    last.with_name("3.jsonl.gz").write_bytes(gzip.compress(last.read_bytes(), 1))
    last.unlink()
    client = boto3.client("s3", endpoint_url=store, region_name="us-east-1",
                          aws_access_key_id="x", aws_secret_access_key="x")  # noqa: S106 # fmt: skip
    for path in (each for each in run.rglob("*") if each.is_file()):
        client.put_object(Bucket="runs", Key=f"dumped/{path.relative_to(run)}",
                          Body=path.read_bytes())  # fmt: skip
    yield run
    stores._shared_store.cache_clear()


@pytest.mark.parametrize("kind", ["verl", "grpodoctor", "slime"])
def test_dumps_in_a_store_are_read_without_copying(
    dumped: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "COPIED", 1000)
    for other in {"verl", "grpodoctor", "slime"} - {kind}:
        shutil.rmtree(dumped / other)
    local = {step.step: step.values for step in open_run(dumped / kind).steps}
    with fetch_run(f"s3://runs/dumped/{kind}", max_bytes=1000) as found:
        assert list(found.path.rglob("*.*")) == [], "nothing of them is copied"
        assert found.notes[0].startswith("read from the store, not downloaded:")
        run = open_run(found.path, ReadOptions(remote_dumps=found.remote_dumps))
        assert {step.step: step.values for step in run.steps} == local
        assert len(local) == 3
        if kind == "verl":
            assert isinstance(run, FrameworkRun)
            assert next(iter(run.rollouts(3)))["prompt"].startswith("what is")


@pytest.mark.slow
@pytest.mark.usefixtures("dumped")
def test_a_copied_log_and_a_remote_dump_are_one_run(
    dumped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "COPIED", 1000)
    for other in ("grpodoctor", "slime"):
        shutil.rmtree(dumped / other)
    client_url = "s3://runs/dumped"
    code, text = checked(client_url + "/verl", "--output-format", "json")
    assert code in (0, 1)
    assert json.loads(text)["run"]["steps"] == 3
    _, page = checked(client_url + "/verl", "--output-format", "html")
    assert "what is" in page


def test_a_worker_opens_its_own_part_of_a_file(
    dumped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In separate processes; each requests its range from the store."""
    monkeypatch.setattr(places, "COPIED", 1000)
    with fetch_run("s3://runs/dumped/verl") as found:
        kept = [(form, source) for form, source in found.remote_dumps]
        for runner, size in ((runners.in_process_pool(2), 100_000), (runners.in_process, 1 << 30)):
            reader = DumpReader(kept, runner=runner, shard_bytes=size)
            steps = dict(reader.steps())
            assert not reader.failed
            assert reader.responses == 3 * 1600
            assert len(plan_shards(kept, 100_000).shards) > 10
            assert sorted(steps) == list(STEPS)
    assert dumped.exists()


def test_a_dump_deleted_from_the_store_is_reported(
    dumped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "COPIED", 1000)
    with fetch_run("s3://runs/dumped/verl") as found:
        gone = [(form, replace(source, origin=source.origin + ".gone"))
                for form, source in found.remote_dumps]  # fmt: skip
        reader = DumpReader(gone, runner=runners.in_process)
        assert dict(reader.steps()) == {}
    assert len(reader.failed) == 3
    assert "no such bucket" in reader.failed[0]
    assert dumped.exists()


@pytest.mark.slow
def test_a_store_that_fails_while_it_is_read_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a store's packages raise is not what the system does: no reader knows it."""
    from botocore.exceptions import ReadTimeoutError

    class Failing(io.BytesIO):
        def readinto(self, buffer: object) -> int:  # noqa: ARG002
            raise ReadTimeoutError(endpoint_url="http://nowhere")

    class Store:
        def _strip_protocol(self, url: str) -> str:
            return url

        def open(self, *_: object, **__: object) -> io.BytesIO:
            return Failing(b"x" * 100)

    monkeypatch.setattr(stores, "_shared_store", lambda kind: Store())  # noqa: ARG005
    form = next(each for each in all_dump_formats() if each.name == "verl rollouts")
    for name in ("1.jsonl", "1.jsonl.gz"):
        path = Path("/nowhere") / name.removesuffix(".gz")
        source = DumpFile(path, f"s3://bucket/{name}", 100)
        reader = DumpReader([(form, source)], runner=runners.in_process)
        assert dict(reader.steps()) == {}
        (why,) = reader.failed or [each.why for each in reader.damage]
        assert "Read timeout" in why
