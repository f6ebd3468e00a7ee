"""Mistakes of the twenty-first examination in rewards, models and configs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, normalizers

from tests.preflight.planted import eighteenth_sets as e
from tests.preflight.planted import nineteenth_sets as s
from tests.preflight.planted import nineteenth_tables as n
from tests.preflight.planted import twentyfirst_rewards as w
from tests.preflight.planted import twentyfirst_tables as t
from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import trl, verl
from tests.preflight.planted.models import CHATML, GEMMA, LLAMA, Model
from tests.preflight.planted.tables import Row


@dataclass(frozen=True)
class Edited(Model):
    """A model whose tokenizer has settings that an earlier use left there."""

    edit: str = ""

    def save(self, folder: Path) -> Path:
        """Write the folder."""
        super().save(folder)
        path = folder / "tokenizer.json"
        tokenizer = Tokenizer.from_file(str(path))
        if self.edit == "lines":
            tokenizer.normalizer = normalizers.Replace(Regex(r"\s+"), " ")  # type: ignore[assignment]
        elif self.edit == "accents":
            tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])  # type: ignore[assignment]  # fmt: skip
        tokenizer.save(str(path))
        return folder


def _edited(edit: str) -> Model:
    return Edited(
        **{name: getattr(CHATML, name) for name in CHATML.__dataclass_fields__}, edit=edit
    )


def run_faults() -> Iterator[Case]:
    """Thirty mistakes."""
    yield from _of_comparison()
    yield from _of_state()
    yield from _of_pay()
    yield from _of_models()
    yield from _of_sampling()
    yield from _of_configs()


def _verl_numbers(count: int, seed: int) -> list[Row]:
    return n.verl_rows(t.factories(count, seed), "Think step by step, then end with '#### ' and the number.", "total", "plants")  # fmt: skip


def _of_comparison() -> Iterator[Case]:
    yield Case(
        name="the label is removed by strip, which takes letters of the names", rows=t.tagged_rows(t.posts(300, 2121), "name", t.ASK_NAME), reward=w.STRIPPED,
        named=r"(REW101|REW104).*(correct|right|lose|refuse|earn)", accepted="Right names that begin or end with letters of 'Answer' (Anselm, Norbert, Wanda ...) earn nothing.",
    )  # fmt: skip
    yield Case(
        name="the tolerance is 5 in place of 5 percent", rows=t.tagged_rows(t.mixtures(300, 2122), "value"), reward=w.PERCENT, framework="trl", run_config=trl(),
        named=r"REW102.*(wrong|nearly|number|any)", accepted="Wrong numbers earn the full reward: the tolerance is five times the answer.",
    )  # fmt: skip
    yield Case(
        name="names of the references have capitals, those of responses are lowered", rows=t.tagged_rows(t.posts(300, 2123), "name", t.ASK_NAME), reward=w.CAPITALS, model=LLAMA,
        named=r"(REW101|REW104).*(correct|right|capital|case|format)", accepted="No right answer earns anything: the response is lowered, the reference is not.",
    )  # fmt: skip
    yield Case(
        name="the first label is searched in prompt and response together",
        rows=[{**row, "prompt": n.chat(_text(row), "Explain your choice, then end with a line such as 'Answer: B'.")} for row in t.tour_rows(300, 2124)], reward=w.WITH_PROMPT,
        named=r"(REW101|REW102|REW103|REW104|REW106).*(same for any|any response|earn no more|format|not rewarded|correct answers)", accepted="The reward reads the example of the prompt: all responses to a prompt earn the same.",
    )  # fmt: skip
    yield Case(
        name="references are in decomposed Unicode", rows=[{**row, "answer": _decomposed(row["answer"])} for row in t.tagged_rows(t.menus(300, 2125), "dish", t.ASK_DISH)], reward=w.TAG,
        named=r"(DAT126|DAT117|DAT132|REW101|REW104).*(Unicode|decomposed|accent|compos|NFC|normal)", accepted="The references are in decomposed Unicode (NFD): right answers in the usual form earn nothing.",
    )  # fmt: skip


def _decomposed(text: str) -> str:
    import unicodedata

    return unicodedata.normalize("NFD", text)


def _text(row: Row) -> str:
    return str(row["prompt"][-1]["content"])


def _of_state() -> Iterator[Case]:
    ask = f"{s.ASK_TOPICS}"
    topics = [
        {"data_source": "mail", "prompt": n.chat(r["text"], ask), "ability": "sort",
         "reward_model": {"style": "rule", "ground_truth": {"targets": r["topics"]}}, "extra_info": {"index": at}}
        for at, r in enumerate(n.tickets(300, 2126))
    ]  # fmt: skip
    yield Case(
        name="the first response of a group empties the list of references", rows=topics, reward=w.EMPTIED, suffix=".parquet", framework="verl", run_config=verl(),
        named=r"REW103.*(argument|change|earlier|twice|again|same response)", accepted="The reward changes its arguments (the reference list is emptied), so that later responses of the group earn nothing.",
    )  # fmt: skip
    yield Case(
        name="each fourth response is graded, the others inherit its grade", rows=t.tagged_rows(t.reviews(300, 2127), "mood", t.ASK_MOOD), reward=w.FOURTH,
        named=r"REW103.*(earlier|same response|other reward|determin|batch|order|again|groups)", accepted="The reward of a response depends on earlier calls or on other responses of the batch.",
    )  # fmt: skip
    yield Case(
        name="the interpreter of the sandbox is missing and the error is swallowed", rows=e.code_rows(120, 2128), reward=w.NO_INTERPRETER,
        named=r"(REW101|REW103|REW108).*(correct|right|format|file|program|not found)", accepted="No program earns a reward: the interpreter does not exist.",
    )  # fmt: skip
    yield Case(
        name="only the first of the tests is run", rows=e.code_rows(120, 2129), reward=w.FIRST_TEST,
        named=r"REW102.*(test|part|first|program)", accepted="Programs that pass only the first test earn the full reward: the other tests are not run.",
    )  # fmt: skip
    yield Case(
        name="a lexicon is built again for every response", rows=t.tagged_rows(t.posts(300, 2130), "name", t.ASK_NAME), reward=w.REBUILT, framework="trl", run_config=trl(),
        named=r"REW105.*", accepted="The reward is slow: it takes a large part of a step.",
    )  # fmt: skip


def _of_pay() -> Iterator[Case]:
    yield Case(
        name="the penalty for a wrong number has no floor, no number costs nothing", rows=t.tagged_rows(t.factories(300, 2131), "total"), reward=w.FLOORLESS,
        named=r"(REW101|REW102|REW103|GRP103).*(bound|floor|no answer|empty|without|range|outlier|large|scale|earn)", accepted="A wrong number earns as little as minus its distance (unbounded), no number earns more.",
    )  # fmt: skip
    yield Case(
        name="the judge's prompt keeps its placeholder for the response", rows=s.passage_rows(300, 2132), reward=w.PLACEHOLDER,
        named=r"(REW101|REW102).*(same for any|any response|judge|no more than|not rewarded)", accepted="Every response earns the same: the judge's prompt does not contain the response.",
    )  # fmt: skip
    yield Case(
        name="the bounds of the clip are exchanged", rows=t.tagged_rows(t.mixtures(300, 2133), "value"), reward=w.CLIPPED, framework="trl", run_config=trl(),
        named=r"REW10[12].*(same|any|wrong|empty|earn)", accepted="Every response earns 1.",
    )  # fmt: skip
    yield Case(
        name="verl's config names a reward function that the file does not have", rows=_verl_numbers(300, 2134), reward=w.VERL_NUMBER, suffix=".parquet", framework="verl",
        run_config=verl(("trainer: {n_gpus", "custom_reward_function: {path: rewards.py, name: compute_scores}\ntrainer: {n_gpus")),
        named=r".*(compute_scores|custom_reward_function)", accepted="The config names the function compute_scores, which the file does not define.",
    )  # fmt: skip


def _of_models() -> Iterator[Case]:
    lines = str(CHATML.template).replace("{{ m.content }}", "{{ m.content | replace('\\n', ' ') }}")
    yield Case(
        name="the template joins the lines of messages", rows=t.tour_rows(300, 2135), reward=w.LINE, model=replace(CHATML, template=lines),
        named=r"DAT119", accepted="The template changes the messages: line breaks become blanks.",
    )  # fmt: skip
    short = str(CHATML.template).replace("{{ m.content }}", "{{ m.content[:90] }}")
    yield Case(
        name="the template cuts messages at 90 characters", rows=t.tagged_rows(t.factories(300, 2136), "total"), reward=w.TAG, model=replace(CHATML, template=short),
        named=r"(DAT119|DAT115).*(cut|not write|drop|leave|change|lose|message)", accepted="The template leaves out the ends of long messages.",
    )  # fmt: skip
    yield Case(
        name="the tokenizer makes one blank of all white space", rows=t.tour_rows(300, 2137), reward=w.LINE, model=_edited("lines"), framework="trl", run_config=trl(),
        named=r"(DAT132|DAT102|DAT119).*(character|white space|line|blank|chang)", accepted="The tokenizer changes the prompts' text: line breaks become blanks.",
    )  # fmt: skip
    tags = ("<answer>", "</answer>")
    yield Case(
        name="the reward's tags are special tokens, which decoding leaves out", rows=t.journey_rows(300, 2138), reward=w.TAG, model=replace(CHATML, specials=(*CHATML.specials, *tags)),
        named=r"(DAT1\d\d|REW10\d).*(special|decod|skip_special)", accepted="The tags are special tokens: they are left out of decoded responses, so that the reward never sees them.",
    )  # fmt: skip
    yield Case(
        name="the tokenizer removes accents", rows=t.tagged_rows(t.menus(300, 2139), "dish", t.ASK_DISH), reward=w.TAG, model=_edited("accents"),
        named=r"DAT132", accepted="The tokenizer changes characters: accents are lost.",
    )  # fmt: skip
    yield Case(
        name="the padding token is an exclamation mark", rows=s.weather_rows(300, 2140), reward=w.BOX, model=replace(CHATML, pad="!"),
        named=r"(DAT103|DAT104|DAT120).*pad", accepted="The padding token is an ordinary character, which is masked wherever it occurs.",
    )  # fmt: skip
    yield Case(
        name="the model's config has dropout in attention", rows=t.tour_rows(300, 2141), reward=w.LINE, model=replace(GEMMA, config={"attention_dropout": 0.1}), framework="trl", run_config=trl(),
        named=r"KLD101.*dropout", accepted="Dropout of 0.1 makes the learner's probabilities differ from the sampler's.",
    )  # fmt: skip
    yield Case(
        name="the run asks the mixture of experts for its router's loss", rows=s.count_rows(300, 2142), reward=w.TAG,
        model=replace(CHATML, config={"model_type": "qwen2_moe", "num_experts": 16, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.02, "output_router_logits": False}),
        framework="trl", run_config=trl(model_init_kwargs='{"output_router_logits": true}'),
        named=r"(MOE101|CFG\d+).*(router|auxiliary)", accepted="The run adds the router's auxiliary loss (model_init_kwargs.output_router_logits).",
    )  # fmt: skip


def _of_sampling() -> Iterator[Case]:
    yield Case(
        name="generation stops at the first blank line", rows=s.story_rows(300, 2143), reward=w.BOX, framework="trl", run_config=trl(generation_kwargs=json.dumps({"stop": ["\n\n"]})),
        named=r".*(stop|blank line|empty line|paragraph)", accepted="The stop string '\\n\\n' ends responses after their first paragraph, before the answer.",
    )  # fmt: skip
    yield Case(
        name="one candidate per token makes sampling greedy", rows=t.tour_rows(300, 2144), reward=w.LINE, framework="trl", run_config=trl(top_k=1),
        named=r"CFG\d+.*(top.k|greedy|same|candidate)", accepted="top_k is 1: all responses of a group are the same.",
    )  # fmt: skip


def _of_configs() -> Iterator[Case]:
    yield Case(
        name="the learning rate is 1e-10", rows=t.journey_rows(300, 2145), reward=w.TAG, framework="trl", run_config=trl(learning_rate="1.0e-10"),
        named=r"(CFG|OPT)\d+.*learning rate", accepted="The learning rate is far too small to change anything.",
    )  # fmt: skip
    yield Case(
        name="the checkpoint to resume is the last step of the run", rows=s.weather_rows(300, 2146), reward=w.BOX, framework="trl",
        run_config=trl(resume_from_checkpoint="runs/weather/checkpoint-400"),
        named=r"(CFG|OPT)\d+.*(resum|checkpoint|no step|step 400)", accepted="The run resumes at step 400 of 400: no step is trained.",
    )  # fmt: skip
    yield Case(
        name="the adapter's target modules are of another family", rows=t.tour_rows(300, 2147), reward=w.LINE, framework="trl",
        model=replace(CHATML, config=_QWEN), run_config=trl(use_peft="true", lora_r=16, lora_target_modules='["query_key_value", "dense_h_to_4h"]', learning_rate="1.0e-5"),
        named=r".*(target.?module|query_key_value)", accepted="The model has no modules query_key_value and dense_h_to_4h: the adapter cannot be created.",
    )  # fmt: skip
    yield Case(
        name="the mini-batch is no multiple of the micro-batch", rows=_verl_numbers(300, 2148), reward=w.VERL_NUMBER, suffix=".parquet", framework="verl",
        run_config=verl(("ppo_micro_batch_size_per_gpu: 4", "ppo_micro_batch_size_per_gpu: 48")),
        named=r"(CFG|OPT)\d+.*(micro|divi|multiple)", accepted="64 responses per GPU and mini-batch are not divisible by the micro-batch of 48.",
    )  # fmt: skip
    yield Case(
        name="the config's prompt column is not in the file", rows=_verl_numbers(300, 2149), reward=w.VERL_NUMBER, suffix=".parquet", framework="verl",
        run_config=verl(("train_batch_size: 128", "train_batch_size: 128\n  prompt_key: question")),
        named=r".*(prompt_key|column.*question|question.*column)", accepted="data.prompt_key is 'question', which the file does not have.",
    )  # fmt: skip
    quick = trl(num_train_epochs=0.02).replace("max_steps: 400\n", "")
    yield Case(
        name="a fiftieth of an epoch is two steps", rows=t.tagged_rows(t.factories(300, 2150), "total"), reward=w.TAG, framework="trl", run_config=quick,
        named=r"(CFG|OPT|DAT)\d+.*(step|epoch)", accepted="The run ends after two steps.",
    )  # fmt: skip


_QWEN: dict[str, Any] = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2}  # fmt: skip
