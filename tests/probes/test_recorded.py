"""A record as an engine: what every framework's dump holds of both sides, and what none does.

The dumps of other frameworks are written as these write them (`tests/runs/rollout_dumps/samples`);
our own is that of a real run.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file

from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.runs.rollouts import prepare_rollouts, write_rollouts
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.loop import Trainer
from grpodoctor.vocabulary.values import scalar
from tests.probes.models import tokenizer
from tests.probes.programs import Ran, run, sample, score
from tests.runs.rollout_dumps import samples

WITH_BOTH = {
    "own": samples.own,
    "nemo_rl": samples.nemo_rl,
    "prime_rl_tokens": samples.prime_rl_tokens,
    "slime": samples.slime,
}


def record(run: Path, **options: Any) -> Any:
    from engine_recorded import load

    return load(str(run), options)


def refusal(run: Path, **options: Any) -> Any:
    from contract import RefusalError

    with pytest.raises(RefusalError) as refused:
        record(run, **options)
    return refused.value


@pytest.fixture
def dump(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    writer: Callable[[Path], None] = request.param
    writer(tmp_path)
    return tmp_path


@pytest.mark.parametrize("dump", WITH_BOTH.values(), ids=WITH_BOTH, indirect=True)
def test_each_dump_format_gives_both_sides(dump: Path) -> None:
    from contract import Processing

    sampler, learner = record(dump, side="sampler"), record(dump, side="learner")
    given = sampler.recorded()
    scored = learner.score(given, Processing(), ())
    rows = {tuple(row["tokens"]): row for row in samples.responses(samples.STEPS[-1])}
    assert len(given) == samples.RESPONSES
    for theirs, ours in zip(given, scored, strict=True):
        row = rows[tuple(theirs.response_ids)]
        assert np.allclose(theirs.logprobs, row["sampler"], atol=1e-6)
        assert np.allclose(ours.logprobs, row["learner"], atol=1e-6)
    assert sampler.describe()["settings"]["step"] == samples.STEPS[-1]


@pytest.mark.parametrize(
    "dump", [samples.nemo_rl, samples.prime_rl_tokens, samples.slime], indirect=True
)
def test_recorded_prompts_include_their_ids(dump: Path) -> None:
    prompts = {tuple(each.prompt_ids) for each in record(dump, side="sampler").recorded()}
    assert all(len(each) in (2, 3) for each in prompts)


@pytest.mark.parametrize("dump", [samples.nemo_rl], indirect=True)
def test_responses_are_grouped_by_prompt_and_selected_by_step(dump: Path) -> None:
    chosen = record(dump, side="learner", step=2)
    given = chosen.recorded()
    assert [each.prompt for each in given] == sorted(each.prompt for each in given)
    assert [each.sample for each in given[: samples.COPIES]] == list(range(samples.COPIES))
    texts = {tuple(row["tokens"]) for row in samples.responses(2)}
    assert {tuple(each.response_ids) for each in given} == texts
    assert "step 9 of" in refusal(dump, side="learner", step=9).what


@pytest.mark.parametrize("dump", [samples.nemo_rl], indirect=True)
def test_responses_outside_the_record_are_refused(dump: Path) -> None:
    from contract import Processing, RefusalError

    given = record(dump, side="sampler").recorded()
    given[0].response_ids = [1, 2, 3]
    with pytest.raises(RefusalError, match="sample 0 of prompt 0 is not in the record of step 3"):
        record(dump, side="learner").score(given, Processing(), ())


def test_tokens_of_tools_are_context_and_not_compared(tmp_path: Path) -> None:
    samples.nemo_rl(tmp_path)
    whole = record(tmp_path, side="sampler")
    path = tmp_path / "train_data_step3.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    row = next(each for each in rows if sum(each["token_loss_mask"][0]) >= 4)
    sampled = [at for at, mask in enumerate(row["token_loss_mask"][0]) if mask]
    tool = sampled[1]
    row["token_loss_mask"][0][tool] = 0
    samples.lines(path, rows)
    for side, key in (("sampler", "generation_logprobs"), ("learner", "prev_logprobs")):
        turns = record(tmp_path, side=side)
        told = turns.describe()["settings"]
        assert (told["left_out"], told["responses"]) == (0, len(whole.recorded()) + 1)
        ids = row["token_ids"][0]
        first, second = (
            next(each for each in turns.recorded() if list(each.prompt_ids) == ids[:start])
            for start in (sampled[0], tool + 1)
        )
        assert list(first.response_ids) == ids[sampled[0] : tool]
        assert list(second.response_ids) == ids[tool + 1 : sampled[-1] + 1]
        values = [row[key][0][at] for at in sampled if at > tool]
        assert second.logprobs == pytest.approx(values, rel=1e-6)


def test_our_own_record_keeps_what_stands_between_the_turns(tmp_path: Path) -> None:
    from contract import Processing

    batch = RolloutBatch(
        step=3,
        sequence_ids=["a", "b"],
        group_ids_B=np.array([0, 1]),
        prompt_ids=["p", "q"],
        prompts=["texts without", "a template"],
        references=["", ""],
        tokens_BT=np.array([[5, 6, 90, 91, 7], [8, 9, 0, 0, 0]]),
        mask_BT=np.array([[1, 1, 0, 0, 1], [1, 1, 0, 0, 0]], bool),
        rewards_B=np.zeros(2),
        learner_logprobs_BT=-np.arange(1.0, 11).reshape(2, 5),
        sampler_logprobs_BT=-np.arange(1.0, 11).reshape(2, 5) / 2,
        prompt_tokens=[np.array([1, 2, 3]), np.array([4])],
    )
    prepare_rollouts(tmp_path)
    write_rollouts(tmp_path, batch, depth="full")
    given = record(tmp_path, side="learner").recorded()
    assert {tuple(each.prompt_ids): list(each.response_ids) for each in given} == {
        (1, 2, 3): [5, 6], (1, 2, 3, 5, 6, 90, 91): [7], (4,): [8, 9],
    }  # fmt: skip
    assert {tuple(each.logprobs) for each in given} == {(-1.0, -2.0), (-5.0,), (-6.0, -7.0)}
    scored = record(tmp_path, side="sampler").score(given, Processing(), ())
    assert [list(each.logprobs) for each in scored] == [
        [value / 2 for value in each.logprobs] for each in given
    ]


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").touch()
    assert str(refusal(tmp_path, side="sampler")).startswith(
        "no rollout dump: the file has 0 bytes"
    )


def test_an_empty_file_next_to_others_counts_as_damaged(tmp_path: Path) -> None:
    samples.slime(tmp_path)
    (found,) = [path for path in tmp_path.rglob("*") if path.is_file()][:1]
    (found.parent / f"0_{found.name}").touch()
    assert record(tmp_path, side="sampler").describe()["settings"]["damaged"] == 1


def test_placeholder_zeros_are_no_log_probabilities(tmp_path: Path) -> None:
    """NeMo RL writes them where force_on_policy_ratio spares it the scoring."""
    samples.nemo_rl(tmp_path)
    for path in tmp_path.glob("*.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows:
            row["prev_logprobs"] = [[0.0] * len(row["token_ids"][0])]
        samples.lines(path, rows)
    refused = refusal(tmp_path, side="learner")
    assert "has no log-probabilities of both sides" in refused.what
    assert "force_on_policy_ratio" in refused.remedy


def test_tokens_of_a_frozen_model_are_left_out(tmp_path: Path) -> None:
    """prime-rl trains them by cross entropy, and has no log-probabilities of who sampled them."""
    samples.prime_rl_tokens(tmp_path)
    for path in (tmp_path / "token_exports/step_3").iterdir():
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows:
            for name in ("rl_weights", "ce_weights", "ref_kl_weights"):
                row[name] = [None] * len(row["token_ids"])
        frozen, pruned = rows[:2]
        frozen["ce_weights"] = [float(each) for each in frozen["loss_mask"]]
        frozen["inference_logprobs"] = [0.0] * len(frozen["token_ids"])
        for row in (frozen, pruned):
            row["rl_weights"] = [0.0] * len(row["token_ids"])
        samples.lines(path, rows)
    told = record(tmp_path, side="sampler").describe()["settings"]
    assert (told["step"], told["left_out"]) == (3, 2)
    assert told["responses"] == samples.RESPONSES - 2


def test_an_unfinished_file_falls_back_to_the_previous_step(tmp_path: Path) -> None:
    samples.slime(tmp_path)
    newest = tmp_path / f"train_data/{samples.STEPS[-1]}.pt"
    newest.write_bytes(newest.read_bytes()[:1000])
    told = record(tmp_path, side="sampler").describe()["settings"]
    assert (told["step"], told["damaged"]) == (samples.STEPS[-2], 1)
    refused = refusal(tmp_path, side="sampler", step=samples.STEPS[-1])
    assert f"1 damaged ({newest.name}: the pickle is damaged" in refused.what


@pytest.mark.parametrize(
    ("writer", "remedy"),
    [
        (samples.trl, "attach(trainer, depth='full')"),
        (samples.verl, "add rollout_log_probs, old_log_probs and responses to the rows"),
        (samples.areal, "use dumps of grpodoctor, prime-rl"),
        (samples.prime_rl_traces, "trainer.enable_token_export=true"),
    ],
)
def test_a_dump_without_both_sides_names_the_setting(
    writer: Callable[[Path], None], remedy: str, tmp_path: Path
) -> None:
    writer(tmp_path)
    refused = refusal(tmp_path, side="sampler")
    assert "has no log-probabilities of both sides" in refused.what
    assert remedy in refused.remedy


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({}, "side= is missing or unknown"),
        ({"side": "both"}, "side= is missing or unknown"),
        ({"side": "learner", "stpe": 1}, "no option 'stpe'"),
        ({"side": "learner", "step": "last"}, "step= must be an integer"),
        ({"side": "learner"}, "holds no rollout dump"),
    ],
)
def test_invalid_record_options_are_refused(
    options: dict[str, Any], what: str, tmp_path: Path
) -> None:
    assert what in refusal(tmp_path, **options).what
    assert "there is no run at" in refusal(tmp_path / "nowhere", side="learner").what


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real recorded run with a learner in float32 and an engine in bfloat16."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    config = load_config(
        assignments=[
            *("steps=2", "threads=1", "evaluation.every=0", "model.warm_start_steps=20"),
            *("rollout.prompts_per_batch=4", "rollout.group_size=4", "record.depth=full"),
            *("engine.precision=bf16", "rollout.max_length=16"),
        ]
    )
    Trainer(config, folder).run()
    return folder


def test_a_recorded_run_reproduces_its_logged_mismatch(trained: Path, tmp_path: Path) -> None:
    nobodys = tmp_path / "prompts.json"
    nobodys.write_text("[]")
    sides: dict[str, Ran] = {
        "sampler": run("recorded", tmp_path / "s", trained, [sample(nobodys)], {"side": "sampler"})
    }
    drawn = sides["sampler"].folder / "sample"
    sides["learner"] = run("recorded", tmp_path / "l", trained, [score(drawn)], {"side": "learner"})
    theirs, ours = sides["sampler"].arrays("sample"), sides["learner"].arrays("score")
    gaps_N = np.abs(np.exp(theirs["logprobs_N"]) - np.exp(ours["logprobs_N"]))
    largest_B = np.maximum.reduceat(gaps_N, theirs["response_offsets"][:-1])
    told = scalar(list(read_run(trained).steps)[-1].values["mismatch/prob_diff_max"])
    assert told > 1e-5
    assert largest_B.mean() == pytest.approx(told, rel=1e-3)
    assert set(theirs["prompt_B"]) == set(range(4))
    assert sides["sampler"].engine["name"] == "recorded (grpodoctor)"


def test_prompt_texts_use_the_named_tokenizer(trained: Path, tmp_path: Path) -> None:
    tokenizer().save_pretrained(tmp_path)
    texts = shutil.copytree(trained, tmp_path / "texts")
    for path in (texts / "rollouts").glob("*.parquet"):
        table = pq.read_table(path).drop_columns(["sequence_token_ids", "sequence_sampled"])
        pq.write_table(table, path)
    assert all(each.prompt_ids for each in record(trained, side="sampler").recorded())
    bare, told = (
        record(texts, side="sampler", **options).recorded()
        for options in ({}, {"tokenizer": str(tmp_path)})
    )
    assert all(not each.prompt_ids for each in bare)
    assert all(each.prompt_ids for each in told)


@pytest.mark.parametrize("writer", [samples.nemo_rl, samples.slime], ids=["nemo_rl", "slime"])
def test_a_live_engine_scores_what_was_recorded(
    writer: Callable[[Path], None], dense_model: Path, tmp_path: Path
) -> None:
    from contract import Processing
    from engine_transformers import load

    rows = len(load_file(dense_model / "model.safetensors")["model.embed_tokens.weight"])
    writer(tmp_path)
    given = record(tmp_path, side="learner").recorded()
    for each in given:  # the dump's ids are of a larger vocabulary
        each.prompt_ids = [token % rows for token in each.prompt_ids]
        each.response_ids = [token % rows for token in each.response_ids]
    scored = load(str(dense_model), {"dtype": "float32"}).score(given, Processing(), ())
    assert all(np.isfinite(each.logprobs).all() for each in scored)
