"""Tokenizers in the styles of the families that people train: sound ones and planted faults."""

import json
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, processors
from transformers import PreTrainedTokenizerFast

from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding

Make = Callable[..., PreflightContext]
Findings = Callable[[str, PreflightContext], list[CheckFinding]]

CHECKS = ("DAT101", "DAT102", "DAT103", "DAT104", "DAT105", "DAT106", "DAT110")
ROWS = [
    PromptRow(f"line {index}", f"What is {index}+1?", answer=str(index + 1)) for index in range(20)
]


@dataclass(frozen=True)
class Style:
    """A family's way of writing conversations."""

    template: str
    specials: Sequence[str]
    end: str
    """Of the tokenizer."""
    ends: Sequence[str | int]
    """Of generation_config.json."""
    pad: str | None = None
    begin: str | None = None
    """Which the tokenizer puts before any text."""

    def save(self, folder: Path) -> Path:
        """Write the tokenizer and the model's settings; there are no weights."""
        words = [*self.specials, "<unk>", *string.printable]
        vocabulary = {word: number for number, word in enumerate(words)}
        plain = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))  # noqa: S106
        plain.decoder = decoders.Fuse()
        named = {"eos_token": self.end, "unk_token": "<unk>", "pad_token": self.pad}
        if self.begin:
            named["bos_token"] = self.begin
            plain.post_processor = processors.TemplateProcessing(
                single=f"{self.begin} $A", special_tokens=[(self.begin, vocabulary[self.begin])]
            )
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=plain,
            extra_special_tokens=[each for each in self.specials if each not in named.values()],
            **named,
        )
        tokenizer.chat_template = self.template
        tokenizer.save_pretrained(folder)
        ends = [vocabulary[each] if isinstance(each, str) else each for each in self.ends]
        settings = {"vocab_size": 200, "max_position_embeddings": 2048}
        (folder / "config.json").write_text(json.dumps(settings))
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
        return folder


CHATML = Style(
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    end="<|im_end|>",
    ends=("<|im_end|>", "<|endoftext|>"),
    pad="<|endoftext|>",
)
HEADERS = Style(
    "{{ bos_token }}{% for m in messages %}<|head|>{{ m.role }}<|/head|>\n\n"
    "{{ m.content | trim }}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|head|>assistant<|/head|>\n\n{% endif %}",
    ("<|begin|>", "<|end|>", "<|head|>", "<|/head|>", "<|eot|>", "<|eom|>"),
    end="<|eot|>",
    ends=("<|end|>", "<|eom|>", "<|eot|>"),
    begin="<|begin|>",
)
TURNS = Style(
    "{{ bos_token }}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles take turns') }}{% endif %}"
    "<turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content }}</turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<turn>model\n{% endif %}",
    ("<pad>", "<eos>", "<bos>", "<turn>", "</turn>"),
    end="<eos>",
    ends=("<eos>", "</turn>"),
    pad="<pad>",
    begin="<bos>",
)
INSTRUCTIONS = Style(
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}",
    ("<s>", "</s>", "[INST]", "[/INST]"),
    end="</s>",
    ends=("</s>",),
    begin="<s>",
)
BARE_ROLES = Style(
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<|User|>{{ m.content }}"
    "{% else %}<|Assistant|>{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|Assistant|>{% endif %}",
    ("<bos>", "<eos>", "<|User|>", "<|Assistant|>", "<pad>"),
    end="<eos>",
    ends=("<eos>",),
    pad="<pad>",
    begin="<bos>",
)
NEXT_TURN_ENDS = Style(
    "[g]<sop>{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}",
    ("[g]", "<sop>", "<|user|>", "<|assistant|>", "<|eos|>"),
    end="<|eos|>",
    ends=("<|eos|>", "<|user|>"),
    pad="<|eos|>",
)
SOUND = {
    "ChatML": CHATML,
    "headers": HEADERS,
    "turns": TURNS,
    "instructions": INSTRUCTIONS,
    "bare roles": BARE_ROLES,
    "ended by the next turn": NEXT_TURN_ENDS,
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_template_styles_have_no_findings(
    name: str, tmp_path: Path, context_of: Make, findings_of: Findings
) -> None:
    context = context_of(SOUND[name].save(tmp_path), ROWS)
    told = [each for code in CHECKS for each in findings_of(code, context)]
    assert [each.summary for each in told if each.severity != "info"] == []


def _changed(style: Style, **more: object) -> Style:
    return Style(**{**vars(style), **more})  # type: ignore[arg-type]


NO_PROMPT = CHATML.template.partition("{% if add")[0]
THINKING = BARE_ROLES.template.replace(
    "{% if add_generation_prompt %}<|Assistant|>",
    "{% if add_generation_prompt %}<|Assistant|><think>\n",
).replace("<|Assistant|>{{ m.content }}", "<|Assistant|>{{ m.content.split('</think>')[-1] }}")
SYSTEM = "<|im_start|>system\nYou are a model of ours.<|im_end|>\n" + CHATML.template
DATED = "<|im_start|>system\n{{ strftime_now('%d %b %Y') }}<|im_end|>\n" + CHATML.template
FAULTS = {
    "no generation prompt": (
        "DAT101", _changed(CHATML, template=NO_PROMPT), "critical", "no generation prompt"),
    "a thought that is begun and dropped": (
        "DAT101", _changed(BARE_ROLES, template=THINKING), "info", "generation prompt differs"),
    "an end that no file declares": (
        "DAT103", _changed(CHATML, end="<|endoftext|>", ends=("<|endoftext|>",)), "critical",
        "'<|im_end|>', which is not declared"),
    "the first of two closing tokens is not declared": (
        "DAT103", _changed(CHATML, end="<|endoftext|>", ends=("<|endoftext|>",), template=
        CHATML.template + "{% if not add_generation_prompt %}<|endoftext|>{% endif %}"),
        "critical", "'<|im_end|>', which is not declared"),
    "an end that the template never writes": (
        "DAT103", _changed(NEXT_TURN_ENDS, ends=("<|eos|>",)), "warning", "with nothing"),
    "an end that is no token": (
        "DAT103", _changed(CHATML, ends=("<|im_end|>", 190)), "warning", "190 does not exist"),
    "an end below zero": (
        "DAT103", _changed(CHATML, ends=("<|im_end|>", -1)), "critical", "-1 is outside"),
    "a tokenizer with another end than the template": ("DAT103", TURNS, "info", "only the token"),
    "padding that ends answers": (
        "DAT104", _changed(CHATML, pad="<|im_end|>"), "warning", "the end of every response"),
    "a beginning that comes twice to who tokenises text": ("DAT105", HEADERS, "info", "doubles it"),
    "a system prompt of its own": (
        "DAT110", _changed(CHATML, template=SYSTEM), "info", "You are a model of ours."),
    "a date": ("DAT110", _changed(CHATML, template=DATED), "info", "today's date"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(
    name: str, tmp_path: Path, context_of: Make, findings_of: Findings
) -> None:
    code, style, severity, words = FAULTS[name]
    told = findings_of(code, context_of(style.save(tmp_path), ROWS))
    assert [each.severity for each in told if words in each.summary] == [severity], told


def test_rendered_prompts_are_found(
    tmp_path: Path, context_of: Make, findings_of: Findings
) -> None:
    rows = [PromptRow("line 1", "<|im_start|>user\n1+1?<|im_end|>\n", answer="2"), *ROWS]
    (finding,) = findings_of("DAT105", context_of(CHATML.save(tmp_path), rows))
    assert finding.severity == "warning"
    assert finding.details == ("line 1",)


def test_prompts_with_two_bos_tokens_are_found(
    tmp_path: Path, context_of: Make, findings_of: Findings
) -> None:
    context = context_of(
        HEADERS.save(tmp_path), [PromptRow("line 1", "<|begin|>1+1", answer="2"), *ROWS]
    )
    context.tokenizer.chat_template = None
    (finding,) = findings_of("DAT105", context)
    assert finding.severity == "critical"
    assert "1 of 21 prompts start" in finding.summary


def test_a_single_turn_template_is_judged_by_one_turn(
    tmp_path: Path, context_of: Make, findings_of: Findings
) -> None:
    single = "{% if messages | length > 2 %}{{ raise_exception('one question') }}{% endif %}"
    broken = _changed(CHATML, template=single + NO_PROMPT).save(tmp_path)
    (finding,) = findings_of("DAT101", context_of(broken, ROWS))
    assert "no generation prompt" in finding.summary


def test_settings_of_a_nested_language_model_are_read(
    tmp_path: Path, context_of: Make, findings_of: Findings
) -> None:
    folder = CHATML.save(tmp_path)
    nested = {"text_config": {"vocab_size": 2, "max_position_embeddings": 16}}
    (folder / "config.json").write_text(json.dumps(nested))
    context = context_of(folder, ROWS)
    assert "vocabulary of 2 tokens" in findings_of("DAT103", context)[0].summary
    assert context.context_length == 16
