"""Tests on a small random target, on any machine: python -m pytest"""

import json
from argparse import Namespace

import numpy as np
import pytest
import torch

import chains
import gguf
import head as heads
import kernels
import prompts
import shrink
from data import Sequences
from objective import Objective, Teacher
from sampler import Job, Sampler
from speculation import Decoding
from target import Target, rope_table
from trainer import Trainer
from tree import Shape
from unroll import unroll

DEPTH, HIDDEN, HEADS, KV_HEADS, INTERMEDIATE, VOCABULARY = 8, 48, 6, 2, 64, 96


@pytest.fixture(autouse=True)
def small_gguf(monkeypatch):
    """A random Llama-type target in place of a file."""
    g = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(*shape, generator=g) * 0.3
    width = HIDDEN // HEADS
    shapes = dict(attn_q=(HIDDEN, HIDDEN), attn_k=(KV_HEADS * width, HIDDEN), attn_v=(KV_HEADS * width, HIDDEN), attn_output=(HIDDEN, HIDDEN),
                  ffn_gate=(INTERMEDIATE, HIDDEN), ffn_up=(INTERMEDIATE, HIDDEN), ffn_down=(HIDDEN, INTERMEDIATE))
    tensors = {"token_embd.weight": draw(VOCABULARY, HIDDEN), "output_norm.weight": torch.ones(HIDDEN)}
    for i in range(DEPTH):
        tensors |= {f"blk.{i}.{name}.weight": draw(*shape) for name, shape in shapes.items()}
        tensors |= {f"blk.{i}.{name}.weight": torch.ones(HIDDEN) for name in ("attn_norm", "ffn_norm")}
    metadata = {f"llama.{key}": value for key, value in {
        "block_count": DEPTH, "embedding_length": HIDDEN, "feed_forward_length": INTERMEDIATE, "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS, "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 10000.0}.items()}
    monkeypatch.setattr(gguf, "read", lambda path, **_: (metadata, tensors))


@pytest.fixture
def target():
    return Target("small", torch.float32, "cpu")


@pytest.fixture
def head(target):
    torch.manual_seed(2)
    return heads.fresh(target, torch.arange(0, VOCABULARY, 2), 32)


def random_prompts(count):
    rng = np.random.default_rng(3)
    return [rng.integers(3, VOCABULARY, rng.integers(4, 12)).tolist() for _ in range(count)]


def write_data(folder, target, count=12):
    """Greedy answers as generate.py leaves them."""
    tokens, prompt, end = np.zeros((count, 64), np.uint16), np.zeros(count, int), np.zeros(count, int)
    for i, (p, a) in enumerate(zip(random_prompts(count), Decoding(target, None, random_prompts(count), 20, None).run().answers)):
        tokens[i, :len(p) + len(a)], prompt[i], end[i] = p + a, len(p), len(p) + len(a)
    np.savez(folder / "data.npz", tokens=tokens, prompt_length=prompt, end=end, temperature=np.zeros(count))


@pytest.mark.parametrize("shape", [Shape.chain(1), Shape.chain(4), Shape(3, 3, 9), Shape(4, 4, 16)])
def test_speculation_is_lossless(target, head, shape):
    """Also that chains measured at all positions at once are those of the real loop."""
    asked = random_prompts(6)
    plain = Decoding(target, None, asked, 24, None).run()
    spoken = Decoding(target, head, asked, 24, shape).run()
    assert spoken.answers == plain.answers
    assert sum(map(len, spoken.accepted)) <= sum(map(len, plain.accepted))
    if shape.topk == 1:
        rows = [p + a for p, a in zip(asked, plain.answers)]
        tokens = torch.tensor([row + [0] * (40 - len(row)) for row in rows])
        rope = rope_table(64, head.config["head_dim"], head.config["rope_theta"], "cpu")
        found = chains.matches(target, head, rope, tokens, [len(p) for p in asked], [len(r) for r in rows], shape.depth)
        walked = [chains.walk(match, shape.depth) for match in found]
        # a last verify may run past the answer's end, where the measured chain is cut
        assert [a[:-1] for a in walked] == [a[:len(w) - 1] for a, w in zip(spoken.accepted, walked)]


def test_sampler_refills_rows_and_is_greedy_at_zero(target):
    asked = random_prompts(7)
    plain = Decoding(target, None, asked, 12, None).run()
    found = {}
    for done in Sampler(target, 3, 64).run([Job(p, 0.0, 12) for p in asked], 1000):
        for row, n, end in zip(done.tokens, done.prompt_length, done.end):
            found[tuple(row[:n].tolist())] = row[n:end].tolist()
    assert [found[tuple(p)] for p in asked] == plain.answers


def test_objective_equals_its_definition(target, head, tmp_path):
    write_data(tmp_path, target)
    data, steps = Sequences(tmp_path / "data.npz", "cpu", 2), 3
    index = data.train[:4]
    length = data.padded(index)
    batch = data.batch(index, length, steps)
    features, final = target.prefill(batch.tokens[:, :length])
    teacher = Teacher(target, head, 0.5).read(final[batch.sequence, batch.place + 1])
    rope = rope_table(128, head.config["head_dim"], head.config["rope_theta"], "cpu")
    outputs = lambda: unroll(head, target.embedding, features, rope, steps, lambda k, _: batch.tokens[:, 1 + k:1 + k + length])
    loss, _, _ = Objective(teacher)(head, outputs(), batch)
    loss.backward()
    got = {name: p.grad.clone() for name, p in head.named_parameters()}
    head.zero_grad()
    total, hit, count = 0.0, {}, len(batch.left)
    for k, output in enumerate(outputs()):
        for i in range(count):
            if batch.left[i] <= k:
                continue
            row, t = batch.sequence[i], batch.place[i]
            log_q = head.lm_head(head.norm(output[row, t])).log_softmax(-1)
            label = (final[row, t + 1 + k] @ target.unembedding.T)[head.vocabulary] / 0.5
            hit[k, i] = bool(head.vocabulary[log_q.argmax()] == batch.tokens[row, t + 2 + k])
            weight = 1.0 if all(hit[j, i] for j in range(k)) else 0.25
            weight *= 0.5 if batch.within[i] > 0 and hit[0, i - 1] else 1.0
            total = total - weight * (label.softmax(-1) * log_q).sum() / count
    total.backward()
    assert torch.allclose(loss, total, rtol=1e-4)
    for name, p in head.named_parameters():
        assert torch.allclose(got[name], p.grad, rtol=1e-3, atol=1e-5), name


def test_training_resumes_and_learns(target, tmp_path):
    write_data(tmp_path, target)
    args = Namespace(target="small", work=tmp_path, out=tmp_path / "out", init="", init_heat=1.0, draft_vocabulary=48, intermediate=32,
                     total_minutes=1, run_minutes=9, steps=30, heat=0.5, unroll=3, batch_tokens=256, optimizer="muon", matrix_rate=4e-3,
                     rate=3e-3, output_rate=0.3, warmup=2, held=2, measure_every=0, log_every=1, seed=3, compile=False)
    first = Trainer(args)
    args.run_minutes = 0.003  # stops after a few steps
    first.train()
    first.save()
    assert 0 < first.step < 30
    args.run_minutes = 9
    second = Trainer(args)
    second.resume()
    assert second.step == first.step
    assert all(torch.equal(a, b) for a, b in zip(first.head.parameters(), second.head.parameters()))
    second.train()
    assert second.step == 30
    losses = [entry["cross_entropy"][0] for entry in second.curve if "cross_entropy" in entry]
    assert losses[-1] < 0.8 * losses[0]


def test_shrinking_keeps_the_chosen_rows(head, tmp_path):
    ids = head.vocabulary[torch.tensor([0, 3, 4, 40])]
    small = shrink.narrowed(head, ids)
    heads.save(small, tmp_path)
    loaded = heads.load(tmp_path, torch.float32, "cpu")
    assert torch.equal(loaded.vocabulary, ids) and loaded.t2d.nonzero()[:, 0].tolist() == ids.tolist()
    assert torch.equal(loaded.lm_head.weight, head.lm_head.weight[[0, 3, 4, 40]].bfloat16().float())


def test_guard_refuses_copies_and_near_copies(tmp_path):
    (tmp_path / "held.json").write_text(json.dumps([{"text": "List the steps to make a paper plane."}]))
    guard = prompts.Guard([tmp_path / "held.json"])
    assert not guard.admits("Please: list the steps to make a paper plane!")
    assert not guard.admits("List the steps to make a paper boat.")
    assert guard.admits("List five boats.")


def test_templates_have_their_slots():
    for text in prompts.expand(50, np.random.default_rng(0)):
        assert "{" not in text and "}" not in text


def test_kernels_agree_with_their_definitions():
    kernels.self_test("cuda" if torch.cuda.is_available() else "cpu")
