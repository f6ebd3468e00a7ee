#!/usr/bin/env bash
# Train with a planted fault, watch the run from a second process, and let it apply safe remedies.
# The fault: the sampling engine is quantized to int4, and its log-probabilities serve as the old
# policy of the importance ratio.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"

run=runs/example-watch-$$
grpodoctor train --run-dir "$run" --steps "${STEPS:-60}" --seed 0 \
    --set engine.precision=int4 --set engine.old_logprobs=sampler > "/tmp/example-watch-$$.log" 2>&1 &
trap 'kill $! 2>/dev/null || true' EXIT

# Works before the run exists. In a pipe it prints one line per event, on a terminal a live screen.
grpodoctor watch "$run" --apply safe --until-finished --exit-zero

# The same rules, applied to the finished record.
grpodoctor check "$run" --exit-zero
