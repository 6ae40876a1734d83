#!/usr/bin/env python3
"""What `stepcast show` says of recorded Kineto traces, computed a second time.

Usage: check_steps.py STEPCAST FOLDER...   (exit 77: no folder is there)

Of every trace of one rank that ProfilerStep# marks: the steps (from the end of the step before to a
step's own, where that is the end of its host range and of all device work launched in it; the first
of several is left out), and within them, per rank, time with compute running, with transfers alone,
and neither; and of the stream that computes most its busy time and its idle time by cause. Nothing
of stepcast is used, and all must agree to 0.1 %.
"""
import gzip
import json
import os
import subprocess
import sys

WORK = {"kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"}
RUNTIME = {"cuda_runtime", "cuda_driver", "hip_runtime", "Runtime"}
TOLERANCE = 1e-3


def union(intervals):
    out = []
    for a, b in sorted(i for i in intervals if i[1] > i[0]):
        if out and a <= out[-1][1]:
            out[-1][1] = max(out[-1][1], b)
        else:
            out.append([a, b])
    return out


def length(intervals):
    return sum(b - a for a, b in intervals)


def cut(intervals, begin, end):
    return [(max(a, begin), min(b, end)) for a, b in intervals if b > begin and a < end]


def minus(left, right):
    return length(union(left + right)) - length(union(right))


def collective(event):
    args = event.get("args", {})
    return event["cat"] in ("kernel", "Kernel") and (
        "Collective name" in args or event["name"].startswith("nccl") or "ncclKernel" in event["name"]
        or "ncclDevKernel" in event["name"])


def steps_of(events, launch):
    marks = sorted((e["ts"], e["ts"] + e["dur"]) for e in events
                   if e["name"].startswith("ProfilerStep#")
                   and e["cat"] in ("user_annotation", "cpu_op", "Operator"))
    if not marks:
        return None
    ends = [max([marks[0][0]] + [w["end"] for w in launch if w["issued"] < marks[0][0] <= w["end"]])]
    begin = marks[0][0]
    for k, mark in enumerate(marks):
        stop = min(mark[1], marks[k + 1][0]) if k + 1 < len(marks) else mark[1]
        done = [w["end"] for w in launch if begin <= w["issued"] < stop]
        ends.append(max(done + [mark[1], ends[-1]]))
        begin = stop
    return ends


def account(path):
    text = (gzip.open(path) if path.endswith(".gz") else open(path, "rb")).read()
    whole = json.loads(text)
    events = [e for e in whole["traceEvents"] if e.get("ph") == "X" and e.get("cat") != "Trace"]
    calls = {}
    for e in events:
        if e.get("cat") in RUNTIME and "correlation" in e.get("args", {}):
            calls.setdefault(e["args"]["correlation"], e)
    work = []
    for e in events:
        if e.get("cat") in WORK:
            call = calls.get(e.get("args", {}).get("correlation"))
            work.append({"begin": e["ts"], "end": e["ts"] + e["dur"], "comm": collective(e),
                         "issued": call["ts"] if call else e["ts"],
                         "stream": (e["args"].get("device"), e["args"].get("stream"))})
    ends = steps_of(events, work)
    if ends is None or not work:
        return None
    first = 1 if len(ends) > 2 else 0
    n = len(ends) - 1 - first
    begin, end = ends[first], ends[-1]
    compute = cut([(w["begin"], w["end"]) for w in work if not w["comm"]], begin, end)
    comm = cut([(w["begin"], w["end"]) for w in work if w["comm"]], begin, end)
    rank = {"mean_s": end - begin, "compute_s": length(union(compute)),
            "exposed_communication_s": minus(comm, compute)}
    rank["idle"] = rank["mean_s"] - rank["compute_s"] - rank["exposed_communication_s"]
    main = {"compute_s": 0, "communication_s": 0, "host_s": 0, "other_idle": 0, "drain_s": 0}
    for a, b in zip(ends[first:-1], ends[first + 1:]):
        busy = {}
        for w in work:
            if not w["comm"] and w["end"] > a and w["begin"] < b:
                busy[w["stream"]] = busy.get(w["stream"], 0) + min(w["end"], b) - max(w["begin"], a)
        stream = max(busy, key=lambda s: busy[s]) if busy else None
        at = a
        for w in sorted((w for w in work if w["stream"] == stream and w["end"] > a and w["begin"] < b),
                        key=lambda w: w["begin"]):
            start, stop = max(at, w["begin"]), max(at, min(w["end"], b))
            launched = min(max(w["issued"], at), start)
            main["host_s"] += launched - at
            main["other_idle"] += start - launched
            main["communication_s" if w["comm"] else "compute_s"] += stop - start
            at = max(start, stop)
        main["drain_s"] += b - at
    scale = 1e-6 / n
    return ({k: v * scale for k, v in rank.items()}, {k: v * scale for k, v in main.items()})


def compare(stepcast, path):
    mine = account(path)
    if mine is None:
        return 0, []
    said = json.loads(subprocess.run([stepcast, "show", path, "--format", "json"], check=True,
                                     capture_output=True, text=True).stdout)
    wrong = []
    rank, idle = said["ranks"][0], said["idle"][0]
    rank["idle"] = rank["bubble_s"] + rank["host_s"] + rank["other_s"]
    idle["other_idle"] = (idle["gap_s"] + idle["exposed_communication_s"] + idle["wait_for_rank_s"]
                          + idle["wait_for_stream_s"])
    for what, ours, theirs in (("rank", mine[0], rank), ("stream", mine[1], idle)):
        for key, value in ours.items():
            if abs(value - theirs[key]) > TOLERANCE * mine[0]["mean_s"]:
                wrong.append(f"{path}: {what} {key}: {theirs[key]:.6g} s, computed {value:.6g} s")
    if abs(said["step"]["step_s"] / mine[0]["mean_s"] - 1) > TOLERANCE:
        wrong.append(f"{path}: step {said['step']['step_s']:.6g} s, "
                     f"computed {mine[0]['mean_s']:.6g} s")
    return 1, wrong


def main():
    stepcast, folders = sys.argv[1], [f for f in sys.argv[2:] if os.path.isdir(f)]
    checked, wrong = 0, []
    for folder in folders:
        for where, _, files in sorted(os.walk(folder)):
            for name in sorted(files):
                if name.endswith((".json.gz", ".json")) and not name.startswith("dlrm_eg"):
                    path = os.path.join(where, name)
                    try:
                        count, bad = compare(stepcast, path)
                    except (KeyError, TypeError):
                        continue  # not a Kineto trace
                    checked += count
                    wrong += bad
    print("\n".join(wrong))
    print(f"{checked} traces checked, {len(wrong)} figures differ")
    return 1 if wrong else 77 if checked == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
