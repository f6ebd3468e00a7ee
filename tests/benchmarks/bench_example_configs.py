"""The rules about settings, over the example configs of the frameworks' own repositories.

Examples that a framework publishes are meant to work, so each alarm is either a fault of the
example or one of ours. The repositories are not part of this one: clone them and name the folders
of their examples.

    git clone --depth 1 https://github.com/volcengine/verl
    python tests/benchmarks/bench_example_configs.py verl verl/examples

Run with `python tests/benchmarks/bench_example_configs.py FRAMEWORK FOLDER...`.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from grpodoctor.errors import ConfigError
from grpodoctor.frameworks.launch_script import SCRIPT_SUFFIXES
from grpodoctor.preflight.config_lint import check_config
from grpodoctor.rules.catalogue import all_rules

_SUFFIXES = {".yaml", ".yml", ".toml", *SCRIPT_SUFFIXES}


def main() -> None:
    """Check every config file below the folders, and print the alarms and counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("framework")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--only", default="", help="part of the paths to read")
    arguments = parser.parse_args()
    rules = [rule for rule in all_rules() if rule.code.startswith("CFG")]
    counts: Counter[str] = Counter()
    for file in sorted(file for folder in arguments.folders for file in folder.rglob("*")):
        if file.suffix not in _SUFFIXES or not file.is_file() or arguments.only not in str(file):
            continue
        try:
            results = check_config(file, arguments.framework, rules)
        except ConfigError as error:
            counts[f"not read: {error.what}"] += 1
            continue
        counts["read"] += 1
        decided = bool(results.passed or results.findings)
        counts["judged by a rule"] += decided
        for finding in results.findings:
            counts[f"{finding.severity} {finding.code}"] += 1
            if finding.severity != "info":
                print(f"{file}: {finding.code} {finding.severity}: {finding.finding.summary}")
        counts["with an alarm"] += any(each.severity != "info" for each in results.findings)
    for name, count in counts.most_common():
        print(f"{count:5d}  {name}")


if __name__ == "__main__":
    main()
