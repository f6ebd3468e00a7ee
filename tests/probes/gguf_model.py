"""Writes a GGUF file of the dense test model; run by the Python that has the package `gguf`.

    python gguf_model.py WEIGHTS.npz FACTS.json MODEL.gguf

The weights are float32 arrays by their names in the checkpoint, the facts its configuration and
its tokenizer's words, with the word that begins a text if there is one.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import gguf
import numpy as np

_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")


def main() -> None:
    """Write the file."""
    weights, facts, path = sys.argv[1:]
    writer = gguf.GGUFWriter(path, "qwen2")
    told = json.loads(Path(facts).read_text(encoding="utf-8"))
    _describe(writer, told["config"])
    _spell(writer, told["words"], told["config"]["vocab_size"], told["template"])
    if "begin" in told:
        writer.add_bos_token_id(told["words"].index(told["begin"]))
    with np.load(weights) as arrays:
        for name in arrays.files:
            writer.add_tensor(_renamed(name), arrays[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: gguf.GGUFWriter, config: dict) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def _spell(writer: gguf.GGUFWriter, words: list[str], rows: int, template: str) -> None:
    padded = [*words, *(f"<unused{number}>" for number in range(rows - len(words)))]
    special = [word.startswith("<") and len(word) > 1 for word in padded]
    kinds = [gguf.TokenType.CONTROL if each else gguf.TokenType.NORMAL for each in special]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(["Ġ" if word == " " else word for word in padded])
    writer.add_token_types(kinds)
    writer.add_token_merges(["a b"])  # there must be one; no prompt has it
    writer.add_eos_token_id(words.index("<eos>"))
    writer.add_pad_token_id(words.index("<pad>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)


def _renamed(name: str) -> str:
    found = _LAYER.fullmatch(name)
    return f"blk.{found[1]}.{_NAMES[found[2]]}.{found[3]}" if found else _NAMES[name]


if __name__ == "__main__":
    main()
