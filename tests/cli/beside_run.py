#!/usr/bin/env python3
"""Predicted steps beside steps run by real ranks over emulated links that decide them.

Usage: beside_run.py STEPCAST CASE...   with CASE = SHARDING:MODE:RANKS:PIPELINE:FABRIC[:EXPONENT]
SHARDING: a rule or planner, or tiers, grid, row_stripe, ddr, ddr_cache. MODE: sum, sequence.
FABRIC: boards (of 8, and a network), flat. Fails where predicted and run differ by more than 5 %.
A busy machine only makes a run longer: of up to four runs the one with the least median counts.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

MOST = 0.05
DEVICE = {"name": "core", "memory": "8 GB", "bandwidth": "10 GB/s", "peak": {"fp32": "50 GFLOP/s"}, "source": "own"}
TIERS = [{"name": "hbm"}, {"name": "ddr", "capacity": "64 GB", "bandwidth": "2 GB/s", "shared_by": 8}]
RULES = ("row_wise", "column_wise", "table_wise", "table_row_wise", "data_parallel", "tiered", "search", "auto")


def fabric_of(name, ranks):
    """Links so slow that they decide the step, though ranks share the cores of this machine."""
    rate = 1 if ranks <= 16 else 0.25
    if name == "flat":
        return [{"name": "board", "size": 64, "bandwidth": f"{2 * rate} MB/s", "latency": "300 us"}]
    return [{"name": "board", "size": 8, "bandwidth": f"{5 * rate} MB/s", "latency": "300 us"},
            {"name": "net", "size": 64, "bandwidth": f"{rate} MB/s", "latency": "500 us"}]


def tables(mode, exponent):
    return [{"name": name, "rows": rows, "dim": 32, "pooling": pooling, "mode": mode, "access": {"zipf": zipf, "seed": seed}}
            for name, rows, pooling, zipf, seed in (("a", 51200, 12, exponent, 5), ("b", 25600, 4, 0.6, 6),
                                                    ("c", 3200, 2, 1.0, 7), ("d", 12800, 6, 0.9, 8))]


def shards(kind, index, table, ranks):
    rows, every, unit = table["rows"], list(range(ranks)), 8 if ranks > 8 else 4

    def shard(sharding, split, groups, rows_of=None, columns=(0, 32), **more):
        return {"rows": list(rows_of or (0, rows)), "columns": list(columns), "sharding": sharding, "tier": "hbm",
                "groups": groups, "split": split, **more}
    if kind == "grid":
        units = max(2, ranks // unit)
        return [shard("table_row_wise", "block", [every[c % units * unit:c % units * unit + unit]], columns=(16 * c, 16 * c + 16))
                for c in range(2)]
    if kind == "tiers":
        hot, warm = rows // 100, rows // 10
        return [shard("data_parallel", "replicate", [every], (0, hot)),
                shard("row_wise", "stripe", [every[i:i + unit] for i in range(0, ranks, unit)], (hot, warm)),
                shard("row_wise", "stripe", [every], (warm, rows))]
    if kind == "row_stripe":
        return [shard("row_wise", "stripe", [every])]
    more = {"cache": {"bytes": rows * 32 * 4 * 4 // 5, "policy": "lru"}} if kind == "ddr_cache" else {}
    return [shard("table_wise", "block", [[3 * index % ranks]]) | {"tier": "ddr"} | more]


def job_of(kind, mode, ranks, pipeline, exponent):
    listed = tables(mode, exponent)
    plan = kind if kind in RULES else {
        "stepcast": 1, "kind": "embedding", "workload": "m", "system": "slow", "devices": ranks,
        "tables": [{"name": t["name"], "shards": shards(kind, i, t, ranks),
                    **({"row_order": "frequency"} if kind == "tiers" else {})} for i, t in enumerate(listed)]}
    return {"stepcast": 1, "system": "slow.json", "devices": ranks, "batch": {"global": 64 * ranks}, "formats": {"compute": "fp32"},
            "parallel": {"dlrm_pipeline": pipeline}, "embedding": {"plan": plan},
            "workload": {"kind": "dlrm", "name": "m", "dense_features": 4, "bottom_mlp": [32], "interaction": {"kind": "cat"},
                         "top_mlp": [16, 1], "tables": listed}}


def answer(folder, *command):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return json.loads(done.stdout)


def main(stepcast, *cases):
    wrong = 0
    for case in cases:
        kind, mode, ranks, pipeline, fabric, exponent = (case.split(":") + ["1.2"])[:6]
        with tempfile.TemporaryDirectory() as folder:
            levels = fabric_of(fabric, int(ranks))
            files = {"slow.json": {"name": "slow", "device": DEVICE, "tiers": TIERS, "fabric": levels,
                                   "host": {"devices": levels[0]["size"], "cores": 8}},
                     "job.json": job_of(kind, mode, int(ranks), pipeline, float(exponent))}
            for name, content in files.items():
                (pathlib.Path(folder) / name).write_text(json.dumps(content))
            predicted = answer(folder, stepcast, "predict", "job.json", "--format", "json")["iteration_time_s"]
            run = float("inf")
            for _ in range(4):
                steps = answer(folder, stepcast, "run", "job.json", "--ranks", ranks, "--steps", "5", "--warmup", "2",
                               "--emulate", "slow.json", "--timeout", "300", "--format", "json")["step_time_s"]
                run = min(run, steps["median"])
                if abs(predicted / run - 1) <= MOST or run < predicted:
                    break
        off = predicted / run - 1
        wrong += abs(off) > MOST
        print(f"{case:44} predicted {predicted * 1e3:7.1f}  run {run * 1e3:7.1f} ms  {off:+6.1%}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
