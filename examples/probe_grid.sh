#!/usr/bin/env bash
# Train a small model, export it, and probe two samplers against one learner.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"

if [ ! -d runs/example-probe/model ]; then
    grpodoctor train --run-dir runs/example-probe --steps 5
    grpodoctor export runs/example-probe runs/example-probe/model
fi
grpodoctor probe examples/probe_grid.toml --output runs/example-probe/grid --exit-zero
