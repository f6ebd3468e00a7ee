"""The MCP server, asked by the official SDK's own client over stdin and stdout."""

import json
import shutil
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from grpodoctor.errors import ConfigError
from grpodoctor.monitor.bounded_json import UNTRUSTED
from grpodoctor.monitor.project_settings import ProjectSettings
from grpodoctor.treatment.mailbox import Inbox
from grpodoctor.treatment.requests import Request, validate
from tests.cli.in_process import run
from tests.report.simulated import HOSTILE, KNOBS, record_run

pytest.importorskip("mcp")
import anyio
from mcp import StdioServerParameters
from mcp.client.client import Client

from grpodoctor.cli.mcp.run_tools import RunTools
from grpodoctor.cli.mcp.treatment_tools import TreatmentTools

READING = {"list_runs", "check", "snapshot", "rule", "remedy", "recipe"}
CHECKOUT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    record_run(root / "runs" / "sick", 60, sick_from=20, finished=False, text=HOSTILE)
    record_run(root / "runs" / "healthy", 60)
    record_run(root.parent / f"{root.name}-outside", 20)
    (root / "link").symlink_to(root.parent / f"{root.name}-outside")
    return root


@asynccontextmanager
async def connected(*arguments):
    command = ["-P", "-m", "grpodoctor", "mcp", *map(str, arguments), "--isolated"]
    environment = {"PYTHONPATH": str(CHECKOUT)}
    parameters = StdioServerParameters(command=sys.executable, args=command, env=environment)
    async with Client(parameters) as client:
        yield client


def session(root, scenario, *arguments):
    async def main():
        async with connected(root, *arguments) as client:
            return await scenario(client)

    return anyio.run(main)


async def call(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return json.loads(result.content[0].text)


async def refused(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return result.content[0].text


def test_an_agent_reads_a_run(root):
    async def scenario(client):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools.keys() == READING
        assert all(tool.annotations.read_only_hint for tool in tools.values())
        runs = await call(client, "list_runs")
        names = {each["run"] for each in runs["runs"]}
        assert names == {"runs/sick", "runs/healthy"}
        check = await call(client, "check", run="runs/sick")
        assert check["verdict"]["kind"] == "sick"
        assert check["untrusted"] == UNTRUSTED
        code = check["findings"][0]["code"]
        assert (await call(client, "rule", code=code))["code"] == code
        remedy = check["findings"][0]["remedies"][0]["id"]
        page = await call(client, "remedy", remedy_id=remedy, framework="trl")
        assert (page["id"], page["framework"]) == (remedy, "trl")
        recipes = await call(client, "recipe")
        name = recipes["recipes"][0]["name"]
        assert (await call(client, "recipe", name=name))["name"] in name
        snapshot = await call(client, "snapshot", run="runs/sick", around=40)
        assert snapshot["window"]["step"] == 40
        assert snapshot["untrusted"] == UNTRUSTED
        assert "\x1b" not in snapshot["responses"][0]["text"]
        healthy = await call(client, "check", run="runs/healthy")
        assert healthy["verdict"]["kind"] != "sick"
        for path in ("..", "link", "/etc", "a\0b", f"../{root.name}-outside"):
            assert "not below the root" in await refused(client, "check", run=path)
        assert "no such run" in await refused(client, "check", run="runs/none")
        assert "no step 900" in await refused(client, "snapshot", run="runs/sick", around=900)
        assert "ENT999" in await refused(client, "rule", code="ENT999")
        assert await refused(client, "apply", run="runs/sick", remedy_id="dynamic-sampling")

    session(root, scenario)


@pytest.mark.slow
def test_an_agent_treats_a_live_run(root, tmp_path):
    path = tmp_path / "live"
    shutil.copytree(root / "runs" / "sick", path)

    async def scenario(client):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools.keys() == READING | {"propose", "apply", "undo"}
        assert not tools["apply"].annotations.read_only_hint
        proposal = await call(client, "propose", run="live")
        ready = [each for each in proposal["remedies"] if not each["refused"]]
        assert all(each["applicability"] == "safe" for each in ready)
        remedy = ready[0]
        applied = await call(client, "apply", run="live", remedy_id=remedy["remedy"])
        for each in proposal["remedies"]:
            if each["refused"]:
                text = await refused(client, "apply", run="live", remedy_id=each["remedy"])
                assert "is not applied" in text
        undo = await refused(client, "undo", run="live", treatment_id=applied["requested"])
        assert "no such treatment is in force" in undo  # the run has not answered yet
        return remedy, applied

    remedy, applied = session(tmp_path, scenario, "--apply", "safe")
    requests = Inbox(path).take(10**9)
    assert all(isinstance(each, Request) for each in requests)
    (request,) = [each for each in requests if each.kind == "apply"]
    assert validate(request, KNOBS) == applied["change"] == remedy["change"]


def test_what_cannot_be_treated_is_refused(root):
    safe = TreatmentTools(RunTools(root, ProjectSettings()), "safe")
    unsafe = TreatmentTools(RunTools(root, ProjectSettings()), "unsafe")
    reasons = {each["remedy"]: each["refused"] for each in safe.propose("runs/sick")["remedies"]}
    freed = {each["remedy"]: each["refused"] for each in unsafe.propose("runs/sick")["remedies"]}
    held = {name for name, reason in reasons.items() if "unsafe" in reason}
    assert held
    assert not any("unsafe" in freed[name] for name in held)
    with pytest.raises(ConfigError, match=r"has finished|no active finding"):
        safe.apply("runs/healthy", next(iter(reasons)))
    with pytest.raises(ConfigError, match="no such treatment is in force"):
        safe.undo("runs/sick", "1-x@3")
    log = root / "trainer.jsonl"
    log.write_text("".join(f'{{"step": {n}, "reward": 0.5, "loss": 0.1}}\n' for n in range(9)))
    with pytest.raises(ConfigError, match="only a log"):
        safe.propose("trainer.jsonl")
    log.unlink()


def test_a_missing_extra_or_root_is_one_line(tmp_path, monkeypatch):
    done = run("mcp", tmp_path / "none")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    for name in [each for each in sys.modules if each.partition(".")[0] == "mcp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "grpodoctor.cli.mcp.server", raising=False)
    monkeypatch.setitem(sys.modules, "mcp", None)
    done = run("mcp", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "pip install 'grpodoctor[mcp]'" in done.stderr
