#!/usr/bin/env python3
"""Compares our tokenizer with another implementation on some 600 texts. Exit 1 on any difference.

    compare_tokenizers.py hugging-face TOKENIZER_JSON [MODEL]    pip install tokenizers
    compare_tokenizers.py llama-cpp MODEL_GGUF NODE_MODULES      npm install node-llama-cpp

MODEL is what our tokenizer opens, by default the same file. Needs `cargo build -p engine --example tokenize`.
"""

import json
import random
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
OURS = HERE.parent.parent / "target/debug/examples/tokenize"

WRITTEN = [
    "", " ", "Hello world", "  two  spaces ", "\n\n\tTabs\r\nand\r\rreturns\n", "I'm you're he'll THEY'VE i'D 'ſ",
    "1234567890 12 3.14 1,000,000 ½ ² Ⅷ ٣", "naïve café Ünïcödé e\u0301", "日本語のテキスト、漢字とかな。", "中文测试,混合English和数字123",
    "Привет, мир! Как дела?", "مرحبا بالعالم", "हिन्दी में पाठ", "🙂🙃👩‍👩‍👧‍👦🏳️‍🌈 emoji", "\u00a0nbsp\u2003em\u200bzero\ufeff",
    "def f(x):\n    return x**2  # comment\n\n\nclass A:\n\tpass", "https://example.com/a?b=c&d=%20#frag",
    "$100 €5 £3 ^~` <html><b>x</b></html> |pipe|", "a" * 300, "<|im_start|>user\nHi<|im_end|>\n", "<s>[INST] hi [/INST]</s>",
    "<0x0A> \x00\x01\x7f", "x=1;\n\n\n   \n  end   ", "....!!!???---___ camelCase snake_case",
]
BLOCKS = [(0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x4FF), (0x4E00, 0x4FFF), (0x3040, 0x30FF), (0x1F300, 0x1F6FF), (0x600, 0x6FF)]


def texts():
    generator = random.Random(5)
    few = list("abc XYZ019.,'\n\t -éß中日🙂а")
    dense = ["".join(generator.choices(few, k=generator.randint(1, 60))) for _ in range(300)]

    def character():
        return " " if generator.random() < 0.3 else chr(generator.randint(*generator.choice(BLOCKS)))

    wide = ["".join(character() for _ in range(generator.randint(1, 40))) for _ in range(300)]
    return WRITTEN + dense + wide


def ours(model, given):
    run = subprocess.run([OURS, model], input=json.dumps(given), capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def hugging_face(path, given):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(path)
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in given]
    return [{"ids": each, "text": tokenizer.decode(each, skip_special_tokens=False)} for each in ids]


def llama_cpp(model, node_modules, given):
    command = ["node", HERE / "llama_cpp_tokenize.mjs", Path(node_modules) / "node-llama-cpp/dist/index.js", model]
    run = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=True)
    return [{"ids": ids} for ids in json.loads(run.stdout)]


def main(kind, first, second=None):
    given = texts()
    theirs = hugging_face(first, given) if kind == "hugging-face" else llama_cpp(first, second, given)
    own = ours((second or first) if kind == "hugging-face" else first, given)
    wrong = [index for index, other in enumerate(theirs) if any(own[index][key] != other[key] for key in other)]
    for index in wrong[:5]:
        print(repr(given[index]), "theirs", theirs[index], "ours", own[index])
    print(f"{len(given) - len(wrong)} of {len(given)} texts equal")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
