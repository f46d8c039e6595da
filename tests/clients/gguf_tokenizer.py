"""Writes tokenizer.json and tokenizer_config.json of a SmolLM2 GGUF file, for clients that tokenise themselves.

usage: gguf_tokenizer.py MODEL.gguf FOLDER
"""

import json
import sys
from pathlib import Path

from gguf import GGUFReader, TokenType

PRE = "smollm"


def main(model, folder):
    fields = GGUFReader(model).fields

    def of(name):
        return fields[f"tokenizer.{name}"].contents()

    if of("ggml.pre") != PRE:
        sys.exit(f"{model} has the tokenizer {of('ggml.pre')!r}; only {PRE!r} is known here")
    tokens = of("ggml.tokens")
    special = [at for at, kind in enumerate(of("ggml.token_type")) if kind == TokenType.CONTROL]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": at, "content": tokens[at], **flags} for at in special],
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {token: at for at, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in of("ggml.merges")],
        },
    }
    config = {
        "tokenizer_class": "GPT2Tokenizer",
        "model_max_length": fields["llama.context_length"].contents(),
        "bos_token": tokens[of("ggml.bos_token_id")],
        "eos_token": tokens[of("ggml.eos_token_id")],
        "chat_template": of("chat_template"),
    }
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, content in ("tokenizer.json", tokenizer), ("tokenizer_config.json", config):
        (Path(folder) / name).write_text(json.dumps(content), encoding="utf-8")


main(*sys.argv[1:])
