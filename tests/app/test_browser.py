"""The dashboard in a real browser: every page on live, finished, foreign and hostile runs."""

import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.Navigation_pb2 import Navigation

from grpodoctor.probe.results.results_json import write_result
from grpodoctor.runs.records import Event, StepRecord
from grpodoctor.runs.rollouts import write_rollouts
from tests.app.browser_page import SECONDS, WIDTH, Browser
from tests.app.conftest import Server, start, stop
from tests.report import probed
from tests.report.simulated import HOSTILE, readings, record_run, rollouts
from tests.samples import sampled

LOG = Path(__file__).parent.parent / "data" / "logs" / "beibeizzz_trl.jsonl.gz"
MIXTURE = Path(__file__).parents[1] / "rules" / "data" / "healthy_mixture.jsonl"
PAGES = ("Overview", "Finding", "Rollouts", "Mismatch", "Experts", "Compare", "Treatment",
         "Rules and recipes", "Runs")  # fmt: skip
STEPS = 10_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    record_run(folder / "finished", 80, sick_from=40)
    _treat(folder / "finished")
    record_run(folder / "hostile <b>run</b>", 60, sick_from=30, text=HOSTILE + "x" * 1_000_000,
               model=HOSTILE)  # fmt: skip
    shutil.copy(LOG, folder / "trl.jsonl.gz")
    for step in (0, 40, 79):  # the recorder drops rollouts if the machine is too slow
        write_rollouts(folder / "finished", rollouts(step), depth="full")
    record_run(folder / "mixture", 2)
    shutil.copy(MIXTURE, folder / "mixture" / "steps.jsonl")
    record_run(folder / "live", 20, sick_from=40, finished=False)
    return folder


def _treat(path: Path) -> None:
    identity = {
        "treatment_id": "1-tis@62",
        "remedy": "tis",
        "finding": "MIS001",
        "changes": {"correction": "tis_token"},
        "before": {"correction": "none"},
    }
    judged = {"metric": "reward/mean", "role": "target", "direction": "up", "untreated": 0.2,
              "treated": 0.4, "p": 0.01, "moved": True}  # fmt: skip
    events = [
        Event("treatment-proposed", 50, identity),
        Event("treatment-applied", 52, {**identity, "request": "apply"}),
        Event("treatment-kept", 64, {**identity, "verdict": HOSTILE, "metrics": [judged]}),
    ]
    with (path / "events.jsonl").open("ab") as file:
        file.writelines(event.to_line() for event in events)


@pytest.fixture(scope="module")
def server(serve: Callable[..., Server], folder: Path) -> Server:
    return serve(folder)


@pytest.mark.parametrize(
    "run",
    sampled(
        ["finished", "live", "trl.jsonl.gz", "hostile <b>run</b>"],
        {"trl.jsonl.gz"},
    ),
)
def test_every_page_shows_every_kind_of_run(
    server: Server, browser: Browser, folder: Path, run: str
) -> None:
    browser.open(server.url(run=f"{folder.name}/{run}"))
    browser.draws()
    browser.check()
    for title in PAGES:
        browser.go(title)
        browser.check()


def test_text_of_a_run_is_shown_and_never_run(
    server: Server, browser: Browser, folder: Path
) -> None:
    browser.open(server.url(run=f"{folder.name}/finished"))
    browser.go("Treatment")
    browser.sees("alert(1)")
    assert browser.page.locator("img[onerror], a[href*='www.a.b']").count() == 0
    assert "\u202e" not in browser.page.inner_text("body")
    browser.check()


def test_links_appear_with_the_page_that_an_address_names(
    server: Server, browser: Browser, folder: Path
) -> None:
    """Streamlit loses a click on a link while the script of `/` leads to another page.

    A fast server may replace the message that hides the links before it is sent.
    """
    drawn: list[Navigation] = []

    def note(frame: Any) -> None:
        message = ForwardMsg.FromString(frame)
        if message.WhichOneof("type") == "navigation":
            drawn.append(message.navigation)

    browser.page.on("websocket", lambda socket: socket.on("framereceived", note))
    browser.open(server.url(run=f"{folder.name}/finished"))
    browser.page.get_by_test_id("stTopNavLink").first.wait_for(timeout=SECONDS)
    with_links = [each for each in drawn if each.position == Navigation.Position.TOP]
    paths = {page.page_script_hash: page.url_pathname for page in drawn[-1].app_pages}
    assert {paths[each.page_script_hash] for each in with_links} == {"overview"}


def test_every_message_has_its_content(server: Server, browser: Browser, folder: Path) -> None:
    """A hash in place of the content stops a page that has dropped the content meanwhile."""
    kinds: list[str] = []

    def note(frame: Any) -> None:
        kinds.append(ForwardMsg.FromString(frame).WhichOneof("type"))

    browser.page.on("websocket", lambda socket: socket.on("framereceived", note))
    browser.open(server.url(run=f"{folder.name}/finished"))
    browser.draws()
    browser.go("Treatment")
    browser.go("Overview")
    browser.draws()
    assert "delta" in kinds
    assert "ref_hash" not in kinds


@pytest.mark.slow
def test_enter_opens_a_finding(server: Server, browser: Browser, folder: Path) -> None:
    browser.open(server.url(run=f"{folder.name}/finished"))
    opens = browser.page.locator("[data-testid=stButton] button", has_text="Open").first
    opens.wait_for(timeout=SECONDS)
    browser.draws()
    opens.focus()
    browser.page.keyboard.press("Enter")
    browser.page.get_by_role("heading", name="Remedies").wait_for(timeout=SECONDS)
    assert "finding=" in browser.page.url


def test_nothing_is_shown_without_the_token(server: Server, browser: Browser) -> None:
    browser.open(f"{server.origin}/?run=finished")
    browser.sees("This address lacks the token")
    other = f"{server.token[:-1]}{'y' if server.token.endswith('x') else 'x'}"
    browser.open(f"{server.origin}/?token={other}")
    browser.sees("The token in this address is not valid")
    assert browser.page.get_by_test_id("stTopNavLink").count() == 0


def test_a_deep_link_leads_to_its_finding_and_survives_a_reload(
    server: Server, browser: Browser, folder: Path
) -> None:
    browser.open(server.url(run=f"{folder.name}/finished", finding="MIS001-50"))
    browser.sees("engine-mismatch")
    assert "/finding?" in browser.page.url
    browser.page.reload()
    browser.sees("engine-mismatch")
    browser.check()


def test_a_sequence_of_the_page_mismatch_opens_its_response(
    server: Server, browser: Browser, folder: Path
) -> None:
    browser.open(server.url(run=f"{folder.name}/finished"))
    browser.draws()  # the address has led to the overview
    browser.go("Mismatch")
    for heading in ("Over the run", "By sequence", "By token"):
        browser.page.get_by_role("heading", name=heading).wait_for(timeout=SECONDS)
    table = browser.page.get_by_test_id("stDataFrame").first
    table.scroll_into_view_if_needed()
    browser.settle()
    box = table.bounding_box()
    assert box is not None
    browser.page.mouse.click(box["x"] + 16, box["y"] + 35 * 1.5)  # the box of the first row
    browser.page.wait_for_url(re.compile(r"/rollouts\?.*sequence=step-"), timeout=SECONDS)
    browser.page.get_by_role("heading", name="Response", exact=True).wait_for(timeout=SECONDS)
    browser.check()


@pytest.mark.slow
def test_layers_of_a_mixture_of_experts_are_aligned_heat_maps(
    server: Server, browser: Browser, folder: Path
) -> None:
    browser.open(server.url(run=f"{folder.name}/mixture"))
    browser.draws()
    browser.go("Experts")
    browser.page.get_by_role("heading", name="Entropy of the router").wait_for(timeout=SECONDS)
    maps = browser.page.locator(".js-plotly-plot .heatmaplayer")
    maps.nth(3).wait_for(timeout=SECONDS)
    places = browser.page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot')].map(chart =>"
        " [chart._fullLayout.xaxis._offset, chart._fullLayout.xaxis._length])"
    )
    assert len(places) >= 4
    assert all(place == pytest.approx(places[0], abs=1) for place in places)
    browser.check()


@pytest.mark.slow
def test_a_finished_run_of_10_000_steps_on_every_page(
    serve: Callable[..., Server], browser: Browser, tmp_path: Path
) -> None:
    browser.open(serve(_long_run(tmp_path / "long")).url())
    browser.sees(f"finished · step {STEPS - 1}")
    _click(browser, "training", 1000)
    browser.page.wait_for_url(re.compile(r"steps=\d{4}-\d{4}"), timeout=SECONDS)
    last, points = browser.page.evaluate(
        "(() => { const {x, y} = document.querySelector('.js-plotly-plot')._fullData[0];"
        " return [x.at(-1), x.length]; })()"
    )
    assert STEPS - last <= STEPS / 1000  # the lowest and highest of the last bucket
    assert 1000 < points <= 2 * 1024  # decimated: the lowest and highest of each bucket
    for title in PAGES:
        browser.go(title)
        browser.check()


def _long_run(path: Path) -> Path:
    record_run(path, 2)
    some = [readings(step, sick_from=None) for step in range(200)]
    with (path / "steps.jsonl").open("wb") as file:
        file.writelines(StepRecord(step, some[step % 200]).to_line() for step in range(STEPS))
    events = (path / "events.jsonl").read_text()
    (path / "events.jsonl").write_text(events.replace('"step":1,', f'"step":{STEPS - 1},'))
    return path


@pytest.mark.slow
def test_probe_reports_open_without_a_run(
    serve: Callable[..., Server], browser: Browser, tmp_path: Path
) -> None:
    write_result(probed.result(), tmp_path / "probe.json")
    browser.open(serve(tmp_path).url())
    browser.sees("a gap at which training was observed to suffer")
    assert "/mismatch?" in browser.page.url
    browser.check()
    browser.go("Runs")
    browser.sees("1 probe report, on the page Mismatch")
    browser.go("Experts")
    browser.sees("Choose a run on the page Runs.")
    browser.check()


def test_new_steps_appear_without_losing_the_zoom(
    serve: Callable[..., Server], browser: Browser, tmp_path: Path
) -> None:
    path = record_run(tmp_path / "live", 20, finished=False)
    longer = record_run(tmp_path / "longer", 60)
    lines = (longer / "steps.jsonl").read_bytes().splitlines(keepends=True)[20:]
    shutil.rmtree(longer)
    browser.open(serve(path).url())
    browser.sees("step 19")
    browser.page.get_by_text("Zoom", exact=True).click()
    browser.settle()
    _drag(browser, 0.1, 0.5)
    browser.page.wait_for_url(re.compile(r"zoom=\d+-\d+"), timeout=SECONDS)
    browser.sees("Zoomed to steps")
    browser.page.wait_for_function(
        # The text above the chart arrives before the chart.
        "document.querySelector('.js-plotly-plot')?._fullLayout?.xaxis.range[1] < 15",
        timeout=SECONDS,
    )
    zoomed = _range(browser)

    def grow() -> None:
        with (path / "steps.jsonl").open("ab", buffering=0) as file:
            for line in lines:
                file.write(line)
                time.sleep(0.05)

    thread = threading.Thread(target=grow)
    thread.start()
    browser.sees("step 59")
    thread.join()
    browser.page.wait_for_function(
        # A page that draws its chart again has none for a moment.
        "document.querySelector('.js-plotly-plot')?._fullData?.[0].x.at(-1) === 59",
        timeout=SECONDS,
    )
    assert _range(browser) == pytest.approx(zoomed)
    browser.check()


@pytest.mark.slow
def test_an_interval_of_one_chart_is_selected_everywhere(
    server: Server, browser: Browser, folder: Path
) -> None:
    browser.open(server.url(run=f"{folder.name}/finished"))
    browser.page.locator(".js-plotly-plot .nsewdrag").first.wait_for(timeout=SECONDS)
    _drag(browser, 0.2, 0.7)
    browser.page.wait_for_url(re.compile(r"steps=\d+-\d+"), timeout=SECONDS)
    browser.sees("Rollouts of steps")
    marked = browser.page.evaluate(
        "document.querySelector('.js-plotly-plot').layout.shapes"
        ".filter(shape => shape.name === 'selected steps').length"
    )
    assert marked == browser.page.evaluate(
        "Object.keys(document.querySelector('.js-plotly-plot').layout)"
        ".filter(key => /^xaxis\\d*$/.test(key)).length"
    )
    browser.page.get_by_role("button", name=re.compile(r"Steps \d+ to \d+")).click()
    browser.page.wait_for_url(lambda url: "steps=" not in url, timeout=SECONDS)
    browser.page.get_by_label("First and last step").focus()
    browser.page.keyboard.type("40-60")
    browser.page.keyboard.press("Enter")
    browser.page.wait_for_url(re.compile("steps=40-60"), timeout=SECONDS)
    browser.sees("Rollouts of steps 40 to 60")
    browser.check()


@pytest.mark.slow
def test_a_click_on_a_chart_opens_what_is_behind_the_point(
    server: Server, browser: Browser, folder: Path
) -> None:
    browser.open(server.url(run=f"{folder.name}/finished"))
    _click(browser, "training", 30)
    browser.page.wait_for_url(re.compile(r"steps=30-30"), timeout=SECONDS)
    browser.sees("Rollouts of steps 30 to 30")
    _click(browser, "worst response", 60)
    browser.page.wait_for_url(re.compile(r"/rollouts\?.*sequence=step-60%2Fseq-"), timeout=SECONDS)
    browser.go("Overview")
    _click(browser, "findings", 0)
    browser.page.wait_for_url(re.compile(r"/finding\?.*finding=[A-Z]{3}\d+-\d+"), timeout=SECONDS)
    browser.check()


_PLACE = """([name, index]) => {
    const chart = document.querySelector('.js-plotly-plot');
    const trace = chart?._fullData?.find(each => each.name === name);
    if (!trace) return null;
    const [x, y] = ['xaxis', 'yaxis'].map(
        name => chart._fullLayout[trace[name].replace(name[0], name)]);
    const box = chart.getBoundingClientRect();
    return [box.x + x._offset + x.d2p(trace.x[index]), box.y + y._offset + y.d2p(trace.y[index])];
}"""
"""Where the point of a curve is on the screen."""


def _click(browser: Browser, curve: str, index: int) -> None:
    """Click a point of a curve."""
    browser.page.set_viewport_size({"width": WIDTH, "height": 4000})  # all charts are visible
    browser.page.locator(".js-plotly-plot .nsewdrag").first.wait_for(timeout=SECONDS)
    browser.settle()
    place = browser.page.wait_for_function(_PLACE, arg=[curve, index], timeout=SECONDS).json_value()
    browser.page.mouse.move(place[0] - 1, place[1] - 1)
    browser.page.wait_for_timeout(300)
    browser.page.mouse.click(*place)


def _drag(browser: Browser, begin: float, end: float) -> None:
    """Drag over a share of the width of the first chart."""
    chart = browser.page.locator(".js-plotly-plot .nsewdrag").first
    chart.scroll_into_view_if_needed()
    browser.page.wait_for_timeout(500)
    box = chart.bounding_box()
    assert box is not None
    top, left, width = box["y"] + box["height"] / 3, box["x"], box["width"]
    browser.page.mouse.move(left + begin * width, top)
    browser.page.mouse.down()
    browser.page.mouse.move(left + end * width, top + 40, steps=8)
    browser.page.mouse.up()
    browser.page.wait_for_timeout(1000)


def _range(browser: Browser) -> list[float]:
    found: list[float] = browser.page.wait_for_function(
        "document.querySelector('.js-plotly-plot')?._fullLayout?.xaxis.range", timeout=SECONDS
    ).json_value()
    return found


@pytest.mark.slow
def test_a_dark_page_is_dark(server: Server, context: Any, folder: Path) -> None:
    dark = Browser(context, "dark")
    dark.open(server.url(run=f"{folder.name}/finished"))
    dark.draws()
    color = dark.page.evaluate("getComputedStyle(document.querySelector('.xtitle')).fill")
    assert min(map(int, re.findall(r"\d+", color)[:3])) > 150
    dark.check()
    dark.page.close()


@pytest.mark.slow
def test_it_ends_although_nobody_reads_what_it_prints(folder: Path) -> None:
    server = start(folder)
    assert server.process.stdout is not None
    server.process.stdout.close()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(30) == 0


def test_ctrl_c_ends_the_dashboard_and_leaves_no_process(folder: Path, browser: Browser) -> None:
    server = start(folder)
    browser.open(server.url())
    browser.sees("run")
    children = _children(server.process.pid)
    assert stop(server, signal.SIGINT) == 0
    browser.page.close()
    deadline = time.monotonic() + 20
    while any(map(_is_alive, children)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not any(map(_is_alive, children))


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    direct = [int(child) for task in tasks for child in task.read_text().split()]
    return [*direct, *(below for child in direct for below in _children(child))]


def _is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _fails(*arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, "-m", "grpodoctor", "dashboard", "--no-browser", *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr


def test_a_bad_path_or_port_is_one_clear_line(server: Server, folder: Path) -> None:
    assert "no such file or directory" in _fails(str(folder / "nowhere"))
    port = server.origin.rsplit(":", 1)[1]
    assert f"port {port} is in use" in _fails(str(folder), "--port", port)
    assert "cannot listen on 203.0.113.7" in _fails(str(folder), "--host", "203.0.113.7")
    assert "unknown framework" in _fails(str(folder), "--framework", "nonsense")
