"""Every channel against a real receiver on this machine."""

import email
import email.policy
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from grpodoctor.hooks.alerts import command, http_post, smtp
from grpodoctor.hooks.alerts.channel import Alert, ChannelError
from grpodoctor.hooks.alerts.delivery import channel_of
from grpodoctor.monitor.alert_settings import CHANNEL_OPTIONS, ChannelSettings
from grpodoctor.support.safe_text import plain
from tests.hooks.alerts.servers import (
    certificate,
    dead_port,
    http_server,
    silent_server,
    smtp_server,
)
from tests.report.simulated import HOSTILE

ALERT = Alert(
    kind="finding-raised",
    severity="critical",
    code="ENT001",
    name="entropy-collapse",
    summary="Entropy fell from 0.5 to 0.01 <!channel> & @everyone.",
    step=40,
    onset_step=31,
    run="runs/first",
    remedies=("entropy-bonus",),
    held_back=2,
)


def channel(kind, **options):
    return channel_of(ChannelSettings(kind, {k.replace("_", "-"): v for k, v in options.items()}))


@pytest.fixture
def hook(monkeypatch):
    with http_server() as received:
        monkeypatch.setenv("HOOK", received.url)
        yield received


def test_every_kind_has_a_channel():
    for kind in CHANNEL_OPTIONS:
        assert channel_of(ChannelSettings(kind, {"command": ["x"]})).kind == kind


def test_slack(hook):
    channel("slack", url_env="HOOK").send(ALERT)
    (body,) = hook.bodies
    assert body["text"].startswith("*critical ENT001 entropy-collapse raised at step 40*\nEntropy")
    assert "&lt;!channel&gt; &amp;" in body["text"]
    assert hook.paths == ["/hook/SECRET-PART"]


def test_discord(hook):
    channel("discord", url_env="HOOK").send(ALERT)
    (body,) = hook.bodies
    assert body["allowed_mentions"] == {"parse": []}
    assert "Since step 31 of runs/first" in body["content"]


def test_webhook(hook, monkeypatch):
    monkeypatch.setenv("TOKEN", "Bearer abc")
    channel("webhook", url_env="HOOK", authorization_env="TOKEN").send(ALERT)
    assert Alert.from_json(hook.bodies[0]) == ALERT
    assert hook.headers[0]["Authorization"] == "Bearer abc"
    assert hook.headers[0]["Content-Type"] == "application/json"


@pytest.mark.parametrize("status", [302, 404, 500])
def test_a_refused_post_names_the_status_and_follows_nothing(hook, status):
    hook.status = status
    with pytest.raises(ChannelError, match=str(status)) as failed:
        channel("slack", url_env="HOOK").send(ALERT)
    assert "SECRET" not in str(failed.value)
    assert len(hook.bodies) == 1


BAD_ADDRESSES = [
    ("http://127.0.0.1:PORT/SECRET", "refused"),
    ("http://127.0.0.1:SECRET/", "no connection"),
    ("http://nosuch.invalid/SECRET", "no connection"),
    ("file:///etc/SECRET", "not an http"),
    ("SECRET", "not an http"),
    ("http://127.0.0.1:1/SECRET with\nlines", "no connection"),
]


@pytest.mark.parametrize(("url", "why"), BAD_ADDRESSES)
def test_an_error_never_contains_the_address(monkeypatch, url, why):
    monkeypatch.setenv("HOOK", url.replace("PORT", str(dead_port())))
    with pytest.raises(ChannelError, match=why) as failed:
        channel("slack", url_env="HOOK").send(ALERT)
    assert "SECRET" not in str(failed.value)
    assert failed.value.__cause__ is None
    assert failed.value.__suppress_context__ or failed.value.__context__ is None


def test_a_server_that_hangs_costs_a_bounded_time(monkeypatch):
    monkeypatch.setattr(http_post, "TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(smtp, "TIMEOUT_SECONDS", 0.2)
    with silent_server() as silent:
        monkeypatch.setenv("HOOK", silent.url)
        with pytest.raises(ChannelError, match=r"no answer within 0.2 seconds|timeout"):
            channel("slack", url_env="HOOK").send(ALERT)
        with pytest.raises(ChannelError, match=r"no answer|no mail|code -1"):
            channel("smtp", **mail(silent.port)).send(ALERT)


def test_a_variable_that_is_not_set_is_named():
    with pytest.raises(ChannelError, match="NO_SUCH_VARIABLE is not set"):
        channel("slack", url_env="NO_SUCH_VARIABLE").send(ALERT)


def mail(port, **more):
    addresses = {"host": "127.0.0.1", "from": "a@example.org", "to": ["b@example.org", "c@e.org"]}
    return {**addresses, "port": port, "security": "none", **more}


def test_mail(monkeypatch):
    monkeypatch.setenv("USER_NAME", "me")
    monkeypatch.setenv("PASSWORD", "word")
    with smtp_server() as server:
        options = mail(server.port, user_env="USER_NAME", password_env="PASSWORD")  # noqa: S106
        channel("smtp", **options).send(ALERT)
    message = email.message_from_string(server.bodies[0], policy=email.policy.default)
    assert message["Subject"] == f"[grpodoctor] {ALERT.title}"
    assert message["To"] == "b@example.org, c@e.org"
    assert ALERT.summary in message.get_content()
    assert [each["RCPT"] for each in server.headers if "RCPT" in each] == [
        "rcpt TO:<b@example.org>", "rcpt TO:<c@e.org>",
    ]  # fmt: skip


def test_mail_errors_hide_what_the_server_says(monkeypatch):
    monkeypatch.setenv("USER_NAME", "me")
    monkeypatch.setenv("PASSWORD", "word")
    with smtp_server(refuse=535) as server:
        options = mail(server.port, user_env="USER_NAME", password_env="PASSWORD")  # noqa: S106
        with pytest.raises(ChannelError, match="code 535") as failed:
            channel("smtp", **options).send(ALERT)
    assert "SECRET" not in str(failed.value)
    with pytest.raises(ChannelError, match="refused"):
        channel("smtp", **mail(dead_port())).send(ALERT)


def encrypted_mail(port, security):
    login = {"user_env": "USER_NAME", "password_env": "PASSWORD"}
    return channel("smtp", **mail(port, security=security, host="localhost", **login))


@pytest.fixture
def tls(tmp_path, monkeypatch):
    """The server's side of a certificate for localhost that this process trusts."""
    trusted, context = certificate(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    monkeypatch.setenv("USER_NAME", "me")
    monkeypatch.setenv("PASSWORD", "word")
    return context


@pytest.mark.parametrize("security", ["tls", "starttls"])
def test_mail_and_login_are_encrypted(tls, security):
    with smtp_server(tls=tls, upgrade=security == "starttls") as server:
        encrypted_mail(server.port, security).send(ALERT)
    message = email.message_from_string(server.bodies[0], policy=email.policy.default)
    assert ALERT.summary in message.get_content()
    clear = [next(iter(each)) for each in server.headers if each["encrypted"] == "False"]
    assert clear == (["EHLO", "STARTTLS"] if security == "starttls" else [])
    assert [each for each in server.headers if "AUTH" in each]


@pytest.mark.parametrize("security", ["tls", "starttls"])
def test_a_certificate_that_is_not_trusted_gets_no_login(tls, security, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE")
    with (
        smtp_server(tls=tls, upgrade=security == "starttls") as server,
        pytest.raises(ChannelError, match="certificate of the mail server is not valid"),
    ):
        encrypted_mail(server.port, security).send(ALERT)
    assert not [each for each in server.headers if each["encrypted"] == "True"]
    assert not server.bodies


def test_a_certificate_of_another_host_is_refused(tls, tmp_path, monkeypatch):
    trusted, context = certificate(tmp_path, "mail.example.org")
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    with smtp_server(tls=context) as server, pytest.raises(ChannelError, match="not valid"):
        encrypted_mail(server.port, "tls").send(ALERT)


def test_a_server_without_encryption_gets_no_login(tls):
    with smtp_server() as server:
        with pytest.raises(ChannelError, match="offers no STARTTLS"):
            encrypted_mail(server.port, "starttls").send(ALERT)
        with pytest.raises(ChannelError, match="speaks no TLS on this port"):
            encrypted_mail(server.port, "tls").send(ALERT)
    assert not [each for each in server.headers if "AUTH" in each]


def test_command(tmp_path, monkeypatch):
    save = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_bytes(sys.stdin.buffer.read())"
    target = tmp_path / "alert.json"
    channel("command", command=[sys.executable, "-c", save, str(target)]).send(ALERT)
    assert Alert.from_json(json.loads(target.read_bytes())) == ALERT
    with pytest.raises(ChannelError, match="code 3"):
        channel("command", command=[sys.executable, "-c", "raise SystemExit(3)"]).send(ALERT)
    with pytest.raises(ChannelError, match="No such file"):
        channel("command", command=[str(tmp_path / "nothing")]).send(ALERT)
    monkeypatch.setattr(command, "TIMEOUT_SECONDS", 0.2)
    with pytest.raises(ChannelError, match="took over"):
        channel("command", command=["sleep", "60"]).send(ALERT)


def test_tensorboard_shows_the_text(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = channel("tensorboard", directory=str(tmp_path))
    board.send(ALERT)
    board.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    (event,) = events.Tensors("grpodoctor/ENT001")
    metadata = events.SummaryMetadata("grpodoctor/ENT001")
    assert metadata.plugin_data.plugin_name == "text"
    assert event.step == 40
    text = event.tensor_proto.string_val[0].decode()
    assert "Entropy fell from 0.5 to 0.01" in text
    assert "<!channel>" not in text


def test_wandb_alert_of_the_open_run(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    with pytest.raises(ChannelError, match="no active W&B run"):
        channel("wandb").send(ALERT)
    published = []
    run = wandb.init(mode="disabled", dir=tmp_path)
    record = lambda *arguments: published.append(arguments)  # noqa: E731
    monkeypatch.setattr(run, "_interface", SimpleNamespace(publish_alert=record), raising=False)
    try:
        real = wandb.sdk.wandb_run.Run.alert
        monkeypatch.setattr(run, "alert", lambda *a, **k: real(run, *a, **k))
        monkeypatch.setattr(wandb, "run", run)
        channel("wandb").send(ALERT)
    finally:
        monkeypatch.undo()
        run.finish()
    ((title, text, level, _wait),) = published
    assert (len(title) <= 63, level) == (True, "ERROR")
    assert text == ALERT.text


def test_trackio_stores_the_alert(tmp_path):
    """In a process of its own: the package reads its directory when it is imported."""
    pytest.importorskip("trackio", reason="pip install trackio")
    code = (
        "import trackio; from tests.hooks.alerts.test_channels import ALERT, channel\n"
        "from grpodoctor.hooks.alerts.delivery import attempt\n"
        "print(attempt(channel('trackio'), ALERT))\n"
        "trackio.init(project='p', name='r'); trackio.log({'x': 1})\n"
        "print(attempt(channel('trackio'), ALERT)); trackio.finish()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True,
        env={**os.environ, "TRACKIO_DIR": str(tmp_path)}, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.stdout.splitlines()[0] == "the training has no active Trackio run"
    with closing(sqlite3.connect(tmp_path / "p.db")) as stored:
        (row,) = stored.execute("select title, text, level from alerts").fetchall()
    assert row == (ALERT.title, ALERT.text, "error")


def test_a_training_without_trackio_alerts_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "trackio", SimpleNamespace())
    with pytest.raises(ChannelError, match="no alerts"):
        channel("trackio").send(ALERT)
    monkeypatch.delitem(sys.modules, "trackio")
    with pytest.raises(ChannelError, match="does not use Trackio"):
        channel("trackio").send(ALERT)


def test_a_hostile_summary_stays_in_its_place(hook):
    from dataclasses import replace

    hostile = replace(ALERT, summary=plain(HOSTILE))
    channel("slack", url_env="HOOK").send(hostile)
    assert "<script>" not in hook.bodies[0]["text"]
