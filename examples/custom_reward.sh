#!/usr/bin/env bash
# Train with a custom reward, and test the reward on the trained model's prompts with preflight.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"

run=runs/example-reward-$$
grpodoctor train --run-dir "$run" --steps "${STEPS:-40}" --set task.reward=examples/custom_reward.py:score
grpodoctor check "$run" --exit-zero

# preflight takes any model directory and any file with prompts and answers.
grpodoctor export "$run" "$run/model"
printf '%s\n' '{"prompt": "12+7=", "answer": "19"}' '{"prompt": "3+4=", "answer": "7"}' \
    '{"prompt": "25+31=", "answer": "56"}' > "$run/prompts.jsonl"
grpodoctor preflight --model "$run/model" --prompts "$run/prompts.jsonl" \
    --reward examples/custom_reward.py:score --gold-format '#{answer}' --exit-zero
