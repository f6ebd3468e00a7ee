"""SGLang's own interface, with a fake server; docs/probe-results.md describes the real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.probes.models import messages, prompts_file, tokenizer
from tests.probes.programs import run, sample, score
from tests.probes.servers import (
    ABOUT_SGLANG,
    MOST_INPUT,
    QUICK,
    SGLANG,
    logprob_of,
    sglang,
    standing_in,
)  # fmt: skip


def test_sglangs_own_interface_is_used_if_present(tmp_path: Path) -> None:
    prompts = prompts_file(tmp_path / "prompts.json", 6)
    spoken = tmp_path / "spoken.json"
    spoken.write_text(json.dumps([{"messages": messages(1)[0]}, {"text": "1+1="}]))
    with standing_in(SGLANG) as url:
        tasks = [
            {"kind": "tokenise", "name": "ids", "prompts": str(spoken)},
            sample(prompts, max_tokens=5),
            score(tmp_path / "sample"),
        ]
        ran = run("openai_server", tmp_path, url, tasks, QUICK)
    assert ran.code == 0, ran.error
    assert [len(each) for each in ran.ids("ids")] == [9, 7]
    drawn, scored = ran.arrays("sample"), ran.arrays("score")
    assert np.allclose(drawn["logprobs_N"], scored["logprobs_N"])
    assert set(drawn["cached_B"]) == {3}
    assert drawn["ended_B"].all()
    engine = ran.engine
    assert engine["name"] == "openai_server (sglang)"
    assert (engine["version"], engine["dtype"]) == ("0.5.23", "bfloat16")
    assert engine["context"] == MOST_INPUT
    assert engine["layout"] == {"tensor_parallel": 2}
    # It divides by the temperature before it takes logarithms: found out by a trial.
    assert engine["logprobs"] == "processed"
    assert "secret" not in json.dumps(ran.answer)


def test_automatic_precision_is_that_of_the_checkpoint(dense_model: Path) -> None:
    from engine_openai_server import load

    stored = json.loads((dense_model / "config.json").read_text())["dtype"]
    for seen, told in ((str(dense_model), stored), ("/nowhere", "not reported")):
        routes = {
            **SGLANG,
            "/model_info": lambda _, seen=seen: {"model_path": seen},
            "/server_info": lambda _: ABOUT_SGLANG | {"dtype": "auto"},
        }
        with standing_in(routes) as url:
            assert load(url, {**QUICK, "logprobs": "raw"}).describe()["dtype"] == told


def test_rounding_is_not_mistaken_for_a_temperature() -> None:
    """SGLang with SGLANG_RETURN_ORIGINAL_LOGPROB=1, which scores as it draws but for rounding."""
    from engine_openai_server import load

    def raw(body: dict[str, Any]) -> Any:
        whole = sglang(body)
        drawn = whole["meta_info"]["output_token_logprobs"]
        for place, entry in enumerate(drawn):
            entry[0] = logprob_of(entry[1]) + (0.2 if place < 3 else 0.01)
        return whole

    with standing_in({**SGLANG, "/generate": raw}) as url:
        assert load(url, QUICK).describe()["logprobs"] == "raw"


def test_responses_end_before_the_context_is_full(tmp_path: Path) -> None:
    short = tmp_path / "short.json"
    short.write_text(json.dumps([{"ids": [7] * 5}]))
    with standing_in(SGLANG) as url:
        tasks = [sample(short, max_tokens=1000), score(tmp_path / "sample")]
        ran = run("openai_server", tmp_path, url, tasks, {**QUICK, "logprobs": "processed"})
    assert ran.code == 0, ran.error
    lengths = np.diff(ran.arrays("score")["response_offsets"])
    assert set(lengths) == {MOST_INPUT - 5 - 1}


def test_penalties_are_sent() -> None:
    from contract import PROCESSORS, Sampling
    from engine_openai_server import load

    asked: list[dict[str, Any]] = []

    def noted(body: dict[str, Any]) -> Any:
        asked.append(body["sampling_params"])
        return sglang(body)

    penalties = {"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.25}
    sampling = Sampling(samples=1, max_tokens=4, min_tokens=3, logit_bias=((5, -2.0),), **penalties)
    with standing_in({**SGLANG, "/generate": noted}) as url:
        server = load(url, {**QUICK, "logprobs": "raw"})
        server.sample([[1, 2]], sampling, ())
        assert server.describe()["processors"] == list(PROCESSORS)
    sent = penalties | {"min_new_tokens": 3, "logit_bias": {"5": -2.0}}
    assert sent.items() <= asked[0].items()


def test_an_adapter_is_named_in_each_request() -> None:
    from contract import Processing, Sampling
    from engine_openai_server import load

    asked: list[dict[str, Any]] = []

    def noted(body: dict[str, Any]) -> Any:
        asked.append(body)
        return sglang(body)

    base = {"id": "tiny", "max_model_len": 64, "root": "/models/tiny"}
    cards = [base, {"id": "math", "parent": "tiny", "root": "/adapters/math"}]
    routes = {**SGLANG, "/generate": noted, "/v1/models": lambda _: {"data": cards}}
    with standing_in(routes) as url:
        for name in ("math", "tiny"):
            server = load(url, {**QUICK, "logprobs": "raw", "model": name})
            assert server.describe()["context"] > 0, "an adapter has the context of its base"
            (drawn,) = server.sample([[1, 2]], Sampling(samples=1, max_tokens=2), ())
            server.score([drawn], Processing(), ())
    assert [body.get("lora_path") for body in asked] == ["math", "math", None, None]


def test_sglang_receives_seeds_if_it_supports_them() -> None:
    """With deterministic inference, all requests without a seed share one seed."""
    from contract import Sampling
    from engine_openai_server import load

    texts = {}
    for deterministic in (True, False):
        about = ABOUT_SGLANG | {"enable_deterministic_inference": deterministic}
        with standing_in({**SGLANG, "/server_info": lambda _, about=about: about}) as url:
            server = load(url, {**QUICK, "logprobs": "raw"})
            drawn = server.sample([[1, 2]], Sampling(samples=4, max_tokens=6), ())
        texts[deterministic] = {tuple(each.response_ids) for each in drawn}
    assert len(texts[True]) > 1
    assert len(texts[False]) == 1


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"finish_reason": {"type": "abort", "message": "paused"}}, "aborted a response"),
        (
            {"output_token_logprobs": None},
            "returned no log-probabilities: no output_token_logprobs",
        ),
        ({"output_token_logprobs": [[-1.0, 2**40, None]]}, "the ids of sampled tokens"),
        ({"output_token_logprobs": [["x", 5, None]]}, "returned 'x' as a log-probability"),
    ],
)
def test_unusable_answers_of_sglang_are_refused(changes: dict[str, Any], what: str) -> None:
    from contract import RefusalError, Sampling
    from engine_openai_server import load

    def broken(body: dict[str, Any]) -> Any:
        whole = sglang(body)
        return whole | {"meta_info": whole["meta_info"] | changes}

    with standing_in({**SGLANG, "/generate": broken}) as url:
        server = load(url, {**QUICK, "logprobs": "raw"})
        with pytest.raises(RefusalError) as refusal:
            server.sample([[1, 2]], Sampling(samples=1, max_tokens=2), ())
    assert what in refusal.value.what


def test_sglangs_nonfinite_logprobs_are_counted() -> None:
    from contract import Sampling
    from engine_openai_server import load

    def without(body: dict[str, Any]) -> Any:
        whole = sglang(body)
        whole["meta_info"]["output_token_logprobs"][0][0] = None
        return whole

    with standing_in({**SGLANG, "/generate": without}) as url:
        server = load(url, {**QUICK, "logprobs": "raw"})
        (response,) = server.sample([[1, 2]], Sampling(samples=1, max_tokens=2), ())
    assert np.isnan(response.logprobs).tolist() == [True, False]


def test_without_tokenize_the_tokenizer_is_named(tmp_path: Path) -> None:
    from contract import RefusalError
    from engine_openai_server import load

    older = {path: route for path, route in SGLANG.items() if path != "/tokenize"}
    for name in ("model_info", "server_info"):
        older[f"/get_{name}"] = older.pop(f"/{name}")
    tokenizer().save_pretrained(tmp_path)
    with standing_in(older) as url:
        with pytest.raises(RefusalError, match="cannot tokenize") as refusal:
            load(url, QUICK).tokenise([{"text": "1+1="}])
        named = load(url, {**QUICK, "tokenizer": str(tmp_path)})
        assert named.describe()["version"] == "0.5.23"
        assert named.tokenise([{"text": "1+1="}]) == [tokenizer().encode("1+1=")]
    assert "tokenizer=" in refusal.value.remedy
