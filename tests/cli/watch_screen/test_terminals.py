"""The screen in real pseudo-terminals: sizes, keys, signals, and terminals that go away."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import termios
import time

import pytest

from grpodoctor.cli.watch_screen.entries import ordered
from grpodoctor.monitor.session import Session
from tests.cli.pseudo_terminal import PATIENCE, Terminal, without_styles
from tests.report.simulated import HOSTILE, record_run
from tests.samples import sampled

ENTER_SCREEN, LEAVE_SCREEN, SHOW_CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


@pytest.fixture(scope="module")
def sick(tmp_path_factory):
    return record_run(tmp_path_factory.mktemp("runs") / "sick", 60, sick_from=20, model=HOSTILE)


def assert_left(terminal, code):
    assert terminal.wait() == code
    assert terminal.seen.index(ENTER_SCREEN) < terminal.seen.index(LEAVE_SCREEN)
    assert SHOW_CURSOR in terminal.seen.rpartition(LEAVE_SCREEN)[2]
    assert "Traceback" not in terminal.text
    return terminal.text.rpartition(LEAVE_SCREEN)[2]


@pytest.mark.parametrize(
    ("columns", "rows"),
    [(80, 24), *(pytest.param(*size, marks=pytest.mark.slow) for size in ((120, 40), (200, 60)))],
)
def test_sizes_and_keys(sick, columns, rows):
    with Terminal("watch", sick, columns=columns, rows=rows) as terminal:
        terminal.read_until("REW002")
        for word in ("Sick since step", "Findings", "Vitals", "entropy", "held-out accuracy"):
            terminal.read_until(word)
        start = len(terminal.text)
        terminal.press("\r")
        terminal.read_until("Thresholds:" if rows > 40 else "evidence", start)
        terminal.press("\x1b")
        start = len(terminal.text)
        terminal.press("?")
        terminal.read_until("suspend", start)
        began = time.monotonic()
        terminal.press("q")
        assert "Sick since step " in assert_left(terminal, 1)
        assert time.monotonic() - began < PATIENCE / 2
    assert "\x1b]0;title" not in terminal.seen


KEYS = {"Home": "\x1b[H", "End": "\x1b[F", "PgUp": "\x1b[5~", "PgDn": "\x1b[6~", "Tab": "\t",
        "Shift+Tab": "\x1b[Z", "Enter": "\r", "Backspace": "\x7f", "Space": " "}  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "rows"), [(80, 24), pytest.param(200, 50, marks=pytest.mark.slow)]
)
def test_keys_that_move(sick, columns, rows):
    session = Session(sick)
    session.read_all()
    first, *_, last = ordered(session.snapshot().findings)
    with Terminal("watch", sick, columns=columns, rows=rows) as terminal:

        def press(*names, shows):
            start = len(terminal.text)
            for name in names:
                terminal.press(KEYS[name])
            for words in shows:
                terminal.read_until(words, start)

        def opens(*names, shows):
            """The overview names its findings too: only a page offers the way back."""
            press(*names, shows=(shows, "Esc Back"))

        def returns():
            press("Backspace", shows=("Findings",))

        # The list still grows while older steps are read, and its last entry with it.
        terminal.read_until("Sick since step")
        opens("End", "Enter", shows=f"{last.code} {last.name}")
        returns()
        opens("Home", "Enter", shows=f"{first.code} {first.name}")
        press("End", shows=("Trials:",))
        press("Home", shows=("evidence",))
        returns()
        opens(*["PgDn"] * 9, "Enter", shows=f"{last.code} {last.name}")
        returns()
        opens(*["PgUp"] * 9, "Enter", shows=f"{first.code} {first.name}")
        returns()
        opens("Tab", "Enter", shows="reward/mean")
        returns()
        opens("Shift+Tab", "Enter", shows=f"{first.code} {first.name}")
        returns()
        press("Space", shows=("paused",))
        terminal.press("q")
        assert_left(terminal, 1)


def test_a_position_in_the_output_stays_valid_while_more_is_printed():
    """Output ends anywhere when it is read; a longer text must begin with the shorter one."""
    printed = "Fin\x1b[1;31mdings\x1b[0m Vitals"
    texts = [without_styles(printed[:end]) for end in range(len(printed) + 1)]
    assert all(later.startswith(text) for text, later in itertools.pairwise(texts))
    assert texts[-1] == "Findings Vitals"


def test_a_suspended_screen_gives_the_terminal_back_and_is_drawn_again(sick):
    with Terminal("watch", sick) as terminal:
        terminal.read_until("Skipped")
        terminal.read_until("REW002")
        terminal.press("\x1a")
        _, status = os.waitpid(terminal.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        terminal.read_until(LEAVE_SCREEN)
        modes = termios.tcgetattr(terminal.master)[3]
        assert modes & termios.ICANON
        assert modes & termios.ECHO
        start = len(terminal.text)
        terminal.process.send_signal(signal.SIGCONT)
        for word in ("Sick since step", "Findings", "Vitals", "Save HTML"):
            terminal.read_until(word, start)
        assert terminal.seen.count(ENTER_SCREEN) == 2
        assert not termios.tcgetattr(terminal.master)[3] & termios.ICANON
        terminal.press("q")
        assert_left(terminal, 1)


def test_a_live_run_from_before_its_start(tmp_path):
    path = tmp_path / "run"
    with Terminal("watch", path, "--interval", "0.05") as terminal:
        terminal.read_until("Waiting for the run to start")
        record_run(path, 50, sick_from=15)
        terminal.read_until("critical")
        terminal.resize(60, 200)
        terminal.read_until("Skipped")
        terminal.process.send_signal(signal.SIGINT)
        assert "Sick since step " in assert_left(terminal, 1)


def test_a_run_that_vanishes_is_said_and_the_next_one_is_shown(tmp_path):
    path = record_run(tmp_path / "run", 30, finished=False)
    with Terminal("watch", path, "--interval", "0.05", rows=40, columns=120) as terminal:
        terminal.read_until("step 29")
        shutil.rmtree(path)
        terminal.read_until("the run was removed")
        record_run(path, 50, sick_from=15, run_id="second")
        terminal.read_until("REW002")
        terminal.press("q")
        assert_left(terminal, 1)


@pytest.mark.slow
def test_an_error_leaves_the_terminal_as_it_was(tmp_path):
    path = tmp_path / "run"
    with Terminal("watch", path, "--interval", "0.05") as terminal:
        terminal.read_until("Waiting for the run to start")
        path.mkdir()
        (path / "run.json").write_text('{"schema_version": 99}')
        assert "error: a newer grpodoctor wrote the run" in assert_left(terminal, 2)


@pytest.mark.parametrize("sent", sampled([signal.SIGINT, signal.SIGTERM], {signal.SIGTERM}))
def test_a_signal_leaves_the_screen(sick, sent):
    with Terminal("watch", sick, "--interval", "60") as terminal:
        terminal.read_until("REW002")
        terminal.process.send_signal(sent)
        assert "Sick since step " in assert_left(terminal, 1)


@pytest.mark.slow
def test_a_lost_terminal_ends_the_watch(sick):
    with Terminal("watch", sick) as terminal:
        terminal.read_until("REW002")
        terminal.hang_up()
        assert terminal.process.wait(PATIENCE) == 128 + signal.SIGHUP


@pytest.mark.slow
def test_a_stalled_terminal_does_not_keep_the_process(sick):
    with Terminal("watch", sick, rows=100, columns=400, reads=False) as terminal:
        terminal.fill_up()
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.process.wait(PATIENCE) in {1, 128 + signal.SIGTERM}


@pytest.mark.parametrize("option", ["--plain", "TERM=dumb"])
def test_lines_on_request_and_on_a_dumb_terminal(sick, option):
    words = ["--plain"] if option == "--plain" else []
    env = {} if words else {"TERM": "dumb"}
    with Terminal("watch", sick, "--until-finished", *words, env=env) as terminal:
        assert terminal.wait() == 1
        assert ENTER_SCREEN not in terminal.seen
        assert "REW002 reward-collapse raised" in terminal.text


def test_asking_needs_the_screen(sick):
    done = subprocess.run(
        [sys.executable, "-m", "grpodoctor", "watch", sick, "--apply", "ask"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --apply ask needs the screen")
    assert done.stderr.count("\n") == 1
