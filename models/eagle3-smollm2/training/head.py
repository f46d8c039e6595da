"""The EAGLE-3 head: one Llama layer whose q, k and v read [norm(embedding), norm(hidden)]; official tensor names.

Alignment: draft row t sees the target's features of position t and the embedding of token t+1, and predicts token t+2. Its RoPE
position is t; a drafted row k steps further has position t+k.
"""

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from target import rotate

DTYPE = torch.bfloat16  # of saved weights


class Norm(nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(width)), epsilon

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.epsilon)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        hidden, width, kv_width = c["hidden_size"], c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
        self.q_proj = nn.Linear(2 * hidden, width, bias=False)
        self.k_proj = nn.Linear(2 * hidden, kv_width, bias=False)
        self.v_proj = nn.Linear(2 * hidden, kv_width, bias=False)
        self.o_proj = nn.Linear(width, hidden, bias=False)


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.up_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.down_proj = nn.Linear(c["intermediate_size"], c["hidden_size"], bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.head_dim = c["head_dim"]
        self.self_attn, self.mlp = Attention(c), Mlp(c)
        self.input_layernorm, self.hidden_norm, self.post_attention_layernorm = (Norm(c["hidden_size"], c["rms_norm_eps"]) for _ in range(3))

    def project(self, hidden, embedding, cos, sin):
        """hidden and embedding [N, h] -> rotated q [N, heads, hd], rotated k and v [N, kv_heads, hd]."""
        joint = torch.cat([self.input_layernorm(embedding), self.hidden_norm(hidden)], -1)
        q, k, v = (w(joint).view(len(joint), -1, self.head_dim) for w in (self.self_attn.q_proj, self.self_attn.k_proj, self.self_attn.v_proj))
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def finish(self, hidden, mixed):
        residual = hidden + self.self_attn.o_proj(mixed)
        return residual + self.mlp(self.post_attention_layernorm(residual))


class Head(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, hidden = config, config["hidden_size"]
        self.fc = nn.Linear(3 * hidden, hidden, bias=False)
        self.midlayer = Layer(config)
        self.norm = Norm(hidden, config["rms_norm_eps"])
        self.lm_head = nn.Linear(hidden, config["draft_vocab_size"], bias=False)
        self.register_buffer("d2t", torch.zeros(config["draft_vocab_size"], dtype=torch.int64))
        self.register_buffer("t2d", torch.zeros(config["vocab_size"], dtype=torch.bool))

    @property
    def vocabulary(self):
        """Ascending target ids of the draft vocabulary, [draft_vocab_size]."""
        return self.d2t + torch.arange(len(self.d2t), device=self.d2t.device)

    def set_vocabulary(self, ids):
        self.d2t.copy_(ids - torch.arange(len(ids), device=ids.device))
        self.t2d.zero_()
        self.t2d[ids] = True

    def compile(self):
        self.midlayer.project = torch.compile(self.midlayer.project, dynamic=True)
        self.midlayer.finish = torch.compile(self.midlayer.finish, dynamic=True)

    def step(self, hidden, embedding, cos, sin, attention):
        """One pass. hidden [B, T, h]: fc of the features, or the previous pass's own result; embedding [B, T, h]; cos and sin
        [B * T, hd / 2]; attention(q, k, v) -> [B, T, heads, hd]. Returns the un-normed output [B, T, h]."""
        shape, flat = hidden.shape, hidden.reshape(-1, hidden.shape[-1])
        q, k, v = self.midlayer.project(flat, embedding.reshape(flat.shape).to(flat.dtype), cos, sin)
        mixed = attention(*(x.view(*shape[:2], *x.shape[1:]) for x in (q, k, v.to(k.dtype))))
        return self.midlayer.finish(flat, mixed.reshape(len(flat), -1)).view(shape)

    def draft(self, hidden):
        """Target ids of the likeliest next tokens after un-normed outputs [..., h]."""
        return self.vocabulary[self.lm_head(self.norm(hidden)).argmax(-1)]


def configuration(target, draft_vocabulary, intermediate):
    return dict(architectures=["LlamaForCausalLMEagle3"], model_type="llama", hidden_act="silu", hidden_size=target.hidden,
                intermediate_size=intermediate, num_attention_heads=target.heads, num_key_value_heads=target.kv_heads,
                head_dim=target.head_dim, num_hidden_layers=1, rms_norm_eps=1e-5, rope_theta=target.theta, max_position_embeddings=8192,
                vocab_size=target.vocabulary, draft_vocab_size=draft_vocabulary, tie_word_embeddings=False, attention_bias=False,
                bos_token_id=1, eos_token_id=2, torch_dtype="bfloat16",
                eagle_config=dict(use_aux_hidden_state=True, eagle_aux_hidden_state_layer_ids=[b - 1 for b in target.taps]))


@torch.no_grad()
def fresh(target, ids, intermediate):
    """A new head: output rows and final norm are the target's, fc passes the highest tap, the rest is small and random."""
    head = Head(configuration(target, len(ids), intermediate)).to(target.device)
    head.set_vocabulary(ids)
    for parameter in head.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.02)
    head.fc.weight.mul_(0.25)
    head.fc.weight[:, 2 * target.hidden:] += torch.eye(target.hidden, device=target.device)
    head.midlayer.self_attn.o_proj.weight.mul_(0.5)
    head.midlayer.mlp.down_proj.weight.mul_(0.5)
    head.lm_head.weight.copy_(target.unembedding[ids])
    head.norm.weight.copy_(target.norm)
    return head


def save(head, folder, state=None):
    """config.json and model.safetensors; `state` replaces parameters by name (an average, say)."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {**head.state_dict(), **(state or {})}
    tensors = {k: (v.detach().to(DTYPE) if v.is_floating_point() else v).contiguous().cpu() for k, v in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(head.config, indent=1) + "\n")


def load(folder, dtype, device):
    """Reads one file or shards; every tensor of the layout must be there."""
    folder, tensors = Path(folder), {}
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{folder}: no *.safetensors file of a head")
    for file in files:
        tensors.update(load_file(file))
    head = Head(json.loads((folder / "config.json").read_text()))
    head.load_state_dict(tensors)
    return head.to(device=device, dtype=dtype)
