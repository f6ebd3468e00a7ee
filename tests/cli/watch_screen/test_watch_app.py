"""The keys of the screen, on real sessions, through textual's pilot."""

import asyncio
import math
import sys
import threading
import time
from contextlib import asynccontextmanager

import pytest
from textual.widgets import Input

from grpodoctor.cli.watch_screen.pages import KEYS, ContentPage, HelpPage, ProposalDialog
from grpodoctor.cli.watch_screen.panes import Pane
from grpodoctor.cli.watch_screen.run_reader import RunReader
from grpodoctor.cli.watch_screen.terminal_session import save_report, snapshot_path
from grpodoctor.cli.watch_screen.watch_app import WatchApp
from grpodoctor.monitor.session import Session
from grpodoctor.treatment.mailbox import Inbox
from tests.report.simulated import record_run
from tests.samples import sampled

PATIENCE = 240.0


class Driven:
    """An app that a pilot drives."""

    def __init__(self, app, pilot, reader):
        self.app, self.pilot, self.reader = app, pilot, reader

    async def until(self, holds):
        ends = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < ends, self.text()
            await self.pilot.pause(0.05)

    async def press(self, *keys):
        await self.pilot.press(*keys)
        await self.pilot.pause()

    def text(self):
        return "\n".join(strip.text for strip in self.app.screen._compositor.render_strips())

    def pane(self, name):
        return self.app.screen_stack[0].query_one(f"#{name}", Pane)


@asynccontextmanager
async def driven(path, size=(80, 24), apply="none", ended=lambda: False, **options):
    session = Session(path, apply=apply)
    reader = RunReader(session, ended=ended, interval=0.05, **options)
    app = WatchApp(reader, save_report)
    async with app.run_test(size=size, notifications=True) as pilot:
        screen = Driven(app, pilot, reader)
        await screen.until(lambda: app.snapshot.facts.last_step is not None)
        await screen.until(lambda: not app._shown.has_backlog)
        await pilot.pause()
        yield screen
    reader.stop(PATIENCE)
    assert (reader.error, app.defect) == (None, None)


def drive(path, play, **options):
    async def go():
        async with driven(path, **options) as screen:
            await play(screen)

    asyncio.run(go())


@pytest.mark.parametrize(
    "size",
    sampled([(80, 24), (120, 40), (200, 60), (20, 5), (300, 20)], {(80, 24), (20, 5), (300, 20)}),
)
def test_the_diagnosis_and_six_vitals_at_any_useful_size(sick, size):
    async def play(screen):
        shown = screen.text()
        lines = shown.splitlines()
        assert all(len(line) <= size[0] for line in lines)
        if size[0] < 80:
            return
        snapshot = screen.app.snapshot
        assert lines[2].startswith(f"Sick since step {snapshot.verdict.since} (")
        for vital in snapshot.vitals[:6]:
            assert vital.label in shown
        gravest = snapshot.findings[0]
        assert f"{gravest.code} {gravest.name}" in shown
        assert "Quit" in lines[-1]

    drive(sick, play, size=size)


@pytest.mark.slow
def test_a_wide_terminal_is_used_to_its_right_edge(sick):
    async def play(screen):
        lines = screen.text().splitlines()
        first = screen.app.snapshot.findings[0]
        assert sum(len(line.rstrip()) > 170 for line in lines) > 10
        # The fix of the highlighted finding is on screen without a key.
        assert "remedy:" in screen.text()
        before = screen.text()
        await screen.press("down")
        await screen.until(lambda: screen.text() != before)
        assert screen.pane("findings").chosen.finding != first

    drive(sick, play, size=(200, 60))


def test_enter_opens_a_finding_with_its_page_and_fix(sick):
    async def play(screen):
        await screen.press("down", "enter")
        await screen.until(lambda: isinstance(screen.app.screen, ContentPage))
        finding = screen.app.screen.finding
        assert finding.code in screen.text()
        seen = ""
        for _ in range(30):
            seen += screen.text()
            await screen.press("pagedown")
        for word in ("evidence", "remedy:", "What it sees", "Thresholds:"):
            assert word in seen
        await screen.press("escape")
        assert not isinstance(screen.app.screen, ContentPage)
        assert screen.pane("findings").chosen.finding.code == finding.code

    drive(sick, play)


def test_tab_goes_through_the_panes_and_each_opens(sick):
    async def play(screen):
        visited = []
        for _ in range(3):
            visited.append(screen.app.focused.id)
            await screen.press("enter")
            await screen.until(lambda: isinstance(screen.app.screen, ContentPage))
            assert screen.text().strip()
            await screen.press("backspace")
            await screen.press("tab")
        assert visited == ["findings", "vitals", "skipped"]
        await screen.press("shift+tab")
        assert screen.app.focused.id == "skipped"

    drive(sick, play)


@pytest.mark.slow
def test_the_filter_searches_all_panes(sick):
    async def play(screen):
        await screen.press("slash", *"ENT", "enter")
        shown = [entry.finding.code for entry in screen.pane("findings")._visible]
        assert shown
        assert len(shown) < len(screen.app.snapshot.findings)
        assert {"entropy/mean"} <= {entry.id for entry in screen.pane("vitals")._visible}
        assert "match 'ent'" in screen.text()
        assert screen.app.focused.id == "findings"
        # A new state keeps the filter.
        screen.app._show(screen.reader.state)
        assert [entry.finding.code for entry in screen.pane("findings")._visible] == shown
        await screen.press("slash", *"[red]no such [/x", "enter")
        assert screen.pane("findings")._visible == ()
        assert "match '[red]no such [/x'" in screen.text()
        await screen.press("escape")
        assert screen.app.query_one("#filter", Input).value == ""
        assert len(screen.pane("findings")._visible) == len(screen.app.snapshot.findings)

    drive(sick, play)


def test_help_names_every_binding(sick):
    async def play(screen):
        await screen.press("question_mark")
        assert isinstance(screen.app.screen, HelpPage)
        await screen.press("question_mark")
        await screen.press("escape")
        assert len(screen.app.screen_stack) == 1

    drive(sick, play)
    named = " ".join(keys for keys, _ in KEYS).lower()
    for binding in WatchApp.BINDINGS:
        assert (binding.key_display or "esc").lower() in named
    explained = " ".join(text for _, text in KEYS)
    for binding in ProposalDialog.BINDINGS[:2]:
        assert f"{binding.key.split(',')[0]} {binding.description.lower()}s" in explained


@pytest.mark.parametrize("width", [80, 45])
def test_each_shown_key_is_shown_whole(sick, width):
    shortest = "q Quit ? Help a Approve"
    whole = {
        80: (
            f"Enter Open {shortest} / Filter Space Pause y Copy fix r Report",
            f"Esc Back {shortest} Space Pause y Copy fix r Report s Save HTML",
        ),
        45: (f"Enter Open {shortest} / Filter", f"Esc Back {shortest} Space Pause"),
    }

    async def play(screen):
        for keys, shown in zip(("escape", "question_mark"), whole[width], strict=True):
            await screen.press(keys)
            await screen.until(lambda: screen.text().splitlines()[-1].rstrip() == shown)  # noqa: B023

    drive(sick, play, apply="ask", size=(width, 24))


def test_the_title_counts_the_skipped_rules_that_are_out_of_sight(sick):
    async def play(screen):
        pane, skipped = screen.pane("skipped"), screen.app.snapshot.skipped
        assert len(skipped) > pane.size.height == 1
        assert str(pane.border_title).endswith(f" not applicable; {len(skipped) - 1} more below")
        # A notice may cover the end of the line.
        (line,) = (each for each in screen.text().splitlines() if each.startswith(skipped[0].code))
        assert skipped[0].missing[0] in line
        # One line each: the highlighted rule is the one on screen.
        await screen.press("tab", "tab", "down")
        await screen.until(
            lambda: any(each.startswith(skipped[1].code) for each in screen.text().splitlines())
        )

    drive(sick, play)


def test_a_pause_freezes_the_screen_and_nothing_else(tmp_path):
    path = record_run(tmp_path / "run", 10, finished=False)
    steps = []

    def count(session, tick):
        steps.append(session.examination.steps)

    async def play(screen):
        await screen.press("space")
        assert "paused" in screen.text()
        thread = threading.Thread(target=lambda: add_steps(path, 10, 14))
        thread.start()
        await screen.until(lambda: steps[-1] == 14)
        thread.join()
        assert screen.app.snapshot.facts.last_step == 9
        await screen.press("space")
        assert screen.app.snapshot.facts.last_step == 13
        assert "paused" not in screen.text()

    drive(path, play, listeners=[count])


def add_steps(path, first, end):
    from grpodoctor.runs.recording.recorder import Recorder
    from tests.report.simulated import manifest, readings

    with Recorder.open(path, manifest(), resume=True) as recorder:
        for step in range(first, end):
            recorder.step(step, readings(step, sick_from=None))


@pytest.mark.slow
def test_s_saves_the_report(sick, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def play(screen):
        await screen.press("s")
        await screen.until(lambda: list(tmp_path.glob("*.html")))

    drive(sick, play)
    (page,) = tmp_path.glob("*.html")
    assert page.name == "grpodoctor-sick-step-59.html"
    assert "REW002" in page.read_text()


@pytest.mark.slow
def test_a_report_that_cannot_be_written_is_a_notice(sick, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grpodoctor-sick-step-59.html").mkdir()

    async def play(screen):
        await screen.press("s")
        await screen.until(lambda: "cannot write the report" in screen.text())
        assert not screen.reader.is_done

    drive(sick, play, size=(160, 50))


def test_names_of_reports_are_harmless():
    assert snapshot_path("runs/../../x y\x1b[31m", 3).name == "grpodoctor-x-y--31m-step-3.html"
    assert snapshot_path("/", None).name == "grpodoctor-run.html"


@pytest.mark.slow
def test_y_copies_the_first_settings(sick):
    async def play(screen):
        await screen.press("enter")
        await screen.until(lambda: isinstance(screen.app.screen, ContentPage))
        await screen.press("y")
        copied = screen.app.clipboard
        await screen.press("escape", "y")
        assert screen.app.clipboard == copied
        shown = screen.app.snapshot.findings[0]
        advice = [screen.app.snapshot.report.advice[each] for each in shown.remedies]
        lines = {line.commented_line for each in advice for line in each.settings}
        lines |= {each.command for each in advice if each.command}
        assert set(copied.splitlines()) <= lines | {""}

    drive(sick, play)


def test_a_key_does_not_wait_for_the_examination(sick):
    release = threading.Event()

    def slow(session, tick):
        if not tick.more:  # the screen begins when it has all that was recorded
            release.wait(PATIENCE)

    async def play(screen):
        began = time.monotonic()
        await screen.press("question_mark")
        assert isinstance(screen.app.screen, HelpPage)
        await screen.press("q")
        assert time.monotonic() - began < PATIENCE / 2
        release.set()

    drive(sick, play, listeners=[slow])


@pytest.mark.slow
def test_what_others_print_is_a_notice(sick):
    def talk(session, tick):
        # At each look: a notice disappears after some seconds, also on a machine that draws none.
        print("warning: [red]channel[/red] failed", file=sys.stderr)

    async def play(screen):
        await screen.until(lambda: "warning: [red]channel[/red] failed" in screen.text())

    drive(sick, play, listeners=[talk], size=(160, 50))


def test_an_unread_run_is_not_called_waiting(sick, tmp_path):
    state = RunReader(Session(sick), ended=lambda: True, interval=1).state
    assert state.has_backlog
    reader = RunReader(Session(tmp_path / "none"), ended=lambda: True, interval=1)
    reader.start()
    reader.stop(PATIENCE)
    assert not reader.state.has_backlog
    assert reader.state.snapshot.waiting


def test_an_unexpected_error_ends_the_watch(sick):
    def broken(session, tick):
        raise ZeroDivisionError

    async def go():
        reader = RunReader(Session(sick), ended=lambda: False, interval=0.05, listeners=[broken])
        app = WatchApp(reader, save_report)
        async with app.run_test() as pilot:
            while not reader.is_done:
                await pilot.pause(0.05)
        assert isinstance(reader.error, ZeroDivisionError)

    asyncio.run(go())


def test_a_defect_of_the_screen_is_kept_for_the_caller(sick):
    async def go():
        app = WatchApp(RunReader(Session(sick), ended=lambda: False, interval=1), save_report)
        async with app.run_test():
            app.call_later(lambda: 1 / 0)
            while app.defect is None:
                await asyncio.sleep(0.05)
        assert isinstance(app.defect, ZeroDivisionError)

    asyncio.run(go())


def record_treatable(path, steps=40):
    """A run whose disease has a remedy that can be applied in flight; it is still alive."""
    return record_run(path, steps, sick_from=15, finished=False)


def test_a_proposal_waits_for_a_key_and_goes_to_the_mailbox(tmp_path):
    path = record_treatable(tmp_path / "run")
    inbox = Inbox(path)

    async def play(screen):
        await screen.until(lambda: screen.app.snapshot.proposal is not None)
        proposal = screen.app.snapshot.proposal
        await screen.until(lambda: "Press a to approve" in screen.text())
        assert not [each for each in inbox.take(10**9) if each.kind == "apply"]
        await screen.press("a")
        assert isinstance(screen.app.screen, ProposalDialog)
        assert proposal.remedy in screen.text()
        assert f"explains {proposal.finding}" in " ".join(screen.text().split())
        await screen.press("escape")
        assert screen.app.snapshot.proposal == proposal
        await screen.press("a", "a")
        await screen.until(lambda: screen.app.snapshot.treatment is not None)
        (request,) = [each for each in inbox.take(10**9) if each.kind == "apply"]
        assert (request.remedy, request.changes) == (proposal.remedy, dict(proposal.changes))
        assert screen.app.snapshot.treatment.state == "proposed"
        await screen.press("a")
        await screen.until(lambda: "No treatment is proposed now" in screen.text())

    drive(path, play, apply="ask", size=(120, 40))


@pytest.mark.slow
def test_a_declined_proposal_is_gone(tmp_path):
    path = record_treatable(tmp_path / "run")

    async def play(screen):
        await screen.until(lambda: screen.app.snapshot.proposal is not None)
        declined = screen.app.snapshot.proposal.remedy
        await screen.press("a", "d")
        await screen.until(lambda: screen.app.snapshot.proposal is None)
        add_steps(path, 40, 43)
        await screen.until(lambda: screen.app.snapshot.facts.last_step == 42)
        proposal = screen.app.snapshot.proposal
        assert proposal is None or proposal.remedy != declined
        assert not [each for each in Inbox(path).take(10**9) if each.kind == "apply"]

    drive(path, play, apply="ask")


@pytest.mark.slow
def test_a_request_that_cannot_be_sent_is_said(tmp_path):
    path = record_treatable(tmp_path / "run")

    async def play(screen):
        await screen.until(lambda: screen.app.snapshot.proposal is not None)
        for request in (path / "mailbox").iterdir():
            request.unlink()
        (path / "mailbox").rmdir()
        (path / "mailbox").write_text("in the way")
        await screen.press("a", "a")
        await screen.until(lambda: "cannot write to the mailbox" in screen.text())

    drive(path, play, apply="ask", size=(160, 50))


def test_without_ask_there_is_no_key_to_approve(sick):
    async def play(screen):
        await screen.press("a")
        assert len(screen.app.screen_stack) == 1
        assert "Approve" not in screen.text()

    drive(sick, play, apply="safe", size=(160, 50))


def test_the_screen_leaves_when_the_watch_is_over(sick):
    async def go():
        session = Session(sick)
        reader = RunReader(session, ended=lambda: session.examination.finished, interval=0.05)
        app = WatchApp(reader, save_report)
        async with app.run_test() as pilot:
            ends = time.monotonic() + PATIENCE
            while app.is_running and time.monotonic() < ends:
                await pilot.pause(0.05)
            assert not app.is_running
        assert reader.error is None
        assert reader.state.snapshot.finished

    asyncio.run(go())


@pytest.mark.slow
def test_values_that_are_not_finite_are_shown(tmp_path):
    from grpodoctor.runs.recording.recorder import Recorder
    from grpodoctor.vocabulary.values import Mean
    from tests.report.simulated import manifest

    with Recorder.open(tmp_path / "run", manifest()) as recorder:
        for step in range(12):
            recorder.step(step, {"reward/mean": Mean.of([math.nan if step % 3 else 0.5])})

    async def play(screen):
        await screen.press("tab", "enter")
        await screen.until(lambda: isinstance(screen.app.screen, ContentPage))
        assert "reward/mean" in screen.text()

    drive(tmp_path / "run", play)
