"""The target: a Llama-type decoder read from a GGUF file; inference only."""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import gguf


def rope_table(length, head_dim, theta, device):
    """(cos, sin), float32 [length, head_dim / 2]."""
    inverse = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim)
    angle = torch.arange(length, dtype=torch.float32, device=device)[:, None] * inverse
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    """Half-split rotation of x [N, heads, head_dim] by cos, sin [N, head_dim / 2]; the arithmetic is float32."""
    a, b = x.float().chunk(2, -1)
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


def attend(q, k, v, mask=None):
    """q [B, T, heads, hd], k and v [B, S, kv_heads, hd] -> [B, T, heads, hd]. Causal without a mask (then S = T)."""
    repeat = q.shape[2] // k.shape[2]
    q = q.transpose(1, 2)
    k, v = (x.transpose(1, 2).repeat_interleave(repeat, 1) for x in (k, v))
    # float32 is used where exactness is what is being measured: plain arithmetic there
    backends = [SDPBackend.MATH] if q.dtype == torch.float32 else [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    with sdpa_kernel(backends):
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
    return out.transpose(1, 2)


def project(x, norm, qkv, cos, sin, heads, kv_heads, head_dim, epsilon):
    """x [N, h] -> rotated q [N, heads, hd], rotated k and v [N, kv_heads, hd]."""
    joint = F.linear(F.rms_norm(x, norm.shape, norm, epsilon), qkv)
    q, k, v = joint.view(x.shape[0], -1, head_dim).split([heads, kv_heads, kv_heads], 1)
    return rotate(q, cos, sin), rotate(k, cos, sin), v


def finish(x, mixed, out, norm, gate_up, down, epsilon):
    """Residual after attention, then the gated MLP: x [N, h], mixed [N, heads * hd] -> [N, h]."""
    x = x + F.linear(mixed, out)
    gate, up = F.linear(F.rms_norm(x, norm.shape, norm, epsilon), gate_up).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, down)


class Target:
    """Weights in `dtype` on `device`. `taps` are the boundaries whose residual stream the head reads."""

    def __init__(self, path, dtype, device, compiled=False):
        metadata, tensors = gguf.read(path)
        self.depth, self.hidden = metadata["llama.block_count"], metadata["llama.embedding_length"]
        self.heads, self.kv_heads = metadata["llama.attention.head_count"], metadata["llama.attention.head_count_kv"]
        self.head_dim, self.intermediate = self.hidden // self.heads, metadata["llama.feed_forward_length"]
        self.epsilon, self.theta = metadata["llama.attention.layer_norm_rms_epsilon"], metadata["llama.rope.freq_base"]
        self.dtype, self.device = dtype, device
        self.taps = (2, self.depth // 2, self.depth - 3)
        put = lambda tensor: tensor.to(device=device, dtype=dtype)
        self.embedding = put(tensors["token_embd.weight"])
        self.unembedding = put(tensors["output.weight"]) if "output.weight" in tensors else self.embedding
        self.norm, self.vocabulary = put(tensors["output_norm.weight"]), self.embedding.shape[0]
        self.layers = [self._layer(tensors, i, put) for i in range(self.depth)]
        self.rope = rope_table(4096, self.head_dim, self.theta, device)
        self.project, self.finish = (torch.compile(f, dynamic=True) if compiled else f for f in (project, finish))

    def _layer(self, tensors, i, put):
        get = lambda name: tensors[f"blk.{i}.{name}.weight"]

        def neox(weight, heads):  # GGUF stores rows of q and k for interleaved rotation
            return weight.reshape(heads, self.head_dim // 2, 2, -1).transpose(1, 2).reshape(heads * self.head_dim, -1)

        qkv = torch.cat([neox(get("attn_q"), self.heads), neox(get("attn_k"), self.kv_heads), get("attn_v")])
        return dict(input_norm=put(get("attn_norm")), qkv=put(qkv), out=put(get("attn_output")),
                    mlp_norm=put(get("ffn_norm")), gate_up=put(torch.cat([get("ffn_gate"), get("ffn_up")])), down=put(get("ffn_down")))

    @torch.no_grad()
    def run(self, ids, positions, attention):
        """ids and positions [B, T]; attention(layer, q, k, v) -> [B, T, heads, hd].
        Returns taps [B, T, 3h] and the final normed hidden [B, T, h]."""
        shape, flat = ids.shape, positions.expand(ids.shape).reshape(-1)
        x, cos, sin = self.embedding[ids.reshape(-1)], self.rope[0][flat], self.rope[1][flat]
        taps = []
        for i, w in enumerate(self.layers):
            if i in self.taps:
                taps.append(x)
            q, k, v = self.project(x, w["input_norm"], w["qkv"], cos, sin, self.heads, self.kv_heads, self.head_dim, self.epsilon)
            mixed = attention(i, *(y.view(*shape, *y.shape[1:]) for y in (q, k, v)))
            x = self.finish(x, mixed.reshape(len(x), -1), w["out"], w["mlp_norm"], w["gate_up"], w["down"], self.epsilon)
        final = F.rms_norm(x, self.norm.shape, self.norm, self.epsilon)
        return torch.cat(taps, -1).view(*shape, -1), final.view(*shape, -1)

    def prefill(self, ids):
        """Whole right-padded sequences, causal, without a cache."""
        positions = torch.arange(ids.shape[1], device=ids.device)
        return self.run(ids, positions[None], lambda _, q, k, v: attend(q, k, v))
