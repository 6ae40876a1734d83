#!/usr/bin/env python3
"""Runs the commands of documentation pages and compares what they print with what the pages show.

Usage: check_page.py [--write] [--recorded TRACE] STEPCAST PAGE...   (exit 77: TRACE is not there)

The blocks of a page run in its order, in one empty folder that holds `docs`, a link to the project's.

  ```sh             commands, one a line (a backslash continues it); each must exit with 0
  ```console        commands after `$ ` and their standard output, word for word; a line `...` stands for any number
                    of lines, at least one. --write puts in what was printed, around `...` as many lines as
                    stood there
  ```json FILE.json a file that the commands after it read; any other name with a dot likewise

--recorded puts runs base-1 ... base-6 and now-1 ... now-3 there: copies of one recorded trace whose kernels are a
little shorter, each by an amount of its own.
"""
import argparse
import difflib
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def record_runs(trace, folder):
    with gzip.open(trace) as f:
        whole = json.load(f)
    random.seed(1)
    for name in [f"base-{i}" for i in range(1, 7)] + [f"now-{i}" for i in range(1, 4)]:
        events = []
        for event in whole["traceEvents"]:
            if event.get("cat") in ("kernel", "Kernel"):  # shorter only: kernels of a stream stay apart
                event = dict(event, dur=round(event["dur"] * (1 - 0.02 * random.random()), 3))
            events.append(event)
        os.mkdir(os.path.join(folder, name))
        with gzip.open(os.path.join(folder, name, "rank0.json.gz"), "wt", compresslevel=1) as out:
            out.write(json.dumps(dict(whole, traceEvents=events)))  # json.dump encodes in Python


def commands_of(text):
    """Pairs of a command and the lines shown below it."""
    found, continued = [], False
    for line in text.splitlines():
        if continued:
            found[-1][0] += "\n" + line
        elif line.startswith("$ "):
            found.append([line[2:], []])
        elif found:
            found[-1][1].append(line)
        else:
            raise SystemExit(f"a console block begins with output: {line}")
        continued = (continued or line.startswith("$ ")) and line.endswith("\\")
    return found


def meets(shown, printed):
    if not shown or not printed:
        return shown == printed
    if shown[0] == "...":
        return any(meets(shown[1:], printed[i:]) for i in range(1, len(printed) + 1))
    return shown[0] == printed[0] and meets(shown[1:], printed[1:])


def rewritten(shown, printed):
    """What --write puts in: a piece between lines `...` keeps its length, and stands where lines are most like it.

    >>> rewritten(["...", "b 1", "...", "d"], ["a", "b 2", "c", "x", "d"])
    ['...', 'b 2', '...', 'd']
    >>> rewritten(["a", "..."], ["a 2", "b", "c"])
    ['a 2', '...']
    >>> rewritten(["...", "c"], ["d"])
    ['d']
    """
    if "..." not in shown or len(printed) < len(shown):
        return printed
    edges = [-1, *(i for i, line in enumerate(shown) if line == "..."), len(shown)]
    first, *middle, last = (shown[a + 1:b] for a, b in zip(edges, edges[1:]))
    lines, end = printed[:len(first)], len(printed) - len(last)
    at, left = len(first), sum(map(len, middle)) + len(middle)
    for piece in middle:
        left -= len(piece) + 1
        found = max(range(at + 1, end - left - len(piece)), key=lambda i: sum(
            difflib.SequenceMatcher(None, *pair).ratio() for pair in zip(piece, printed[i:])))
        lines += ["...", *printed[found:found + len(piece)]]
        at = found + len(piece)
    return lines + ["...", *printed[end:]]


class Page:
    def __init__(self, stepcast, folder, write):
        path = os.path.dirname(os.path.abspath(stepcast)) + os.pathsep + os.environ["PATH"]
        self.folder, self.environment = folder, dict(os.environ, PATH=path, COLUMNS="", LC_ALL="C.UTF-8")
        self.write, self.commands, self.failures = write, 0, []

    def run(self, command):
        done = subprocess.run(["bash", "-c", command], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        self.commands += 1
        if done.returncode != 0:
            self.failures.append(f"{command}\nexit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr}")
        return [line.rstrip() for line in done.stdout.splitlines()]

    def block(self, match):
        """What stands in the page for this block once it has run."""
        info, text = match.group(1).split(), match.group(2)
        if len(info) == 2 and "." in info[1]:
            with open(os.path.join(self.folder, info[1]), "w", encoding="utf-8") as out:
                out.write(text)
        elif info == ["sh"]:
            for command in re.sub(r"\\\n", " ", text).splitlines():
                if command.strip():
                    self.run(command)
        elif info == ["console"]:
            lines = []
            for command, shown in commands_of(text):
                printed = self.run(command)
                while shown and not shown[-1]:
                    shown.pop()
                if not meets(shown, printed) and not self.write:
                    self.failures.append("\n".join([command, "prints", *printed, "shown", *shown]))
                lines += ["$ " + command, *(rewritten(shown, printed) if self.write else shown), ""]
            return "```console\n" + "\n".join(lines[:-1]) + "\n```"
        return match.group(0)


def check(name, links, options):
    """Whether all that the page shows is so; prints what is not."""
    with open(name, encoding="utf-8") as f:
        text = f.read()
    with tempfile.TemporaryDirectory() as folder:
        for link in links:
            os.symlink(link, os.path.join(folder, os.path.basename(link)))
        page = Page(options.stepcast, folder, options.write)
        now = BLOCK.sub(page.block, text)
    if options.write and now != text:
        with open(name, "w", encoding="utf-8") as f:
            f.write(now)
    print("\n\n".join([f"{name}: {page.commands} commands run", *page.failures]))
    return bool(page.commands) and not page.failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--recorded")
    parser.add_argument("stepcast")
    parser.add_argument("pages", nargs="+", metavar="page")
    options = parser.parse_args()
    if options.recorded and not os.path.isfile(options.recorded):
        print(f"skipped: no {options.recorded}")
        return 77
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with tempfile.TemporaryDirectory() as runs:
        if options.recorded:
            record_runs(options.recorded, runs)
        links = [os.path.join(root, "docs")] + [os.path.join(runs, name) for name in os.listdir(runs)]
        good = [check(name, links, options) for name in options.pages]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
