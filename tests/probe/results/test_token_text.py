import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from grpodoctor.probe.results.token_text import texts_of

TEXT = "One, two; three apples. Zwölf Äpfel! 数学 是 x_1 = 42\n\tdef f(): return 0"


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, show_progress=False, min_frequency=1
    )
    tokenizer.train_from_iterator([TEXT] * 3, trainer)
    tokenizer.add_special_tokens(["<|end|>"])
    return tokenizer


def metaspace() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="never")
    trainer = trainers.UnigramTrainer(vocab_size=120, show_progress=False)
    tokenizer.train_from_iterator([TEXT] * 3, trainer)
    return tokenizer


@pytest.mark.parametrize("make", [byte_level, metaspace])
def test_the_pieces_are_those_of_the_tokenizer(tmp_path: Path, make) -> None:
    tokenizer = make()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    texts = texts_of(str(tmp_path))
    assert len(texts) == tokenizer.get_vocab_size()
    ids = tokenizer.encode("three apples return 42").ids
    assert len(ids) > 2
    assert "".join(texts[each] for each in ids) == "three apples return 42"


def test_a_special_token_is_shown_as_is(tmp_path: Path) -> None:
    tokenizer = byte_level()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert texts_of(str(tmp_path))[tokenizer.token_to_id("<|end|>")] == "<|end|>"


@pytest.mark.parametrize("content", ["[]", "{", '{"model": {"vocab": 3}}', "[" * 100_000, "{}"])
def test_a_damaged_tokenizer_gives_no_texts(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    assert texts_of(str(tmp_path)) == {}
    assert json.dumps(dict(texts_of("/nowhere"))) == "{}"
