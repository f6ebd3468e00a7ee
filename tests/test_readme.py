"""What the README quotes of a command's output is what the command prints."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_quoted_report_is_the_beginning_of_what_the_example_prints() -> None:
    printed = subprocess.run(
        ["/bin/bash", str(ROOT / "examples" / "check_trl_run.sh")],
        capture_output=True, text=True, timeout=120, check=True, env={"PATH": "/usr/bin:/bin"},
    ).stdout  # fmt: skip
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    quoted = next(block for block in readme.split("```\n") if block.startswith("SICK "))
    assert printed.startswith(quoted)
