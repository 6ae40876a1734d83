#!/usr/bin/env python3
"""What `stepcast show` says of recorded Kineto traces, computed a second time.

Usage: check_steps.py STEPCAST PAGE|LEAST [--write] FOLDER...   (exit 77: no folder is there)

Every Kineto trace of the folders is a run: a folder that holds all ranks of a run is one, any other
file is one by itself. Steps are the ranges ProfilerStep#, else what lies between the ends of
Optimizer.step#, else all the host did. A step lasts from the end of the step before to its own, where
that is the end of its host range and of all device work launched in it; the first of several is left
out. Records that stand there twice count once, and a duration that runs over two pieces of work after
it on its stream ends where the first begins. Of each rank: time with compute running, with transfers alone, and neither, of that what the host
took: until it had launched the next work, or where none comes. Of its stream that computes most: busy time, and idle time by cause. Of the run: how much longer a step gets when
computing, transfers or the host's own time get longer by a little, which is their part of the
critical path.

Nothing of stepcast is used but what it prints, and all must agree to 0.1 % of the step. It must say
no critical path where its replay is more than 3 % off. PAGE holds the table of both between two
comments; it must be the one made here (--write makes it so). LEAST, a number, stands for no page:
so many traces must be found that both read.
"""
import gzip
import json
import os
import subprocess
import sys

WORK = {"kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"}
RUNTIME = {"cuda_runtime", "cuda_driver", "hip_runtime", "Runtime"}
DEVICE = WORK | {"gpu_user_annotation", "cuda_sync", "cuda_event", "cuda_profiler_range"}
COMMUNICATES = ("nccl", "rccl", "deep_ep", "nvshmem", "cross_device_reduce", "multimem", "allreduce",
                "all_reduce_one")
TOLERANCE = 1e-3
TRUSTED_REPLAY = 0.03
# Names of collectives that are no NCCL's or no collective's.
MISLEADING = ("03-", "03b-")
BEGIN, END = "<!-- steps, computed twice: begin -->", "<!-- steps, computed twice: end -->"
STREAM = ("compute_s", "communication_s", "host_s", "exposed_communication_s", "wait_for_rank_s",
          "wait_for_stream_s", "gap_s", "drain_s")


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
    return event["cat"] in ("kernel", "Kernel") and (
        "Collective name" in event.get("args", {})
        or any(word in (event["name"].split("(")[0] + event["name"][:60]).lower()
               for word in COMMUNICATES)
        and "fbgemm" not in event["name"])


class Rank:
    """Events of one file, times in microseconds."""

    def __init__(self, path):
        text = (gzip.open(path) if path.endswith(".gz") else open(path, "rb")).read()
        whole = json.loads(text.decode("utf-8-sig", "replace"), parse_constant=lambda name: None)
        info = whole.get("distributedInfo", {}) if isinstance(whole, dict) else {}
        self.number, self.world = info.get("rank", 0), info.get("world_size", 1)
        events = [e for e in (whole["traceEvents"] if isinstance(whole, dict) else whole)
                  if e.get("ph") == "X" and e.get("cat") != "Trace" and e.get("dur") is not None
                  and e.get("pid") not in ("Spans", "Traces")]
        for e in events:
            e["ts"], e["dur"] = float(e["ts"]), float(e["dur"])
        # What lasts less than nothing, or longer than anything recorded, is no event.
        events = [e for e in events if 0 <= e["dur"] < 1e12]
        events = list({json.dumps(e, sort_keys=True): e for e in events}.values())
        calls = {}
        for e in events:
            if e.get("cat") in RUNTIME and "correlation" in e.get("args", {}):
                calls.setdefault(e["args"]["correlation"], []).append(e)
        self.work, alone = [], []
        for e in events:
            if e.get("cat") in WORK:
                args = e.get("args", {})
                # Ids are used again: the last call before it.
                made = sorted(calls.get(args.get("correlation"), []), key=lambda c: c["ts"])
                call = next((c for c in reversed(made) if c["ts"] <= e["ts"]), made[0] if made else None)
                self.work.append({
                    "begin": e["ts"], "end": e["ts"] + e["dur"], "comm": collective(e),
                    "ready": e["ts"], "issued": call["ts"] if call else e["ts"],
                    "launched": min(call["ts"] + call["dur"], e["ts"]) if call else e["ts"],
                    "stream": (args.get("device", e["pid"]), args.get("stream", e.get("tid")))})
                alone += [] if call else [e["ts"]]
        self.work.sort(key=lambda w: w["begin"])
        streams = {}
        for w in self.work:
            streams.setdefault(w["stream"], []).append(w)
        for works in streams.values():
            for w, after, second in zip(works, works[1:], works[2:]):
                w["end"] = after["begin"] if second["begin"] < w["end"] else w["end"]
        self.marks = self.marks_of(events, alone)

    def shift(self, by):
        self.marks = [(a + by, b + by) for a, b in self.marks]
        for w in self.work:
            for key in ("begin", "end", "ready", "issued", "launched"):
                w[key] += by

    @staticmethod
    def marks_of(events, alone):
        """`alone`: begins of work without a call, which a recording without marks covers too."""
        host = ("user_annotation", "cpu_op", "Operator")

        def ranges(start):
            return sorted((e["ts"], e["ts"] + e["dur"]) for e in events
                          if e["name"].startswith(start) and e.get("cat") in host)

        marks = ranges("ProfilerStep#")
        if marks:
            return marks
        spans = [(e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") not in DEVICE]
        begin, end = min([s[0] for s in spans] + alone), max(s[1] for s in spans)
        ends = [m[1] for m in ranges("Optimizer.step#")]
        return list(zip([begin] + ends, ends)) if len(ends) > 1 else [(begin, end)]

    def ends(self):
        """When the run's first step begins and each is done."""
        marks, begin = self.marks, self.marks[0][0]
        ends = [max([begin] + [w["end"] for w in self.work if w["issued"] < begin <= w["end"]])]
        for k, mark in enumerate(marks):
            stop = min(mark[1], marks[k + 1][0]) if k + 1 < len(marks) else mark[1]
            done = [w["end"] for w in self.work if begin <= w["issued"] < stop]
            ends.append(max(done + [mark[1], ends[-1]]))
            begin = stop
        return ends


def tell_waits(ranks):
    """A collective waits until the last of its members has come: the i-th of each rank. It ends on
    all of them at once, which tells how far clocks are apart."""
    lists = [[w for w in r.work if w["comm"]] for r in ranks]
    if len(ranks) < 2 or len({len(each) for each in lists}) != 1:
        return
    for rank, each in zip(ranks, lists):
        apart = sorted(a["end"] - b["end"] for a, b in zip(lists[0], each))
        rank.shift(apart[len(apart) // 2] if len(apart) >= 10 else 0)
    for members in zip(*lists):
        last = max(m["begin"] for m in members)
        for m in members:
            m["ready"] = min(max(last, m["begin"]), m["end"])


def account(rank):
    """Of a rank, and of its main stream; seconds per step."""
    ends = rank.ends()
    first = 1 if len(ends) > 2 else 0
    begin, end = ends[first], ends[-1]
    compute = cut([(w["begin"], w["end"]) for w in rank.work if not w["comm"]], begin, end)
    transfer = cut([(w["ready"], w["end"]) for w in rank.work if w["comm"]], begin, end)
    whole = {"mean_s": end - begin, "compute_s": length(union(compute)),
             "exposed_communication_s": minus(transfer, compute)}
    whole["idle"] = whole["mean_s"] - whole["compute_s"] - whole["exposed_communication_s"]
    whole["host_s"] = sum(host_time(rank.work, a, b) for a, b in zip(ends[first:-1], ends[first + 1:]))
    main = dict.fromkeys(STREAM, 0)
    for a, b in zip(ends[first:-1], ends[first + 1:]):
        account_stream([w for w in rank.work if w["end"] > a and w["begin"] < b], a, b, main)
    scale = 1e-6 / (len(ends) - 1 - first)
    return ({k: v * scale for k, v in whole.items()}, {k: v * scale for k, v in main.items()})


def host_time(work, begin, end):
    """Of what is idle: until the next work, in whatever step, was launched."""
    host, at = 0, begin
    for w in sorted(work, key=lambda w: w["begin"]) + [{"begin": end, "end": end, "launched": end}]:
        start = min(max(w["begin"], begin), end)
        if start > at:
            host += min(max(w["launched"], at), start) - at
        at = max(at, min(w["end"], end))
    return host


def account_stream(work, a, b, main):
    busy = {}
    for w in [w for w in work if not w["comm"]] or work:
        busy[w["stream"]] = busy.get(w["stream"], 0) + min(w["end"], b) - max(w["begin"], a)
    stream = max(busy, key=lambda s: busy[s]) if busy else None
    others = [w for w in work if w["stream"] != stream]
    transfers = union((max(w["ready"], a), min(w["end"], b)) for w in others if w["comm"])
    waits = union((max(w["begin"], a), min(w["end"], b)) for w in others if w["comm"])
    anything = union((max(w["begin"], a), min(w["end"], b)) for w in others)
    at = a
    for w in (w for w in work if w["stream"] == stream):
        start = max(at, w["begin"])
        stop = max(start, min(w["end"], b))
        launched = min(max(w["launched"], at), start)
        main["host_s"] += launched - at
        t, r, s = (length(cut(i, launched, start)) for i in (transfers, waits, anything))
        main["exposed_communication_s"] += t
        main["wait_for_rank_s"] += r - t
        main["wait_for_stream_s"] += s - r
        main["gap_s"] += start - launched - s
        if w["comm"]:
            ready = min(max(w["ready"], start), stop)
            main["wait_for_rank_s"] += ready - start
            main["communication_s"] += stop - ready
        else:
            main["compute_s"] += stop - start
        at = stop
    main["drain_s"] += b - at


def said_by(stepcast, *arguments):
    done = subprocess.run([stepcast, *arguments, "--format", "json"], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def sensitivity(stepcast, path, said, ranks):
    """Parts of the critical path, by making their times a little longer."""
    if any(r.ends()[0] > r.marks[0][0] for r in ranks):
        return []  # work from before the first step moves too
    wrong, little = [], 1e-4
    for name, key in (("compute", "compute_s"), ("comm", "transfer_s")):
        there = said["critical_path"][key]
        if there is None:
            return []  # the replay is too far off
        what_if = said_by(stepcast, "replay", path, "--scale", f"{name}={1 + little}")
        if what_if is None:
            if there > 0:
                wrong.append(f"{path}: critical path {key}: {there:.6g} s, and no {name} to scale")
            continue
        if what_if["replays"][0]["steps"] > 1:
            return []  # the paths to the first end and to the last are two
        what_if = what_if["replays"][0]["what_if"]
        found = (what_if["step_s"] - what_if["unchanged_step_s"]) / little
        if abs(found - there) > TOLERANCE * said["step"]["step_s"]:
            wrong.append(f"{path}: critical path {key}: {there:.6g} s, by change {found:.6g} s")
    return wrong


def compare(stepcast, path, files):
    ranks = [Rank(f) for f in files]
    if not any(r.work for r in ranks):
        return None
    tell_waits(ranks)
    said = said_by(stepcast, "show", path)
    by = said["step"].get("marked_by", "") if said else ""
    if said is None or by and not any(mark in by for mark in ("ProfilerStep", "Optimizer.step")):
        return None  # rejected, or steps by other marks
    wrong, rows = [], []
    replay = said["critical_path"]
    if abs(replay["replay_error"]) > TRUSTED_REPLAY and replay["host_s"] is not None:
        wrong.append(f"{path}: a critical path of a replay that is {replay['replay_error']:.1%} off")
    for r, rank in sorted(enumerate(ranks), key=lambda i: i[1].number):
        mine = account(rank)
        row = len(rows)
        whole, idle = said["ranks"][row], said["idle"][row]
        whole["idle"] = whole["bubble_s"] + whole["host_s"] + whole["other_s"]
        most = 0
        for what, ours, theirs in (("rank", mine[0], whole), ("stream", mine[1], idle)):
            for key, value in ours.items():
                most = max(most, abs(value - theirs[key]) / mine[0]["mean_s"])
                if abs(value - theirs[key]) > TOLERANCE * mine[0]["mean_s"]:
                    wrong.append(f"{path}: rank {rank.number}: {what} {key}: {theirs[key]:.6g} s, "
                                 f"computed {value:.6g} s")
        values = [f"{1e3 * mine[0][k]:.4g} / {1e3 * whole[k]:.4g}" for k in
                  ("mean_s", "compute_s", "exposed_communication_s")]
        values += [f"{1e3 * mine[1][k]:.4g} / {1e3 * idle[k]:.4g}" for k in
                   ("host_s", "exposed_communication_s", "wait_for_rank_s", "gap_s")]
        name = os.path.basename(path).split(".")[0][:44]
        rows.append(f"| {name} | {rank.number} | {' | '.join(values)} | {100 * most:.2f} % |")
    return rows, wrong + sensitivity(stepcast, path, said, ranks)


def runs_in(folders):
    """Paths as given to stepcast, with their files."""
    for folder in folders:
        for where, _, names in sorted(os.walk(folder)):
            names = [n for n in names if not n.startswith(MISLEADING)]
            files = [os.path.join(where, n) for n in sorted(names)
                     if n.endswith((".json.gz", ".json")) and "_et" not in n]
            files = [f for f in files if not os.path.basename(f).startswith("dlrm_eg")]
            if len(files) > 1 and all(os.path.basename(f).startswith(("worker", "rank")) for f in files):
                yield where, files
            else:
                yield from ((f, [f]) for f in files)


def main():
    stepcast, page = sys.argv[1:3]
    least = int(page) if page.isdigit() else 1
    write = "--write" in sys.argv
    folders = [f for f in sys.argv[3:] if os.path.isdir(f)]
    table, wrong, checked = [], [], 0
    for path, files in runs_in(folders):
        try:
            found = compare(stepcast, path, files)
        except ValueError:
            continue  # no JSON
        if found:
            table += found[0]
            wrong += found[1]
            checked += 1
    if not folders:
        return 77
    if checked < least:
        wrong.append(f"{checked} traces were read, {least} expected")
    head = ["| trace | rank | step | compute | exposed transfers | main stream idle: host | a transfer "
            "| a rank | gaps | largest difference |", "|---|---|---|---|---|---|---|---|---|---|"]
    block = "\n".join([BEGIN] + head + table + [END])
    text = block
    if not page.isdigit():
        with open(page, encoding="utf-8") as f:
            text = f.read()
    if write:
        begin, end = text.index(BEGIN), text.index(END) + len(END)
        with open(page, "w", encoding="utf-8") as f:
            f.write(text[:begin] + block + text[end:])
    elif block not in text:
        wrong.append(f"{page}: its table is not the one made here; make it with --write")
    print("\n".join(table + wrong))
    print(f"{checked} traces checked, {len(wrong)} figures differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
