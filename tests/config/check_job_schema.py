#!/usr/bin/env python3
"""Checks docs/job.schema.json with a validator that knows nothing of stepcast.

Usage: check_job_schema.py STEPCAST SOURCE   (exit 77: python3-jsonschema is not there)

Built-in files, the examples of docs/ and the jobs that golden scenarios predict, as they are
resolved, must be valid; the same jobs with a key that nobody knows, or a value of another kind,
must not.
"""
import copy
import glob
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

try:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match
except ImportError:
    print("skipped: no python3-jsonschema")
    sys.exit(77)

STEPCAST, SOURCE = (os.path.abspath(path) for path in sys.argv[1:3])
failed = []
counts = {}


def parsed(text):
    """JSON with comments."""
    token = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
    return json.loads(token.sub(lambda m: m.group() if m.group().startswith('"') else " ", text))


def read(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as f:
        return f.read()


SCHEMA = json.loads(read("docs/job.schema.json"))
Draft202012Validator.check_schema(SCHEMA)
VALIDATORS = {"job": Draft202012Validator(SCHEMA)}
for part in ("workload", "system", "device"):
    VALIDATORS[part] = Draft202012Validator(
        {"$ref": f"#/$defs/{part}", "$defs": SCHEMA["$defs"]})


def valid(kind, value, name):
    counts[kind] = counts.get(kind, 0) + 1
    error = best_match(VALIDATORS[kind].iter_errors(value))
    if error is not None:
        place = ".".join(str(p) for p in error.absolute_path)
        failed.append(f"{name}: {kind} {place}: {error.message[:200]}")


def refused(job, name):
    """Every change of a valid job that makes it none."""
    def check(change, what):
        other = copy.deepcopy(job)
        change(other)
        counts["refused"] = counts.get("refused", 0) + 1
        if VALIDATORS["job"].is_valid(other):
            failed.append(f"{name}: valid with {what}")

    def holder(value, path):
        for key in path:
            value = value[key]
        return value if isinstance(value, dict) else {}[None]  # a name stands for what it is a name of

    for path in ((), ("batch",), ("parallel",), ("parallel", "overlap"), ("formats",), ("embedding",),
                 ("workload",), ("workload", "tables", 0), ("workload", "moe"), ("system",),
                 ("system", "fabric", 0), ("system", "host"), ("system", "device")):
        try:
            holder(job, path)
        except (KeyError, IndexError, TypeError):
            continue
        check(lambda j, p=path: holder(j, p).update(no_such_key=1), f"no_such_key in {path}")
    for path, key, wrong in (((), "devices", "8"), (("parallel",), "tensor", 0),
                             (("parallel",), "bucket", "25"), (("parallel",), "schedule", "1f2b"),
                             (("parallel",), "zero", 4), (("parallel",), "recompute", {"layers": "1"}),
                             (("formats",), "compute", "bfloat"), (("batch",), "global", 1.5),
                             (("system", "device"), "memory", "80 Gb"),
                             (("system", "device"), "launch", "2 MB")):
        if isinstance(job.get("system"), dict) and isinstance(job["system"].get("device"), dict) or path[:1] != ("system",):
            check(lambda j, p=path, k=key, w=wrong: holder(j, p).update({k: w}), f"{key} = {wrong}")


def built_in():
    for kind, folder in (("workload", "workloads/zoo"), ("system", "models/systems"),
                         ("device", "models/devices")):
        for path in sorted(glob.glob(os.path.join(SOURCE, folder, "*.json"))):
            valid(kind, parsed(read(path)), path)


def examples():
    for path in sorted(glob.glob(os.path.join(SOURCE, "docs/examples/*.json"))):
        value = parsed(read(path))
        if value.get("kind") != "embedding":
            valid("system" if "fabric" in value else "job", value, path)
    for kind, text in re.findall(r"```json ([a-z]+)\n(.*?)```", read("docs/jobs.md"), re.DOTALL):
        if kind in VALIDATORS:
            valid(kind, parsed(text), f"docs/jobs.md ({kind})")


def goldens():
    kinds = set()
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(glob.glob(os.path.join(SOURCE, "tests/golden/*/scenario"))):
            for line in read(path).splitlines():
                line = line.strip().replace("$source", SOURCE)
                if not line.startswith("stepcast predict ") or "$" in line or "|" in line:
                    continue
                words = shlex.split(line)[1:]
                if "--format" in words:
                    at = words.index("--format")
                    del words[at:at + 2]
                run = subprocess.run([STEPCAST, *words, "--format", "json"], cwd=folder, text=True,
                                     capture_output=True, check=False)
                if run.returncode in (0, 1):
                    job = json.loads(run.stdout)["job"]
                    valid("job", job, line)
                    if job["workload"]["kind"] not in kinds:  # one of each
                        kinds.add(job["workload"]["kind"])
                        if isinstance(job["system"], dict):  # not a name
                            for fitted in (job["system"], job["system"]["device"]):
                                fitted.pop("fitted", None)  # checked above; a change is seen sooner without
                        valid("job", job, f"{line}, without fitted constants")
                        refused(job, line)


built_in()
examples()
goldens()
print(counts)
for message in failed[:40]:
    print(message)
enough = counts["workload"] > 40 and counts["job"] > 25 and counts["refused"] > 60
sys.exit(1 if failed or not enough else 0)
