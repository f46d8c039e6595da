#!/usr/bin/env python3
"""Writes the fixtures beside this file with the `gguf` package, an implementation that is not ours.

    pip install gguf numpy && python make_fixtures.py

`dequantise.json`: per type two blocks of random bytes (hex) and the f32 values (hex of little-endian bytes).
`tiny-llama.gguf`: a two-layer Llama whose query and key rows went through the converter's permutation.
"""

import json
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.quants import dequantize, quantize

HERE = Path(__file__).parent
HIDDEN, HEADS, KEY_HEADS, FEED_FORWARD, LAYERS = 32, 4, 2, 256, 2
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "Ġ Ġ"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def random_blocks(kind, blocks, generator, spread=0.02):
    """Random bytes whose f16 scales are finite and of ordinary size."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    data = generator.integers(0, 256, (blocks, size), dtype=np.uint8)
    scales = {T.Q8_0: [0], T.Q4_0: [0], T.Q5_0: [0], T.Q4_1: [0, 2], T.Q5_1: [0, 2], T.Q4_K: [0, 2], T.Q5_K: [0, 2],
              T.Q6_K: [208]}
    for at in scales.get(kind, []):
        values = generator.normal(0, spread, blocks).astype(np.float16)
        data[:, at : at + 2] = values.view(np.uint8).reshape(blocks, 2)
    return data


def dequantise_vectors(generator):
    vectors = {}
    for kind in [T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q4_K, T.Q5_K, T.Q6_K]:
        data = random_blocks(kind, 2, generator)
        values = dequantize(data.reshape(1, -1), kind).astype("<f4")
        vectors[kind.name] = {"bytes": data.tobytes().hex(), "values": values.tobytes().hex()}
    values = np.array([0.0, -1.5, 3.140625, 65504.0, 6e-8, -0.007], dtype=np.float16)
    vectors["F16"] = {"bytes": values.tobytes().hex(), "values": values.astype("<f4").tobytes().hex()}
    values = quantize(generator.normal(0, 1, (1, 6)).astype(np.float32), T.BF16)
    vectors["BF16"] = {"bytes": values.tobytes().hex(), "values": dequantize(values, T.BF16).astype("<f4").tobytes().hex()}
    (HERE / "dequantise.json").write_text(json.dumps(vectors, indent=1) + "\n")


def byte_alphabet():
    """GPT-2's printable stand-ins for the 256 bytes."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    stand_in = {byte: chr(byte) for byte in keep}
    for byte in range(256):
        stand_in.setdefault(byte, chr(256 + sum(1 for other in stand_in if ord(stand_in[other]) >= 256)))
    return [stand_in[byte] for byte in range(256)]


def permute(weights, heads):
    """As llama.cpp's `convert_hf_to_gguf.py` does it."""
    return weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:]).swapaxes(1, 2).reshape(weights.shape)


def add_tokenizer(writer):
    tokens = SPECIAL + byte_alphabet() + [merge.replace(" ", "") for merge in MERGES]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] * len(SPECIAL) + [gguf.TokenType.NORMAL] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}"
                             "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
    return len(tokens)


def tiny_llama(generator):
    writer = gguf.GGUFWriter(HERE / "tiny-llama.gguf", "llama")
    vocabulary = add_tokenizer(writer)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_rope_freq_base(100000.0)
    writer.add_layer_norm_rms_eps(1e-5)

    def add(name, values, kind):
        if kind in (T.F32, T.F16):
            writer.add_tensor(name, values.astype(np.float32 if kind == T.F32 else np.float16))
        else:
            writer.add_tensor(name, quantize(values.astype(np.float32), kind), raw_dtype=kind)

    def noise(rows, columns):
        return generator.normal(0, 0.1, (rows, columns))

    add("token_embd.weight", noise(vocabulary, HIDDEN), T.Q8_0)
    add("output_norm.weight", np.ones(HIDDEN), T.F32)
    for layer, (attention, feed_forward) in enumerate([(T.F32, T.Q4_0), (T.Q8_0, T.Q4_1)]):
        block = f"blk.{layer}."
        # Row r holds r everywhere, so the order of rows can be read from the values.
        query = np.repeat(np.arange(HIDDEN, dtype=np.float32)[:, None], HIDDEN, axis=1)
        key = query[: HIDDEN * KEY_HEADS // HEADS]
        add(block + "attn_norm.weight", np.ones(HIDDEN), T.F32)
        add(block + "attn_q.weight", permute(query, HEADS), attention)
        add(block + "attn_k.weight", permute(key, KEY_HEADS), attention)
        add(block + "attn_v.weight", noise(len(key), HIDDEN), T.F16)
        add(block + "attn_output.weight", noise(HIDDEN, HIDDEN), T.Q5_0)
        add(block + "ffn_norm.weight", np.ones(HIDDEN), T.F32)
        add(block + "ffn_gate.weight", noise(FEED_FORWARD, HIDDEN), feed_forward)
        add(block + "ffn_up.weight", noise(FEED_FORWARD, HIDDEN), feed_forward)
        down = T.Q4_K if layer == 0 else T.Q6_K
        writer.add_tensor(block + "ffn_down.weight", random_blocks(down, HIDDEN, generator, 1e-4), raw_dtype=down)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    dequantise_vectors(np.random.default_rng(1))
    tiny_llama(np.random.default_rng(2))
