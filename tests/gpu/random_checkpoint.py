"""Writes a checkpoint of random bf16 weights for a Llama configuration: python3 random_checkpoint.py CONFIG FOLDER

Needs torch and safetensors. Shards of about 4 GB, named as Hugging Face names them; a tokenizer of as many words as the
model has tokens, so that every token streams as text.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

SHARD_BYTES = 4 << 30


def shapes(config):
    """Names and shapes of a Llama checkpoint's tensors."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    width = config.get("head_dim", hidden // heads)
    cached = config["num_key_value_heads"] * width
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", (hidden,)
        yield at + "self_attn.q_proj.weight", (heads * width, hidden)
        yield at + "self_attn.k_proj.weight", (cached, hidden)
        yield at + "self_attn.v_proj.weight", (cached, hidden)
        yield at + "self_attn.o_proj.weight", (hidden, heads * width)
        yield at + "post_attention_layernorm.weight", (hidden,)
        yield at + "mlp.gate_proj.weight", (inner, hidden)
        yield at + "mlp.up_proj.weight", (inner, hidden)
        yield at + "mlp.down_proj.weight", (hidden, inner)
    yield "model.norm.weight", (hidden,)
    if not config.get("tie_word_embeddings"):
        yield "lm_head.weight", (config["vocab_size"], hidden)


def tokenizer(size):
    """Token `n` is the word `wn`."""
    words = {f"w{token}": token for token in range(size)}
    model = {"type": "WordLevel", "vocab": words, "unk_token": "w0"}
    decoder = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    other = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor"))
    parts = {"pre_tokenizer": {"type": "Whitespace"}, "decoder": decoder, "model": model}
    return {"version": "1.0", "added_tokens": [], **parts, **other}


def main():
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    config = json.loads(source.read_text())
    device = "cuda" if torch.cuda.is_available() else "cpu"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, folder / "config.json")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(config["vocab_size"])))
    shards, names, size = [{}], {}, 0
    for name, shape in shapes(config):
        tensor = torch.ones(shape) if len(shape) == 1 else torch.randn(shape, device=device) * 0.02
        tensor = tensor.to(torch.bfloat16).cpu()
        if size + tensor.nbytes > SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        names[name] = len(shards)
        size += tensor.nbytes
    total = len(shards)
    file = "model-{:05d}-of-{:05d}.safetensors".format
    for number, shard in enumerate(shards, 1):
        save_file(shard, folder / file(number, total))
    index = {"metadata": {}, "weight_map": {name: file(number, total) for name, number in names.items()}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


main()
