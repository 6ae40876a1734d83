#!/usr/bin/env python3
"""Compares measured embedding forwards with torch.nn.functional.embedding_bag on the same shapes.

usage: gpu-check-embedding.py OPS.csv DEVICE.json OUT.csv     (from `stepcast calibrate --backend cuda --rows DIR`)

For up to 60 shapes: torch's median time, ours, the ratio, and our bandwidth as a share of the measured device copy. Uniform rows of
64 elements and more should reach 0.8 of the copy, and no shape should be slower than torch's.
"""
import csv
import json
import random
import sys

import torch
import torch.nn.functional as F

ops, device, out = sys.argv[1:4]
copy = json.load(open(device))["copy_bytes_per_s"]
cases = []
with open(ops) as f:
    for row in csv.DictReader(f):
        # embedding: "optimizer; rows table_rows dim lookups bags LAW ..."
        if row["kind"] != "embedding_forward" or row["name"] != "sweep.embedding_forward":
            continue
        words = row["embedding"].split(";")[1].split()
        rows, dim, lookups, bags = int(words[0]), int(words[2]), int(float(words[3])), int(float(words[4]))
        zipf = float(words[6]) if words[5] == "zipf" else 0.0
        cold = float(row["operands"].split("@")[1].split()[0]) > 2 * float(row["bytes"])
        if cold:
            cases.append((rows, dim, lookups, bags, zipf, row["format"], float(row["seconds"]), float(row["bytes"])))
random.Random(1).shuffle(cases)

flush = torch.empty(256 * 2**20, dtype=torch.int8, device="cuda")


def indices(rows, n, zipf):
    if zipf == 0:
        return torch.randint(rows, (n,), device="cuda")
    u = torch.rand(n, device="cuda", dtype=torch.float64)
    ranks = (u * ((rows + 1) ** (1 - zipf) - 1) + 1) ** (1 / (1 - zipf)) - 1
    scatter = 2654435761 if rows % 2654435761 else 1
    return (ranks.floor().clamp_(0, rows - 1).long() * scatter) % rows


def median_seconds(run):
    for _ in range(3):
        run()
    times = []
    for _ in range(15):
        flush.zero_()
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return sorted(times)[len(times) // 2]


slower, uniform, ratios = 0, [], []
with open(out, "w", newline="") as f:
    table = csv.writer(f)
    table.writerow(["rows", "dim", "lookups", "bags", "zipf", "format", "ours_s", "torch_s", "torch_over_ours", "share_of_copy"])
    for rows, dim, lookups, bags, zipf, fmt, ours, moved in cases[:60]:
        weights = torch.empty(rows, dim, device="cuda", dtype=torch.bfloat16 if fmt == "bf16" else torch.float32).uniform_(-0.1, 0.1)
        idx = indices(rows, lookups, zipf)
        offsets = torch.arange(0, lookups, lookups // bags, device="cuda")
        with torch.no_grad():
            theirs = median_seconds(lambda: F.embedding_bag(idx, weights, offsets, mode="sum"))
        share = moved / ours / copy
        table.writerow([rows, dim, lookups, bags, zipf, fmt, f"{ours:.6g}", f"{theirs:.6g}", f"{theirs / ours:.4g}", f"{share:.4g}"])
        ratios.append(theirs / ours)
        slower += theirs < ours
        if zipf == 0 and dim >= 64 and moved > 64e6:
            uniform.append(share)
        del weights
ratios.sort()
uniform.sort()
if not ratios:
    print("no cold embedding rows were measured")
    sys.exit(77)
print(
    f"{len(ratios)} shapes: torch / ours median {ratios[len(ratios) // 2]:.2f}, least {ratios[0]:.2f}, slower in {slower}; "
    + (f"uniform dim >= 64: median {uniform[len(uniform) // 2]:.0%} of copy" if uniform else "no large uniform shape")
)
sys.exit(1 if slower else 0)
