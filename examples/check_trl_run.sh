#!/usr/bin/env bash
# Diagnose a TRL run from the trainer_state.json that TRL writes next to each checkpoint.
# The log is from a public run (see tests/data/logs/README.md for its origin and licence).
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"

log=$PWD/tests/data/logs/deltasthicc_trainer_state.json.gz
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir -p outputs/checkpoint-800
gunzip -c "$log" > outputs/checkpoint-800/trainer_state.json

# Exit code 1 means "findings"; --exit-zero keeps this script going.
grpodoctor check outputs/ --exit-zero
