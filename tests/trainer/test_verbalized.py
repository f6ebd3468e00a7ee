"""Verbalized sampling: parsing of replies, and log-probabilities under the actual prompt."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import orjson
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from grpodoctor.cli.main import app
from grpodoctor.errors import DataError
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.data.loading import build_task
from grpodoctor.trainer.engines.sampler import sample
from grpodoctor.trainer.model.policy import Policy, load_policy
from grpodoctor.trainer.model.scoring import score
from grpodoctor.trainer.verbalized import (
    draw,
    parse,
    responses_in,
    sample_responses,
    verbalized_prompt,
)


def entry(text: str, probability: str) -> str:
    return f"<response><text>{text}</text><probability>{probability}</probability></response>"


def listed(reply: str) -> dict[str, float]:
    return {each.text: each.probability for each in parse(reply).candidates}


def test_probabilities_are_divided_by_their_sum() -> None:
    reply = entry("a", "0.6") + " and " + entry(" b c ", "0.9") + entry("d", "50%")
    found = parse(reply)
    assert listed(reply) == pytest.approx({"a": 0.3, "b c": 0.45, "d": 0.25})
    assert [each.stated for each in found.candidates] == pytest.approx([0.6, 0.9, 0.5])
    assert all(reply[each.start : each.end] == each.text for each in found.candidates)
    assert found.malformed == 0


def test_a_response_listed_twice_has_the_sum_of_both() -> None:
    assert listed(entry("a", "0.2") + entry("b", "0.6") + entry("a", "0.2")) == pytest.approx(
        {"a": 0.4, "b": 0.6}
    )


@pytest.mark.parametrize(
    "bad",
    [
        *(entry("a", each) for each in ("nan", "inf", "-1", "0", "", "often", "1e999", "0x1", "%")),
        *(entry("", "0.5"), entry("  ", "0.5"), "<response>a 0.5</response>", "<response>"),
        "<response><text>a</text></response>",
        "<response><text>a<probability>0.5</probability></response>",
        "<response><probability>0.5</probability></text></response>",
    ],
)
def test_an_unusable_entry_is_counted_and_dropped(bad: str) -> None:
    found = parse(bad + entry("good", "0.1"))
    assert [(each.text, each.probability) for each in found.candidates] == [("good", 1.0)]
    assert found.malformed == 1


def test_an_entry_that_is_not_closed_ends_where_the_next_begins() -> None:
    open_ended = entry("a", "0.5").removesuffix("</response>")
    assert listed(open_ended + entry("b", "0.5")) == {"a": 0.5, "b": 0.5}


@given(st.lists(st.sampled_from(
    ["<response>", "</response>", "<text>", "</text>", "<probability>", "</probability>",
     "0.5", "%", "a", " ", "\x1b[2J", "\ud7ff", "9" * 400]
), max_size=60))  # fmt: skip
def test_any_reply_is_read_and_sums_to_one(parts: list[str]) -> None:
    reply = "".join(parts)
    candidates = parse(reply).candidates
    assert all(reply[each.start : each.end] == each.text for each in candidates)
    assert all(0 <= each.probability <= 1 for each in candidates)
    assert not candidates or sum(each.probability for each in candidates) == pytest.approx(1)


@pytest.mark.parametrize("flood", ["<response>", "<response><text>", "</text>", entry("a", "9")])
def test_thousands_of_tags_are_parsed_in_linear_time(flood: str) -> None:
    began = time.process_time()
    parse(flood * (5_000_000 // len(flood)))
    assert time.process_time() - began < 5


def test_a_response_is_drawn_with_its_stated_probability() -> None:
    candidates = parse(entry("a", "3") + entry("b", "1")).candidates
    rng = random.Random(0)
    drawn = Counter(candidates[draw(candidates, rng)].text for _ in range(4000))
    assert drawn["a"] / 4000 == pytest.approx(0.75, abs=0.03)
    with pytest.raises(DataError, match="lists no response"):
        draw(parse("no list").candidates, rng)


def test_a_list_of_one_is_refused() -> None:
    with pytest.raises(DataError, match="ask for two or more"):
        verbalized_prompt("Name a number.", 1)


QUESTION = "7+?"
REPLY = entry("12", "0.5") + entry("9", "0.3")


@pytest.fixture(scope="module")
def reciting() -> Policy:
    """The built-in model, trained to answer one verbalized prompt with a list."""
    config = load_config(assignments=["model.warm_start_steps=0", "model.layers=1"])
    policy = load_policy(config, build_task(config.task))
    tokenizer = policy.tokenizer
    prompt, end = tokenizer.encode(verbalized_prompt(QUESTION, 2)), min(tokenizer.end_ids)
    ids = torch.tensor([prompt + tokenizer.encode(REPLY) + [end]])
    labels = ids.clone()
    labels[:, : len(prompt)] = -100
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-2)
    for _ in range(400):
        loss = policy.model(input_ids=ids, labels=labels).loss
        if loss < 0.003:
            break
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss < 0.003
    return policy


def test_log_probabilities_are_conditional_on_the_actual_prompt(reciting: Policy) -> None:
    temperature, limit = 0.8, len(REPLY) + 10
    replies_with_responses = sample_responses(
        reciting,
        [QUESTION] * 12,
        2,
        max_length=limit,
        temperature=temperature,
        generator=torch.Generator().manual_seed(1),
    )
    rows = [row for listed_rows in replies_with_responses for row in listed_rows]
    assert {row.text for row in rows} >= {"12", "9"}
    used = verbalized_prompt(QUESTION, 2)
    again = sample(
        reciting.model,
        [reciting.tokenizer.encode(used)] * 12,
        max_length=limit,
        temperature=temperature,
        tokenizer=reciting.tokenizer,
        generator=torch.Generator().manual_seed(1),
    )
    logprobs_BT = score(reciting.model, again, temperature).logprobs_BT
    replies = [reciting.tokenizer.decode(ids) for ids in again.response_ids()]
    for row in rows:
        assert row.prompt == used
        assert row.temperature == temperature
        line = logprobs_BT[replies.index(row.reply)]
        # One token per character: those of the text at its position in the reply.
        start = row.reply.index(f"<text>{row.text}</text>") + len("<text>")
        own = line[start : start + len(row.text)].sum().item()
        assert row.logprob == pytest.approx(own, abs=1e-3)
        assert row.reply_logprob == pytest.approx(line.sum().item(), abs=1e-2)
        assert row.reply_logprob <= row.logprob <= 0


def test_a_reply_from_elsewhere_has_no_log_probabilities() -> None:
    prompt = verbalized_prompt(QUESTION, 2)
    responses = responses_in(QUESTION, prompt, REPLY)
    assert [response.text for response in responses] == ["12", "9"]
    assert [response.probability for response in responses] == pytest.approx([0.625, 0.375])
    assert all(response.prompt == prompt and response.logprob is None for response in responses)


@pytest.fixture
def recited(reciting: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `verbalize` load the policy that was trained on one list."""
    monkeypatch.setattr("grpodoctor.trainer.model.policy.load_policy", lambda *_: reciting)


def verbalize(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["verbalize", "--model", "builtin", *arguments])


SHORT = ("--count", "2", "--temperature", "0.1", "--max-length", str(len(REPLY) + 10))


def test_the_command_prints_json_lines_and_writes_a_file(recited: None, tmp_path: Path) -> None:
    file, prompts = tmp_path / "responses.jsonl", tmp_path / "prompts.txt"
    prompts.write_text(f"{QUESTION}\n")
    done = verbalize(
        *("--prompt", QUESTION, "--prompts", str(prompts), *SHORT, "--json"),
        *("--output", str(file), "--batch-size", "1"),
    )
    assert done.exit_code == 0, done.output
    lines = [orjson.loads(line) for line in done.stdout.splitlines()]
    assert lines == [orjson.loads(line) for line in file.read_bytes().splitlines()]
    assert [line["text"] for line in lines] == ["12", "9"] * 2
    assert [line["probability"] for line in lines[:2]] == pytest.approx([0.625, 0.375])
    assert all(line["reply_logprob"] <= line["logprob"] <= 0 for line in lines)
    assert all(line["prompt"] == verbalized_prompt(QUESTION, 2) for line in lines)
    assert "4 responses written to" in done.stderr


def test_the_command_prints_a_table_and_draws_one_response(recited: None) -> None:
    table = verbalize("--prompt", QUESTION, *SHORT)
    assert table.exit_code == 0, table.output
    question, header, *rows = table.stdout.splitlines()
    assert (question, header.split()) == (QUESTION, ["probability", "logprob", "response"])
    assert [row.split()[0] for row in rows] == ["0.625", "0.375"]
    drawn = verbalize("--prompt", QUESTION, *SHORT, "--draw")
    assert len(drawn.stdout.splitlines()) == 3


def test_replies_that_cannot_be_parsed_are_one_line_and_exit_code_2(recited: None) -> None:
    done = verbalize("--prompt", QUESTION, "--count", "2", "--max-length", "3")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: no reply lists a response with a probability")
    assert (done.stderr.count("\n"), done.stdout) == (1, "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--model", "./nowhere", "--prompt", "a"), "no such directory"),
        (("--model", "builtin"), "no prompt is given"),
        (("--model", "builtin", "--prompt", " "), "the prompt is empty"),
        (("--model", "builtin", "--prompts", "nowhere.txt"), "nowhere.txt"),
        (("--model", "builtin", "--prompts", "empty.txt"), "empty.txt"),
        (("--model", "builtin", "--prompts", "chat.jsonl"), "conversation or token IDs"),
        (("--model", "builtin", "--prompt", "a", "--output", "a.pdf"), "JSON lines"),
        (("--model", "builtin", "--prompt", "a", "--output", "no/a.jsonl"), "does not exist"),
        (("--model", "builtin", "--prompt", "a", "--device", "tpu"), "model.device cannot be"),
    ],
)
def test_bad_input_of_the_command_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "chat.jsonl").write_text('{"messages": [{"role": "user", "content": "a"}]}\n')
    done = CliRunner().invoke(app, ["verbalize", *arguments])
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert expected in line


def test_a_missing_model_option_is_a_usage_error() -> None:
    done = CliRunner().invoke(app, ["verbalize", "--prompt", "a"])
    assert done.exit_code == 2
    assert "--model" in done.stderr
