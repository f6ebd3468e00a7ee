"""Refusals of the transformers engine are one line with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.probes.conftest import engine
from tests.probes.models import ROWS, messages, variant

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown option": ({"dtyp": "float16"}, "no option 'dtyp'.*|use one of .*dtype"),
    "an unknown precision": ({"dtype": "float8"}, "dtype='float8' is unknown"),
    "a number as text": ({"batch_tokens": "many"}, "not have the type int"),
    "a truth value as a number": ({"perturb": True}, "not have the type float"),
    "too little": ({"batch_rows": 0}, "batch_rows is 0"),
    "a broken expression": ({"quantise_only": "("}, "not a regular expression"),
    "a device that is not there": ({"device": "xpu:7"}, "device 'xpu:7' cannot be used"),
    "nothing to quantise": ({"quantise": "int8", "quantise_only": "nowhere"}, "no module to"),
    "what it does not do": ({"tensor_parallel": 2}, "no option 'tensor_parallel'"),
}


@pytest.mark.parametrize(("options", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_options_that_cannot_be_are_refused(
    dense_model: Path, options: dict[str, Any], told: str
) -> None:
    from contract import RefusalError

    with pytest.raises(RefusalError, match=told):
        engine(dense_model, **options)


def test_models_that_cannot_be_loaded_are_refused(dense_model: Path, tmp_path: Path) -> None:
    from contract import RefusalError

    def refuses(folder: Path, told: str, **options: Any) -> None:
        with pytest.raises(RefusalError, match=told):
            engine(folder, **options)

    refuses(tmp_path / "nowhere", "there is no model")
    pickled = variant(tmp_path / "pickled", dense_model)
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    refuses(pickled, "pickles")
    (pickled / "pytorch_model.bin").unlink()
    refuses(pickled, "no weights")
    damaged = variant(tmp_path / "damaged", dense_model)
    (damaged / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{no header at all")
    refuses(damaged, "cannot be loaded")
    refuses(dense_model, "are damaged", weights=str(damaged))
    refuses(dense_model, "no tensor of .* matches", weights=str(dense_model), weights_only="zzz")
    deeper = variant(tmp_path / "deeper", dense_model, config={"num_hidden_layers": 5})
    refuses(deeper, "cannot be loaded.*layer_types")
    lacking = variant(tmp_path / "lacking", dense_model)
    weights = load_file(lacking / "model.safetensors")
    del weights["model.layers.3.mlp.up_proj.weight"]
    weights["model.layers.1.mlp.up_proj.weight"] = torch.zeros(3, 3)
    save_file(weights, lacking / "model.safetensors", metadata={"format": "pt"})
    refuses(lacking, "2 tensors of .* missing or have another shape: model.layers.1.mlp.up_proj")
    strange = variant(tmp_path / "strange", dense_model, config={"model_type": "nobody_knows"})
    refuses(strange, "cannot be loaded")


def test_sequences_that_cannot_be_are_refused(dense_model: Path, tmp_path: Path) -> None:
    from contract import Processing, RefusalError, Response, Sampling

    small = engine(variant(tmp_path / "small", dense_model, config={"max_position_embeddings": 16}))
    for response, told in (
        (Response([5] * 10, [6] * 7, prompt=4), "to prompt 4 has 17 tokens, but the context"),
        (Response([5], [ROWS]), f"has the token id {ROWS}"),
        (Response([-1], [5]), "has the token id -1"),
        (Response([], [5]), "no prompt tokens"),
    ):
        with pytest.raises(RefusalError, match=told):
            small.score([response], Processing(), ())
    with pytest.raises(RefusalError, match="prompt 1 has 17 tokens"):
        small.sample([[5], [5] * 16], Sampling(), ())
    [cut] = small.sample([[5] * 12], Sampling(samples=1, max_tokens=9, ignore_end=True), ())
    assert len(cut.response_ids) == 4


def test_messages_without_a_template_and_text_without_a_tokenizer_are_refused(
    dense_model: Path, tmp_path: Path
) -> None:
    from contract import RefusalError

    bare = variant(tmp_path / "bare", dense_model, template="")
    (bare / "chat_template.jinja").unlink(missing_ok=True)
    with pytest.raises(RefusalError, match="no chat template"):
        engine(bare).tokenise([{"messages": messages(1)[0]}])
    for path in bare.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(RefusalError, match="no tokenizer"):
        engine(bare).tokenise([{"text": "1+1="}])


def test_logits_that_are_not_finite_are_refused_where_something_is_drawn(
    dense_model: Path,
) -> None:
    from contract import RefusalError, Sampling

    source = engine(dense_model)
    source._model.get_output_embeddings().weight.data[3] = float("inf")
    with pytest.raises(RefusalError, match="not finite"):
        source.sample([[5, 6]], Sampling(samples=1, max_tokens=2), ())
