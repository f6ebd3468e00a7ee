"""What is sent and when: limits, retries, hanging channels, the settings file, real processes."""

import json
import logging
import os
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from grpodoctor.errors import ConfigError
from grpodoctor.hooks.alerts import delivery
from grpodoctor.hooks.alerts.alert_filter import AlertFilter
from grpodoctor.hooks.alerts.channel import Channel, ChannelError
from grpodoctor.hooks.alerts.delivery import Delivery
from grpodoctor.hooks.alerts.training_alerts import AlertPipe, TrainingAlerts
from grpodoctor.hooks.run_hook import HookOptions, RunHook
from grpodoctor.monitor.alert_settings import AlertSettings, ChannelSettings
from grpodoctor.monitor.project_settings import load_settings
from grpodoctor.rules.base import Finding
from tests.cli.in_process import run
from tests.cli.test_watch import watching
from tests.hooks.alerts.servers import dead_port, http_server, silent_server
from tests.hooks.alerts.test_channels import ALERT
from tests.report.simulated import KNOBS, readings, record_run

PATIENCE = 60.0


def finding(code="ENT001", severity="critical", active=True, onset=5):
    return Finding(
        code=code, name=code.lower(), severity=severity, onset_step=onset, last_step=9,
        active=active, summary=f"{code} is wrong.", evidence=(), remedies=(), references=(),
    )  # fmt: skip


@pytest.fixture
def clock():
    return SimpleNamespace(now=1000.0)


def filter_of(clock, **settings):
    return AlertFilter(AlertSettings(**settings), lambda: clock.now)


def kinds(alerts):
    return [(each.kind.removeprefix("finding-"), each.code) for each in alerts]


def test_a_finding_is_sent_once(clock):
    alerts = filter_of(clock)
    assert kinds(alerts.alerts([finding()], 9, "run")) == [("raised", "ENT001")]
    for _ in range(3):
        clock.now += 10_000
        assert alerts.alerts([finding()], 10, "run") == []
    assert alerts.alerts([finding("LEN001", "info")], 11, "run") == []


def test_an_escalation_is_sent_at_once_and_a_return_only_after_a_while(clock):
    alerts = filter_of(clock, rule_minutes=60)
    alerts.alerts([finding(severity="warning")], 9, "run")
    assert kinds(alerts.alerts([finding()], 10, "run")) == [("escalated", "ENT001")]
    assert alerts.alerts([], 11, "run") == []
    clock.now += 59 * 60
    assert alerts.alerts([finding()], 12, "run") == []
    clock.now += 61
    assert kinds(alerts.alerts([finding()], 13, "run")) == [("raised", "ENT001")]


def test_resolved_findings_are_sent_on_request(clock):
    alerts = filter_of(clock, resolved=True)
    alerts.alerts([finding()], 9, "run")
    assert kinds(alerts.alerts([finding(active=False)], 12, "run")) == [("resolved", "ENT001")]


def test_what_the_limit_holds_back_is_counted_and_sent_later(clock):
    alerts = filter_of(clock, per_hour=2)
    findings = [finding(f"ENT00{n}") for n in range(1, 6)]
    first = alerts.alerts(findings, 9, "run")
    assert [each.code for each in first] == ["ENT001", "ENT002"]
    assert first[-1].held_back == 3
    assert "holds back 3 other findings" in first[-1].text
    clock.now += 3601
    assert kinds(alerts.alerts(findings, 10, "run")) == [("raised", "ENT003"), ("raised", "ENT004")]


class Scripted(Channel):
    """Fails as often as requested."""

    def __init__(self, failures=0, kind="scripted"):
        super().__init__(ChannelSettings(kind))
        self.failures, self.sent, self.delivered = failures, [], threading.Event()

    def send(self, alert):
        if self.failures:
            self.failures -= 1
            raise ChannelError("no answer")
        self.sent.append(alert)
        self.delivered.set()


def test_a_failing_channel_is_one_warning_and_is_retried(monkeypatch):
    monkeypatch.setattr(delivery, "RETRY_SECONDS", (0.02, 0.02, 0.02))
    warnings, flaky, dead = [], Scripted(2), Scripted(10**6, "dead")
    outgoing = Delivery([flaky, dead], warnings.append)
    for _ in range(3):
        outgoing.send(ALERT)
    assert flaky.delivered.wait(PATIENCE)
    outgoing.close()
    assert len(flaky.sent) == 3
    assert sorted(warnings) == [
        f"the alert channel {kind} fails and is retried: no answer" for kind in ("dead", "scripted")
    ]


def test_a_channel_that_hangs_delays_neither_the_caller_nor_other_channels():
    hanging, fine, free = Scripted(kind="hanging"), Scripted(), threading.Event()
    hanging.send = lambda _: free.wait(PATIENCE)
    warnings = []
    outgoing = Delivery([hanging, fine], warnings.append)
    started = time.monotonic()
    for _ in range(delivery.MOST_WAITING * 2):
        outgoing.send(ALERT)
    assert fine.delivered.wait(PATIENCE)
    outgoing.close(0.2)
    assert time.monotonic() - started < PATIENCE / 2
    assert any("queue is full" in warning for warning in warnings)
    free.set()


def test_an_unforeseen_error_reveals_nothing():
    warnings, broken = [], Scripted()

    def send(alert):
        raise RuntimeError("https://example.org/SECRET")

    broken.send = send
    outgoing = Delivery([broken], warnings.append)
    outgoing.send(ALERT)
    outgoing.close()
    assert warnings == ["the alert channel scripted fails and is retried: RuntimeError"]


def settings_file(tmp_path, text):
    path = tmp_path / "grpodoctor.toml"
    path.write_text(text)
    return path


def test_settings(tmp_path):
    path = settings_file(
        tmp_path,
        """
        [alerts]
        min-severity = "critical"
        rule-minutes = 5
        [[alerts.channels]]
        kind = "slack"
        url-env = "HOOK"
    """,
    )
    alerts = load_settings(path).alerts
    assert (alerts.min_severity, alerts.rule_minutes, alerts.per_hour) == ("critical", 5, 12)
    assert alerts.channels == (ChannelSettings("slack", {"url-env": "HOOK"}),)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("alerts = 3", "not a table"),
        ("[alerts]\nper_hour = 3", "did you mean per-hour"),
        ("[alerts]\nper-hour = 0", "1 to 1000"),
        ("[alerts]\nmin-severity = 'fatal'", "severity"),
        ("[alerts]\nresolved = 1", "true or false"),
        ("[alerts]\nrule-minutes = -1", "0 to 10000"),
        ("[[alerts.channels]]\nurl-env = 'A'", "has no kind"),
        ("[[alerts.channels]]\nkind = 'slak'", "did you mean slack"),
        ("[[alerts.channels]]\nkind = 'slack'", "needs url-env"),
        ("[[alerts.channels]]\nkind = 'slack'\nurl = 'https://SECRET'\nurl-env = 'A'", "url-env"),
        ("[[alerts.channels]]\nkind = 'slack'\nurl-env = 'https://SECRET'", "environment variable"),
        ("[[alerts.channels]]\nkind = 'command'\ncommand = 'rm x'", "a list of texts"),
        ("[[alerts.channels]]\nkind = 'smtp'\nhost = 'a'\nfrom = 'b'\nto = ['c']\npassword = "
         "'SECRET'", "password-env"),
        ("[[alerts.channels]]\nkind = 'smtp'\nhost = 'a'\nfrom = \"b\\nBcc: x\"\nto = ['c']",
         "a text"),
    ],
)  # fmt: skip
def test_invalid_settings_are_one_line_without_secrets(tmp_path, text, why):
    with pytest.raises(ConfigError, match=why) as failed:
        load_settings(settings_file(tmp_path, text))
    assert "SECRET" not in str(failed.value)


CHANNELS = """
[[alerts.channels]]
kind = "webhook"
url-env = "GOOD_HOOK"
[[alerts.channels]]
kind = "slack"
url-env = "DEAD_HOOK"
[[alerts.channels]]
kind = "discord"
url-env = "SILENT_HOOK"
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A working directory whose settings send alerts to a good, a dead and a silent server."""
    settings_file(tmp_path, CHANNELS)
    monkeypatch.chdir(tmp_path)
    with http_server() as good, silent_server() as silent:
        monkeypatch.setenv("GOOD_HOOK", good.url)
        monkeypatch.setenv("SILENT_HOOK", silent.url)
        monkeypatch.setenv("DEAD_HOOK", f"http://127.0.0.1:{dead_port()}/SECRET-PART")
        yield good


@pytest.mark.slow
def test_watch_sends_what_it_finds(project, tmp_path):
    path = tmp_path / "run"
    with watching(path, "--until-finished", "--interval", "0.05") as process:
        time.sleep(0.5)
        record_run(path, 60, sick_from=20, pause=0.02)
        out, err = process.communicate(timeout=PATIENCE)
    sent = [(body["kind"], body["code"]) for body in project.bodies]
    assert ("finding-raised", "REW002") in sent
    assert len(sent) == len(set(sent)) <= 12
    assert all(body["severity"] != "info" for body in project.bodies)
    assert err.count("the alert channel slack fails") == 1
    assert "SECRET-PART" not in out + err


def test_watch_of_a_finished_or_healthy_run_sends_nothing(project, tmp_path):
    for sick_from in (20, None):
        path = record_run(tmp_path / f"run-{sick_from}", 60, sick_from=sick_from)
        done = run("watch", path, "--until-finished", "--exit-zero")
        assert done.returncode == 0, done.stderr
    assert project.bodies == []


class _Inbox:
    """What a training's process receives."""

    def __init__(self):
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)

    def read(self):
        try:
            return os.read(self.reader, 1 << 16)
        except BlockingIOError:
            return b""


def test_alerts_reach_the_training_through_a_pipe(clock, caplog):
    inbox, pipe_channel, flaky = _Inbox(), Scripted(), Scripted(1, "wandb")
    alerts = TrainingAlerts(inbox.read, [pipe_channel, flaky], lambda: clock.now)
    pipe = AlertPipe(inbox.writer)
    os.write(inbox.writer, b"not JSON\n")
    pipe.send(ALERT)
    pipe.warn("a channel fails\x1b[31m")
    with caplog.at_level(logging.WARNING, "grpodoctor"):
        alerts.deliver()
        alerts.deliver()
    assert pipe_channel.sent == [ALERT]
    assert flaky.sent == []
    clock.now += delivery.RETRY_SECONDS[0]
    alerts.deliver()
    assert flaky.sent == [ALERT]
    assert [record.getMessage() for record in caplog.records] == [
        "a channel fails", "the alert channel wandb fails and is retried: no answer",
    ]  # fmt: skip


def test_a_full_pipe_does_not_block_the_observer():
    inbox = _Inbox()
    pipe = AlertPipe(inbox.writer)
    for _ in range(2000):
        pipe.send(replace(ALERT, summary="x" * 500))
    lines = inbox.read().split(b"\n")
    assert all(json.loads(line) for line in lines[:-1])


def test_an_attached_training_sends_alerts_without_apply(project, tmp_path, monkeypatch):
    sent = []
    alert = lambda *args, **_: sent.append(args)  # noqa: E731
    fake = SimpleNamespace(run=SimpleNamespace(alert=alert))
    monkeypatch.setitem(__import__("sys").modules, "wandb", fake)
    settings_file(tmp_path, CHANNELS + '[[alerts.channels]]\nkind = "wandb"\n')
    hook = RunHook("trl", HookOptions(run_dir=tmp_path / "run"), tmp_path / "default")
    for name, value in KNOBS.items():
        hook.knobs.read_only(name, value)
    hook.begin(model="tiny")
    for step in range(60):
        hook.begin_step(step)
        hook.end_step(step, readings(step, sick_from=20))
        time.sleep(0.02)
    deadline = time.monotonic() + PATIENCE
    while not (sent and project.bodies) and time.monotonic() < deadline:
        hook.begin_step(60)
        time.sleep(0.05)
    hook.close()
    assert "REW002" in {body["code"] for body in project.bodies}
    assert any("REW002" in title for title, *_ in sent)
    assert not hook.guard.failed
