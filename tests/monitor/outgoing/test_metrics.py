"""The metrics endpoint, read by Prometheus' own parsers."""

import re
import shutil
import socket
import urllib.request
from dataclasses import replace

import pytest

from grpodoctor.cli.commands.watch import LinesView, follow
from grpodoctor.cli.outgoing import _publisher
from grpodoctor.errors import ConfigError, MissingExtraError
from grpodoctor.monitor.outgoing.metrics_server import MetricsServer
from grpodoctor.monitor.session import Session
from tests.cli.in_process import run
from tests.report.simulated import HOSTILE, record_run

pytest.importorskip("prometheus_client")
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture
def server():
    with MetricsServer(0) as server:
        yield server


def scrape(server, accept=OPENMETRICS):
    request = urllib.request.Request(server.url, headers={"Accept": accept})  # noqa: S310
    with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
        text = response.read().decode()
        is_openmetrics = "openmetrics" in response.headers["Content-Type"]
    parse = openmetrics if is_openmetrics else prometheus
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def labelled(samples, name, label):
    return {dict(key[1:])[label]: value for key, value in samples.items() if key[0] == name}


def test_a_scrape_agrees_with_the_report(sick, server):
    session = Session(sick)
    session.read_all()
    server.publish(session.snapshot())
    samples = scrape(server)
    report = session.examination.report()
    active = labelled(samples, "grpodoctor_finding_active", "code")
    assert active == {each.code: float(each.active) for each in report.findings}
    assert {"REW002", "ENT001"} <= active.keys()
    vitals = {each.metric: each for each in session.snapshot().vitals}
    now = labelled(samples, "grpodoctor_vital", "metric")
    assert now == {name: vital.now for name, vital in vitals.items() if vital.now is not None}
    start = labelled(samples, "grpodoctor_vital_start", "metric")
    assert start["reward/mean"] == vitals["reward/mean"].start
    verdict = labelled(samples, "grpodoctor_verdict", "grpodoctor_verdict")
    assert [kind for kind, value in verdict.items() if value] == ["sick"]
    assert samples["grpodoctor_last_step",] == 59
    assert samples["grpodoctor_finished",] == 1
    assert scrape(server, "text/plain").keys() == samples.keys()


def test_a_hostile_model_name_stays_one_label(sick, server):
    session = Session(sick)
    session.read_all()
    snapshot = session.snapshot()
    facts = replace(snapshot.facts, model=f'a"b\\c\nd {HOSTILE}')
    server.publish(replace(snapshot, facts=facts))
    (info,) = labelled(scrape(server), "grpodoctor_run_info", "model")
    assert info.startswith('a"b\\c d')
    assert not re.search(r"[\x00-\x1f\x1b\u202e]", info)


def test_a_run_that_does_not_exist_yet_can_be_scraped(tmp_path, server):
    assert scrape(server) == {}
    server.publish(Session(tmp_path / "run").snapshot())
    assert scrape(server)["grpodoctor_waiting",] == 1


def test_watch_publishes_what_it_reads_and_says_that_the_run_was_removed(tmp_path, server, capsys):
    path = record_run(tmp_path / "run", 30)
    session, ticks = Session(path), []

    def ended():
        ticks.append(scrape(server)["grpodoctor_steps",])
        if len(ticks) == 1:
            shutil.rmtree(path)
        return len(ticks) == 3

    listeners = [_publisher(server)]
    follow(session, LinesView(), ended=ended, interval=0.01, listeners=listeners)
    assert ticks == [30, 0, 0]
    assert "the run was removed; waiting for a new run at this path" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("host", "why"), [("127.0.0.1", "in use"), ("no such host", "Name or service|resolution")]
)
def test_an_address_that_cannot_be_used_is_one_line(host, why):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match=why) as refused:
            MetricsServer(taken.getsockname()[1], host)
    assert "\n" not in str(refused.value)


def test_a_missing_extra_names_the_command(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'grpodoctor\[metrics\]'"):
        MetricsServer(0)


def test_options_that_make_no_sense_are_refused(sick):
    done = run("watch", sick, "--once", "--metrics-port", "0")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    for port in ("abc", "70000"):
        done = run("watch", sick, "--metrics-port", port)
        assert done.returncode == 2
        assert "--metrics-port" in done.stderr
        assert "Traceback" not in done.stderr
