#!/usr/bin/env python3
"""Runs the commands of docs/pytorch.md.

Usage: check_pytorch_page.py STEPCAST PAGE TRACE   (exit 77: the trace is not there)

Runs are copies of one recorded trace whose kernels have a little jitter; every ```sh block runs in
the order of the page, in a folder that holds base-1 ... base-6 and now-1 ... now-3.
"""
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile


def copies(trace, folder):
    whole = json.load(gzip.open(trace))
    random.seed(1)
    for name in [f"base-{i}" for i in range(1, 7)] + [f"now-{i}" for i in range(1, 4)]:
        events = []
        for event in whole["traceEvents"]:
            if event.get("cat") in ("kernel", "Kernel"):  # shorter only: kernels of a stream stay apart
                event = dict(event, dur=round(event["dur"] * (1 - 0.02 * random.random()), 3))
            events.append(event)
        os.mkdir(os.path.join(folder, name))
        with gzip.open(os.path.join(folder, name, "rank0.json.gz"), "wt", compresslevel=1) as out:
            json.dump(dict(whole, traceEvents=events), out)


def main():
    stepcast, page, trace = sys.argv[1:4]
    if not os.path.isfile(trace):
        return 77
    with open(page, encoding="utf-8") as f:
        blocks = re.findall(r"```sh\n(.*?)```", f.read(), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    with tempfile.TemporaryDirectory() as folder:
        copies(trace, folder)
        path = os.path.dirname(os.path.abspath(stepcast)) + os.pathsep + os.environ["PATH"]
        for line in lines:
            done = subprocess.run(["bash", "-c", line], cwd=folder, env=dict(os.environ, PATH=path),
                                  capture_output=True, text=True)
            if done.returncode != 0:
                print(f"{line}\nexit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr}")
                return 1
        for name in ("step.json", "step.xml", "step.md", "step.html", "step.perfetto.json.gz", "step.et"):
            if os.path.getsize(os.path.join(folder, name)) == 0:
                print(f"{name} is empty")
                return 1
        with gzip.open(os.path.join(folder, "step.perfetto.json.gz")) as f:
            flows = sum(e["ph"] == "f" for e in json.load(f)["traceEvents"])
    print(f"{len(lines)} commands run, {flows} arrows from launches to kernels")
    return 0 if lines and flows > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
