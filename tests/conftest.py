"""For all tests."""

import gc
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

if threading.current_thread() is threading.main_thread():
    # A shell starts what it puts into the background with Ctrl-C ignored, and so would be every
    # process that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Each worker and each program that it starts computes on one thread: two workers fill two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# No deadlines: the time of an example depends on what else the machine does.
settings.register_profile("quick", max_examples=30, deadline=None)
settings.register_profile("thorough", max_examples=300, deadline=None)  # used by make test-slow
settings.load_profile("quick")

LONGEST_FILES = (
    "trainer/engines/test_vllm.py",
    "app/test_browser.py",
    "hooks/weight_delivery/test_real_vllm.py",
    "trainer/distributed/test_distributed.py",
    "cli/test_demo.py",
    "app/test_pages.py",
    "probes/test_vllm.py",
    "probe/attribution/test_planted.py",
    "trainer/test_loop.py",
    "cli/watch_screen/test_watch_app.py",
    "probe/test_cli_probe.py",
    "app/test_mismatch_page.py",
    "trials/test_workers.py",
    "hooks/trl/test_attach_trl.py",
    "trainer/model/test_checkpoint.py",
    "trainer/model/test_policy.py",
    "preflight/test_planted.py",
    "app/test_rollouts_page.py",
    "report/test_browser.py",
    "remedies/test_package_settings.py",
    "hooks/trl/test_faults.py",
    "hooks/trl/test_engine.py",
    "trainer/model/test_model_families.py",
    "cli/watch_screen/test_terminals.py",
    "faults/test_faults.py",
    "probe/engines/test_engine_runner.py",
    "hooks/test_faults.py",
    "trainer/algorithms/test_invariance.py",
    "kills/test_kills.py",
    "trainer/test_cli_train.py",
    "runs/log_formats/test_hostile.py",
    "runs/recording/test_recorder.py",
    "hooks/torch_loop/test_doctor.py",
    "probes/test_what_if_layers.py",
    "probe/attribution/test_replaced_tokens.py",
    "probe/attribution/test_sampled_without.py",
    "cli/test_watch.py",
    "cli/mcp/test_mcp.py",
    "hooks/verl/test_verl_losses.py",
    "trainer/algorithms/test_sampling_policies.py",
    "probes/test_transformers.py",
    "report/test_brief_report.py",
    "hooks/trl/test_masks_and_clips.py",
    "test_wheel.py",
    "app/test_rollouts_browser.py",
    "trainer/engines/test_vllm_bad_responses.py",
    "runs/reading/test_remote.py",
    "trainer/model/test_lora.py",
    "trainer/moe/test_expert_runs.py",
)
"""Files of half a minute and more. A worker that took one of them last would leave the others
idle; `make test` therefore hands out files in this order (`--no-loadscope-reorder`)."""


# Modules and tests are many objects that live as long as the process, and a full garbage collection
# looks at each of them for one to two seconds. TRL asks for one at the end of each training.
gc.disable()  # while tests are collected
_MODULES = pytest.StashKey[int]()
"""How many modules the last freeze left out of garbage collections."""


def pytest_collection_finish(session: pytest.Session) -> None:
    session.stash[_MODULES] = 0
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave modules out of garbage collections, again whenever a test has imported many."""
    stash = item.session.stash
    if len(sys.modules) > stash[_MODULES] + 300:
        gc.collect()  # otherwise the garbage would stay, too
        gc.freeze()
        stash[_MODULES] = len(sys.modules)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest files first; the order inside a file stays."""
    ranks = {name: rank for rank, name in enumerate(LONGEST_FILES)}
    items.sort(key=lambda item: ranks.get(item.nodeid.split("::")[0][6:], len(ranks)))


@pytest.fixture(scope="module")
def chromium() -> Iterator[object]:
    """A browser for the tests of a file; they are skipped on a machine without Chromium.

    Playwright keeps an event loop running in the test's thread, and no test of another file could
    call `asyncio.run` meanwhile.
    """
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run of 60 steps with a fault from step 20 on; treat it as read-only."""
    from tests.report.simulated import record_run

    return record_run(tmp_path_factory.mktemp("runs") / "sick", 60, sick_from=20)
