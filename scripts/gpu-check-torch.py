#!/usr/bin/env python3
"""What PyTorch needs for what scripts/gpu-check measures, on the same machine.

usage: gpu-check-torch.py contact                          five products, attentions, copies and embeddings, forward and backward
       gpu-check-torch.py anchors OPS.csv OUT.csv SECONDS  the anchors of `stepcast calibrate --rows`, ours beside torch's, each written as it comes
       gpu-check-torch.py gpt JOB.json                     a training step of the job's model, one line of JSON
       gpu-check-torch.py dlrm JOB.json
"""
import time

BEGIN = time.monotonic()  # importing torch may take longer than what it is imported for

import csv
import json
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None
if torch is None or not torch.cuda.is_available():
    print("lacks a torch that sees a GPU")
    sys.exit(77)

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
flush = None


def median_seconds(run, cold=True, repeats=15):
    """Of runs between two events, as the sweep times its own: the cache written and read before a cold one."""
    global flush
    if flush is None:
        flush = torch.empty(256 * 2**20, dtype=torch.int8, device="cuda")
    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        if cold:
            flush.zero_()
            flush.view(torch.int32).sum()
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return sorted(times)[len(times) // 2]


def median_step(step, warmup=8, steps=40):
    for _ in range(warmup):
        step()
    times = []
    for _ in range(steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return sorted(times)[len(times) // 2]


def product(m, n, k, fmt, layout):
    a = torch.randn(k, m, device="cuda", dtype=DTYPES[fmt]).t() if layout == "tn" else torch.randn(m, k, device="cuda", dtype=DTYPES[fmt])
    b = torch.randn(n, k, device="cuda", dtype=DTYPES[fmt]).t() if layout == "nt" else torch.randn(k, n, device="cuda", dtype=DTYPES[fmt])
    return lambda: torch.mm(a, b)


def attention(batch, heads, kv_heads, length, dim, causal, backward):
    def make(h):
        return torch.randn(batch, h, length, dim, device="cuda", dtype=torch.bfloat16, requires_grad=backward)

    q, k, v = make(heads), make(kv_heads), make(kv_heads)

    def forward():
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=kv_heads != heads)

    if not backward:
        return forward
    out = forward()
    d_out = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, (q, k, v), d_out, retain_graph=True)


def indices(rows, n, zipf):
    if zipf == 0:
        return torch.randint(rows, (n,), device="cuda")
    u = torch.rand(n, device="cuda", dtype=torch.float64)
    ranks = (u * ((rows + 1) ** (1 - zipf) - 1) + 1) ** (1 / (1 - zipf)) - 1
    return (ranks.floor().clamp_(0, rows - 1).long() * 2654435761) % rows


def embedding(rows, dim, lookups, bags, zipf, fmt, backward):
    weights = torch.empty(rows, dim, device="cuda", dtype=DTYPES[fmt]).uniform_(-0.1, 0.1)
    ids = indices(rows, lookups, zipf)
    offsets = torch.arange(0, lookups, lookups // bags, device="cuda")
    if not backward:
        return lambda: F.embedding_bag(ids, weights, offsets, mode="sum")
    # A sparse gradient and SGD: the update that torch has without further packages.
    weights.requires_grad_()
    out = F.embedding_bag(ids, weights, offsets, mode="sum", sparse=True)
    d_out = torch.randn_like(out)

    def update():
        (gradient,) = torch.autograd.grad(out, (weights,), d_out, retain_graph=True)
        with torch.no_grad():
            weights.add_(gradient, alpha=-1e-6)

    return update


def contact():
    found = []
    for m in (1024, 2048, 4096, 8192):
        found.append((f"product bf16 {m}^3 TFLOP/s", 2e-12 * m**3 / median_seconds(product(m, m, m, "bf16", "nn"), repeats=7)))
    for backward in (False, True):
        found.append((f"attention 8 x 16 x 1024 x 64 {'backward' if backward else 'forward'} us",
                      1e6 * median_seconds(attention(8, 16, 16, 1024, 64, True, backward), repeats=7)))
        found.append((f"embedding 1M x 128, 64k lookups, {'update' if backward else 'forward'} us",
                      1e6 * median_seconds(embedding(1_000_000, 128, 65536, 16384, 0, "fp32", backward), repeats=7)))
    x = torch.empty(2**28, dtype=torch.int8, device="cuda")
    y = torch.empty_like(x)
    found.append(("copy GB/s, read and written", 2e-9 * x.numel() / median_seconds(lambda: y.copy_(x), repeats=7)))
    for what, value in found:
        print(f"{what}: {value:.1f}")
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, NCCL {torch.cuda.nccl.version()}")


def anchor_of(row):  # flags as core/graph/op.h has them: 1 and 2 transpose A and B, 8 is causal
    """What torch runs for a row of the sweep; None where it is no anchor or has no counterpart."""
    kind, flags, s = row["kind"], int(row["flags"]), [int(float(row[f"s{i}"] or 0)) for i in range(6)]
    if kind in ("embedding_forward", "embedding_backward"):
        optimizer, words = row["embedding"].split(";")[:2]
        words = words.split()
        rows, dim, lookups, bags = int(words[0]), int(words[2]), int(float(words[3])), int(float(words[4]))
        zipf = float(words[6]) if words[5] == "zipf" else 0.0
        backward = kind == "embedding_backward"
        if rows == 10_000_000 and bags == 16384 and lookups == 32 * bags and zipf in (0.0, 1.05) and (not backward or optimizer == "sgd"):
            return lambda: embedding(rows, dim, lookups, bags, zipf, row["format"], backward)
    if kind == "gemm" and s[3] <= 1 and tuple(s[:3]) in ((4096,) * 3, (8192,) * 3, (8192, 1024, 4096), (16384, 512, 1024)) and row["format"] in DTYPES and flags & 3 != 3:
        layout = ("nn", "tn", "nt")[flags & 3]
        return lambda: product(*s[:3], row["format"], layout)
    if kind in ("attention_forward", "attention_backward") and (s[0], s[1], s[2], s[3]) in (
            (8, 16, 16, 1024), (2, 16, 16, 2048), (1, 32, 32, 4096), (1, 32, 8, 8192)):
        return lambda: attention(s[0], s[1], s[2], s[3], s[5], bool(flags & 8), kind == "attention_backward")
    return None


def anchors(ops, out, seconds):
    end = BEGIN + float(seconds)
    seen, ratios, left = set(), [], 0
    kept = open(out, "w", newline="")
    table = csv.writer(kept)
    table.writerow(["kind", "s0", "s1", "s2", "s3", "s4", "s5", "format", "flags", "embedding", "ours_s", "torch_s", "torch_over_ours"])
    for row in csv.DictReader(open(ops)):
        make = anchor_of(row) if row["name"].startswith("sweep.") else None
        key = tuple(row[c] for c in ("kind", "s0", "s1", "s2", "s3", "s4", "s5", "format", "flags", "embedding"))
        if make is None or key in seen:
            continue
        seen.add(key)
        if time.monotonic() > end:
            left += 1
            continue
        try:
            theirs = median_seconds(make())
        except (RuntimeError, TypeError) as e:
            print(f"{row['kind']} {key[1:]}: {str(e)[:80]}")
            continue
        ours = float(row["seconds"])
        ratios.append(theirs / ours)
        table.writerow([*key, f"{ours:.6g}", f"{theirs:.6g}", f"{ratios[-1]:.4g}"])
        kept.flush()
        torch.cuda.empty_cache()
    kept.close()
    if not ratios:
        print("no anchor was measured")
        sys.exit(77)
    ratios.sort()
    print(f"{len(ratios)} anchors: torch / ours median {ratios[len(ratios) // 2]:.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f}" + (f"; no time for {left}" if left else ""))


def gpt(job):
    w, b = job["workload"], job["batch"]
    hidden, heads, length = w["hidden"], w["heads"], b["sequence"]

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = torch.nn.LayerNorm(hidden), torch.nn.LayerNorm(hidden)
            self.qkv, self.out = torch.nn.Linear(hidden, 3 * hidden), torch.nn.Linear(hidden, hidden)
            self.up, self.down = torch.nn.Linear(hidden, w["ffn_hidden"]), torch.nn.Linear(w["ffn_hidden"], hidden)

        def forward(self, x):
            n, s, _ = x.shape
            q, k, v = (t.view(n, s, heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
            x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, s, hidden))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Gpt(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = torch.nn.Embedding(w["vocabulary"], hidden), torch.nn.Embedding(length, hidden)
            self.layers = torch.nn.ModuleList([Layer() for _ in range(w["layers"])])
            self.norm, self.head = torch.nn.LayerNorm(hidden), torch.nn.Linear(hidden, w["vocabulary"], bias=False)

        def forward(self, t):
            x = self.tokens(t) + self.positions.weight[: t.shape[1]]
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x))

    model = Gpt().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(w["vocabulary"], (b["global"], length + 1), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(tokens[:, :-1])
        F.cross_entropy(logits.float().view(-1, w["vocabulary"]), tokens[:, 1:].reshape(-1)).backward()
        optimizer.step()

    return median_step(step)


def dlrm(job):
    w, batch = job["workload"], job["batch"]["global"]
    tables, dim = w["tables"], w["tables"][0]["dim"]
    # Weights are drawn as they lie: nobody looks at the loss.
    bags = [torch.nn.EmbeddingBag(t["rows"], dim, mode="sum", sparse=True, _weight=torch.empty(t["rows"], dim, device="cuda").uniform_(-0.01, 0.01)) for t in tables]

    def mlp(widths):
        layers = []
        for i, (a, b) in enumerate(zip(widths, widths[1:])):
            layers += [torch.nn.Linear(a, b)] + ([torch.nn.ReLU()] if i + 2 < len(widths) else [])
        return torch.nn.Sequential(*layers).cuda()

    features = len(tables) + 1
    pairs = torch.tril_indices(features, features, -1, device="cuda")
    bottom = mlp([w["dense_features"], *w["bottom_mlp"]])
    top = mlp([dim + features * (features - 1) // 2, *w["top_mlp"]])
    dense = torch.optim.Adam([*bottom.parameters(), *top.parameters()], lr=1e-4, fused=True)
    sparse = torch.optim.SGD([b.weight for b in bags], lr=1e-3)
    x = torch.randn(batch, w["dense_features"], device="cuda")
    ids = [indices(t["rows"], batch * t["pooling"], t.get("access", {}).get("zipf", 0)) for t in tables]
    offsets = [torch.arange(0, batch * t["pooling"], t["pooling"], device="cuda") for t in tables]
    labels = torch.randint(2, (batch,), device="cuda").float()

    def step():
        dense.zero_grad(set_to_none=True)
        sparse.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            first = bottom(x)
            all_features = torch.stack([first, *(b(i, o).to(first.dtype) for b, i, o in zip(bags, ids, offsets))], 1)
            dots = torch.bmm(all_features, all_features.transpose(1, 2))[:, pairs[0], pairs[1]]
            logits = top(torch.cat([first, dots], 1)).squeeze(1)
        F.binary_cross_entropy_with_logits(logits.float(), labels).backward()
        dense.step()
        sparse.step()

    return median_step(step, steps=20)


if __name__ == "__main__":
    what = sys.argv[1]
    if what == "contact":
        contact()
    elif what == "anchors":
        anchors(*sys.argv[2:5])
    else:
        print(json.dumps({"torch_step_s": (gpt if what == "gpt" else dlrm)(json.load(open(sys.argv[2])))}))
