"""The target's tokenizer and chat template, built from its GGUF metadata."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

import gguf

END_OF_TEXT, TURN_START, TURN_END = 0, 1, 2  # <|endoftext|>, <|im_start|>, <|im_end|>
STOPS = (TURN_END, END_OF_TEXT)
DEFAULT_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
CONTROL = 3  # token_type of control tokens


class Chat:
    """Token ids of chat prompts: `header` + user text + `tail`, with or without the default system turn."""

    def __init__(self, path):
        metadata, _ = gguf.read(path, tensors=False)
        tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
        merges = [tuple(pair.split(" ")) for pair in metadata["tokenizer.ggml.merges"]]
        self.tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
        self.tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
        self.tokenizer.decoder = decoders.ByteLevel()
        self.tokenizer.add_special_tokens([AddedToken(t, special=True) for t, k in zip(tokens, kinds) if k == CONTROL])
        self.plain_header = self.encode("<|im_start|>user\n")
        self.header = self.encode(f"<|im_start|>system\n{DEFAULT_SYSTEM}<|im_end|>\n") + self.plain_header
        self.tail = self.encode("<|im_end|>\n<|im_start|>assistant\n")

    def encode(self, text):
        return self.tokenizer.encode(text).ids

    def encode_all(self, texts):
        return [e.ids for e in self.tokenizer.encode_batch(texts)]

    def decode_all(self, rows):
        return self.tokenizer.decode_batch(rows, skip_special_tokens=False)
