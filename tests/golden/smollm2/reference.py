"""Logits of a Llama model in a GGUF file: weights dequantised by the gguf package, everything else in float64.

usage: reference.py MODEL.gguf LLAMA_CPP.json TO.safetensors

For each of the first prompts, over the prompt and its greedy tokens: `p{i}.ids` [positions, 24] are the 8 most likely
tokens and 16 arbitrary ones, `p{i}.logits` their logits, and `p{i}.normaliser` [positions] is log(sum(exp(logits)))
over the whole vocabulary.
"""

import json
import sys

import numpy as np
from gguf import GGUFReader, dequantize
from safetensors.numpy import save_file

PROMPTS = 4
BEST, ARBITRARY = 8, 16


class Model:
    def __init__(self, path):
        reader = GGUFReader(path)
        self.fields = reader.fields
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.layers, self.heads = self.number("block_count"), self.number("attention.head_count")
        self.shared_heads = self.number("attention.head_count_kv")
        self.epsilon, self.base = self.number("attention.layer_norm_rms_epsilon"), self.number("rope.freq_base")

    def number(self, name):
        return self.fields[f"llama.{name}"].contents()

    def weight(self, name):
        """[outputs, inputs] or [size]."""
        tensor = self.tensors[f"{name}.weight"]
        return dequantize(tensor.data, tensor.tensor_type).astype(np.float64)

    def norm(self, values, name):
        scale = np.sqrt(np.mean(values**2, -1, keepdims=True) + self.epsilon)
        return values / scale * self.weight(name)

    def rotate(self, values):
        """Rotary positions over neighbouring pairs, as llama.cpp's GGUF files of Llama models have them."""
        rows, _, size = values.shape
        angles = np.arange(rows)[:, None] * self.base ** (-np.arange(0, size, 2) / size)
        cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]
        even, odd = values[..., ::2], values[..., 1::2]
        return np.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1).reshape(values.shape)

    def attention(self, values, name):
        rows = len(values)
        query, key, value = (values @ self.weight(f"{name}.attn_{part}").T for part in "qkv")
        query = self.rotate(query.reshape(rows, self.heads, -1))
        key = self.rotate(key.reshape(rows, self.shared_heads, -1)).repeat(self.heads // self.shared_heads, 1)
        value = value.reshape(rows, self.shared_heads, -1).repeat(self.heads // self.shared_heads, 1)
        scores = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(query.shape[-1])
        scores = np.where(np.tri(rows, dtype=bool), scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = np.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), value)
        return mixed.reshape(rows, -1) @ self.weight(f"{name}.attn_output").T

    def logits(self, tokens):
        values = self.weight("token_embd")[tokens]
        for layer in range(self.layers):
            name = f"blk.{layer}"
            values = values + self.attention(self.norm(values, f"{name}.attn_norm"), name)
            inner = self.norm(values, f"{name}.ffn_norm")
            gate, up = inner @ self.weight(f"{name}.ffn_gate").T, inner @ self.weight(f"{name}.ffn_up").T
            values = values + (gate / (1 + np.exp(-gate)) * up) @ self.weight(f"{name}.ffn_down").T
        head = "output" if "output.weight" in self.tensors else "token_embd"
        return self.norm(values, "output_norm") @ self.weight(head).T


def main(model, vectors, to):
    model, result, random = Model(model), {}, np.random.default_rng(1)
    with open(vectors, encoding="utf-8") as file:
        prompts = json.load(file)["prompts"][:PROMPTS]
    for index, prompt in enumerate(prompts):
        logits = model.logits(prompt["tokens"] + prompt["greedy"])
        best = np.argsort(-logits, -1)[:, :BEST]
        ids = np.concatenate([best, random.integers(0, logits.shape[1], (len(logits), ARBITRARY))], 1)
        highest = logits.max(-1, keepdims=True)
        result[f"p{index}.ids"] = ids.astype(np.int32)
        result[f"p{index}.logits"] = np.take_along_axis(logits, ids, 1).astype(np.float32)
        result[f"p{index}.normaliser"] = (highest[:, 0] + np.log(np.exp(logits - highest).sum(-1))).astype(np.float32)
        print(f"prompt {index}: {len(logits)} positions", file=sys.stderr)
    save_file(result, to)


main(*sys.argv[1:])
