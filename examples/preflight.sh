#!/usr/bin/env bash
# Check made-up data in the layout of GSM8K, and a reward function with a common mistake.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# As in GSM8K, the column `answer` holds the worked solution; the result follows "#### ".
for apples in $(seq 2 101); do
    total=$((apples * 12 + 7))
    printf '{"prompt": "A crate has %d trays of 12 apples, and 7 apples are next to it. How many apples are there?", ' "$apples"
    printf '"answer": "The trays hold %d * 12 = %d apples.\\n#### %d"}\n' "$apples" $((apples * 12)) "$total"
done > train.jsonl

# The mistake: the last number of a response is compared with the whole solution.
cat > rewards.py <<'PY'
import re


def score(prompts, completions, answers):
    """1.0 if the last number of the response is the answer."""
    rewards = []
    for completion, answer in zip(completions, answers):
        numbers = re.findall(r"-?\d+", completion)
        rewards.append(1.0 if numbers and numbers[-1] == answer else 0.0)
    return rewards
PY

# Exit code 1 means "findings"; --exit-zero keeps this script going.
grpodoctor preflight --prompts train.jsonl --reward rewards.py:score --exit-zero
