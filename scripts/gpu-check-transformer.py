#!/usr/bin/env python3
"""One GPT-style training step of stepcast beside a plain PyTorch one of the same model.

usage: gpu-check-transformer.py job SYSTEM.json          prints the job
       gpu-check-transformer.py compare RUN.json         times torch and compares with `stepcast run --format json`
"""
import json
import os
import sys
import time

LAYERS, HIDDEN, HEADS, FFN, VOCABULARY, SEQUENCE, BATCH = 8, 1024, 16, 4096, 50304, 1024, 8

if sys.argv[1] == "job":
    workload = dict(kind="transformer", name="gpt-check", layers=LAYERS, hidden=HIDDEN, heads=HEADS, kv_heads=HEADS, ffn_hidden=FFN,
                    activation="gelu", vocabulary=VOCABULARY, tied_embeddings=False)
    print(json.dumps(dict(stepcast=1, workload=workload, system=os.path.abspath(sys.argv[2]) if os.path.exists(sys.argv[2]) else sys.argv[2], devices=1,
                          batch={"global": BATCH, "micro": BATCH, "sequence": SEQUENCE}, formats={"compute": "bf16"}, optimizer="adam")))
    sys.exit(0)

import torch
import torch.nn.functional as F


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(HIDDEN), torch.nn.LayerNorm(HIDDEN)
        self.qkv, self.out = torch.nn.Linear(HIDDEN, 3 * HIDDEN), torch.nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = torch.nn.Linear(HIDDEN, FFN), torch.nn.Linear(FFN, HIDDEN)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = (t.view(b, s, HEADS, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, HIDDEN))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = torch.nn.Embedding(VOCABULARY, HIDDEN), torch.nn.Embedding(SEQUENCE, HIDDEN)
        self.layers = torch.nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.norm, self.head = torch.nn.LayerNorm(HIDDEN), torch.nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, t):
        x = self.tokens(t) + self.positions.weight[: t.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


text = open(sys.argv[2]).read()
ours = json.loads(text[text.index("{"):])["step_time_s"]["median"]
model = Gpt().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
tokens = torch.randint(VOCABULARY, (BATCH, SEQUENCE + 1), device="cuda")


def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(tokens[:, :-1])
    F.cross_entropy(logits.float().view(-1, VOCABULARY), tokens[:, 1:].reshape(-1)).backward()
    optimizer.step()


for _ in range(8):
    step()
times = []
for _ in range(40):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    step()
    torch.cuda.synchronize()
    times.append(time.perf_counter() - begin)
theirs = sorted(times)[len(times) // 2]
print(f"step {1e3 * ours:.2f} ms, torch {1e3 * theirs:.2f} ms: ours / torch {ours / theirs:.2f} (bound 1.2)")
sys.exit(0 if ours / theirs <= 1.2 else 1)
