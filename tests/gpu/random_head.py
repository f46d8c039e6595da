"""Writes an EAGLE-3 head of random bf16 weights for a Llama configuration: python3 random_head.py CONFIG FOLDER [TOKENS]

One layer of the target's own sizes and TOKENS draft tokens (32000), spread over the vocabulary. Needs torch and
safetensors. What it drafts is never right: it is for what drafting costs.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file


def main():
    config, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    tokens = min(int(sys.argv[3]) if len(sys.argv) > 3 else 32000, config["vocab_size"])
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    width = config.get("head_dim", hidden // heads)
    cached = config["num_key_value_heads"] * width
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def matrix(*shape):
        return (torch.randn(shape, device=device) * 0.02).to(torch.bfloat16).cpu()

    one = torch.ones(hidden, dtype=torch.bfloat16)
    # Offsets: target id less draft id.
    step = config["vocab_size"] // tokens
    tensors = {
        "fc.weight": matrix(hidden, 3 * hidden),
        "midlayer.input_layernorm.weight": one.clone(),
        "midlayer.hidden_norm.weight": one.clone(),
        "midlayer.post_attention_layernorm.weight": one.clone(),
        "midlayer.self_attn.q_proj.weight": matrix(heads * width, 2 * hidden),
        "midlayer.self_attn.k_proj.weight": matrix(cached, 2 * hidden),
        "midlayer.self_attn.v_proj.weight": matrix(cached, 2 * hidden),
        "midlayer.self_attn.o_proj.weight": matrix(hidden, heads * width),
        "midlayer.mlp.gate_proj.weight": matrix(inner, hidden),
        "midlayer.mlp.up_proj.weight": matrix(inner, hidden),
        "midlayer.mlp.down_proj.weight": matrix(hidden, inner),
        "norm.weight": one.clone(),
        "lm_head.weight": matrix(tokens, hidden),
        "d2t": torch.arange(tokens, dtype=torch.int64) * (step - 1),
    }
    kept = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps")
    kept += ("rope_theta", "rope_scaling", "max_position_embeddings", "vocab_size", "hidden_act")
    own = {key: config[key] for key in kept if key in config}
    own |= {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1}
    own |= {"draft_vocab_size": tokens, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(own))


main()
