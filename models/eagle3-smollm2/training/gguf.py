"""Reads a GGUF file: its metadata and its tensors, dequantised to float32 exactly as ggml does."""

import struct
from pathlib import Path

import numpy as np
import torch

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
F32, F16, Q4_0, Q4_1, Q8_0 = 0, 1, 2, 3, 8
BLOCK = 32  # values per quantised block


class _Cursor:
    def __init__(self, data):
        self.data, self.position = data, 0

    def scalar(self, code):
        value = struct.unpack_from("<" + code, self.data, self.position)[0]
        self.position += struct.calcsize("<" + code)
        return value

    def string(self):
        length = self.scalar("Q")
        text = bytes(self.data[self.position:self.position + length]).decode("utf-8", "replace")
        self.position += length
        return text

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            inner, count = self.scalar("I"), self.scalar("Q")
            return [self.value(inner) for _ in range(count)]
        return self.scalar(SCALARS[kind])


def _half(raw):
    return raw.copy().view(np.float16).astype(np.float32)


def _dequantise(raw, kind, count, name):
    """raw: bytes from the tensor's start on; returns `count` float32 values."""
    if kind == F32:
        return raw[:4 * count].view(np.float32).copy()
    if kind == F16:
        return raw[:2 * count].view(np.float16).astype(np.float32)
    if kind in (Q4_0, Q4_1):  # scale, (minimum,) 16 bytes of nibbles: the low ones come first
        head = 2 if kind == Q4_0 else 4
        block = raw[:count // BLOCK * (head + 16)].reshape(-1, head + 16)
        nibbles = np.concatenate([block[:, head:] & 15, block[:, head:] >> 4], 1).astype(np.float32)
        scale = _half(block[:, :2])
        return scale * (nibbles - 8) if kind == Q4_0 else scale * nibbles + _half(block[:, 2:4])
    if kind == Q8_0:
        block = raw[:count // BLOCK * (2 + BLOCK)].reshape(-1, 2 + BLOCK)
        return _half(block[:, :2]) * block[:, 2:].view(np.int8).astype(np.float32)
    raise ValueError(f"{name}: ggml type {kind} is not supported; use a file of F32, F16, Q4_0, Q4_1 or Q8_0 tensors")


def read(path, tensors=True):
    """Returns (metadata dict, {name: float32 tensor in row-major shape}); the second is empty if `tensors` is false."""
    data = np.memmap(Path(path), dtype=np.uint8, mode="r")
    if bytes(data[:4]) != b"GGUF":
        raise ValueError(f"{path}: not a GGUF file (it starts with {bytes(data[:4])!r})")
    cursor = _Cursor(data)
    cursor.position = 4
    cursor.scalar("I")  # version
    tensor_count, key_count = cursor.scalar("Q"), cursor.scalar("Q")
    metadata = {}
    for _ in range(key_count):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.scalar("I"))
    entries = []
    for _ in range(tensor_count if tensors else 0):
        name = cursor.string()
        shape = [cursor.scalar("Q") for _ in range(cursor.scalar("I"))][::-1]
        entries.append((name, shape, cursor.scalar("I"), cursor.scalar("Q")))
    alignment = metadata.get("general.alignment", 32)
    base = -(-cursor.position // alignment) * alignment
    result = {}
    for name, shape, kind, offset in entries:
        values = _dequantise(data[base + offset:], kind, int(np.prod(shape)), name)
        result[name] = torch.from_numpy(np.ascontiguousarray(values.reshape(shape)))
    return metadata, result
