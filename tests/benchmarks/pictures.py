"""The pictures of README and docs: `check` on a TRL run, a live run, the report of the demo.

`make pictures` runs the real commands in tmux, and Chromium turns the captured screens into
`docs/images/*.png`. Playwright opens the dashboard and the report. Needs the programs tmux and
chromium.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
LOG = ROOT / "tests" / "data" / "logs" / "deltasthicc_trainer_state.json.gz"
COLUMNS = 100
_STEPS = 40
"""Steps of the live run at which the watch screen is captured."""
_LONGEST_SECONDS = 400.0
_DRAWING_SECONDS = 6.0
_CHROMIUM = shutil.which("chromium") or "chromium"
_SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<style>text {{ font-family: "DejaVu Sans Mono", monospace; font-size: {char_height}px }} {styles}
</style>
<rect width="{width}" height="{height}" fill="#121212" rx="8"/>
<g transform="translate(14, 10)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>"""


def capture(
    command: str,
    rows: int,
    folder: Path,
    is_ready: Callable[[], bool] | None = None,
    key: str = "",
) -> str:
    """A command's screen once it is ready, or else its first rows; colors are ANSI sequences.

    A key, in tmux's spelling, is pressed before the capture.
    """
    session = f"grpodoctor-pictures-{os.getpid()}"
    tmux = ["tmux", "-L", session]
    size = ["-x", str(COLUMNS), "-y", str(rows)]
    environment = {**os.environ, "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"}
    subprocess.run(
        [*tmux, "-u", "new-session", "-d", *size, f"cd {folder}; {command}; sleep 600"],
        check=True,
        env=environment,
    )
    try:
        deadline = time.monotonic() + _LONGEST_SECONDS
        while is_ready and not is_ready() and time.monotonic() < deadline:
            time.sleep(0.5)
        time.sleep(_DRAWING_SECONDS)
        if key:
            subprocess.run([*tmux, "send-keys", key], check=True)
            time.sleep(2 * _DRAWING_SECONDS)  # until the notice on the end of the run has gone
        shown = subprocess.run(
            [*tmux, "capture-pane", "-e", "-p", *([] if is_ready else ["-S", "-"])],
            check=True,
            capture_output=True,
            text=True,
        )
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
    return "\n".join(shown.stdout.rstrip().splitlines()[:rows]) + "\n"


def draw(screen: str, name: str) -> None:
    """Write a captured screen as `docs/images/NAME.png`."""
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    console.print(Text.from_ansi(screen), end="")
    svg = console.export_svg(code_format=_SVG, font_aspect_ratio=0.602)
    height = 30 + round(24.4 * screen.count("\n"))
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "page.html"
        page.write_text(
            f"<style>body{{margin:0}}svg{{width:1250px}}</style>{svg}", encoding="utf-8"
        )
        subprocess.run(
            [_CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--disable-background-networking", f"--window-size=1250,{height}",
             f"--user-data-dir={scratch}/profile", f"--screenshot={IMAGES / name}.png",
             page.as_uri()],
            check=True,
            capture_output=True,
            timeout=120,
        )  # fmt: skip
    print(f"written: docs/images/{name}.png")


def photograph_dashboard(program: Path, run: Path, name: str) -> None:
    """Write the overview of a run in the dashboard as `docs/images/NAME.png`."""
    command = [str(program), "dashboard", str(run), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as dashboard:
        try:
            assert dashboard.stdout is not None
            photograph(dashboard.stdout.readline().split()[-1], name)
        finally:
            dashboard.send_signal(signal.SIGINT)


def photograph(address: str, name: str) -> None:
    """Write the top of a page, once its charts are drawn, as `docs/images/NAME.png`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.goto(address)
        drawn = page.locator(".js-plotly-plot .main-svg").first
        drawn.wait_for(timeout=_LONGEST_SECONDS * 1000)
        page.wait_for_timeout(_DRAWING_SECONDS * 1000)
        page.screenshot(path=str(IMAGES / f"{name}.png"))
        browser.close()
    print(f"written: docs/images/{name}.png")


def draw_check(program: Path, folder: Path) -> None:
    """The report of a TRL run in the terminal."""
    log = folder / "outputs" / "checkpoint-800" / "trainer_state.json"
    log.parent.mkdir(parents=True)
    log.write_bytes(gzip.decompress(LOG.read_bytes()))
    draw(capture(f"{program} check outputs/", 32, folder), "check")


def draw_live_run(program: Path, folder: Path) -> None:
    """The watch screen of a live run, and one of its findings."""
    train = (
        f"{program} train --run-dir run --steps 400 --set engine.precision=int4 "
        "--set engine.old_logprobs=sampler >train.log 2>&1 & "
    )
    steps = folder / "run" / "steps.jsonl"

    def is_treated() -> bool:
        return steps.is_file() and steps.read_bytes().count(b"\n") >= _STEPS

    watch = f"{train} {program} watch run --apply safe"
    draw(capture(watch, 36, folder, is_treated), "watch")
    opened = capture(f"{program} watch run", 36, folder, is_treated, key="Enter")
    draw(opened, "watch-finding")


def draw_demo(program: Path, demo: Path) -> None:
    """The demo's report and its treated run in the dashboard; the demo is run if need be."""
    report = demo / "report.html"
    if not report.is_file():
        # The report names the run as the command line does.
        subprocess.run([str(program), "demo", "--dir", demo.name], check=True, cwd=demo.parent)
    photograph(report.resolve().as_uri(), "report")
    photograph_dashboard(program, demo / "treated", "dashboard")


def main() -> None:
    """Draw the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", type=Path, default=ROOT / "demo", help="folder of the demo")
    demo: Path = parser.parse_args().demo
    program = Path(sys.executable).with_name("grpodoctor")
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        draw_check(program, Path(scratch))
        draw_live_run(program, Path(scratch))
    draw_demo(program, demo)


if __name__ == "__main__":
    main()
