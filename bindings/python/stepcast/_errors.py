"""What goes wrong, in the words of Python."""

from __future__ import annotations

import json
import re
import shlex
from typing import List


class Error(Exception):
    """Why there is no answer; `code` is the exit code of the command."""

    code = 70


class InputError(Error, ValueError):
    """The input is wrong: place, found, expected, fix."""

    code = 2


class EnvironmentLack(Error, OSError):
    """The machine lacks something that was asked for."""

    code = 3


class RunError(Error, RuntimeError):
    """A command failed while running."""

    code = 4


class InternalError(Error):
    """A defect of stepcast."""


def error_of(code: int, text: str) -> Error:
    kinds = {kind.code: kind for kind in (InputError, EnvironmentLack, RunError)}
    error = kinds.get(code, InternalError)(in_python(text))
    error.code = code
    return error


def _value(text: str) -> str:
    """As Python writes it: a number or a flag as it is, other words in quotes."""
    try:
        return repr(json.loads(text))
    except ValueError:
        return text if text.startswith(("...", "NAME")) else json.dumps(text)


def _setting(key: str, value: str) -> str:
    return f"set={{{json.dumps(key)}: {_value(value)}}}"


def _call(match: "re.Match[str]") -> str:
    """`stepcast plan llama3-8b --gpus 8` as the call it is."""
    try:
        words = shlex.split(match.group(1))
    except ValueError:
        return match.group(0)
    if not words:
        return "`stepcast`"
    if words[0] == "list":
        return f"`stepcast.{_LISTS.get(words[-1], words[-1])}()`"
    if words[0] == "help":
        words = [*words[1:], "--help"]
    if words[-1] == "--help":
        return f"`help(stepcast{''.join('.' + word for word in words[:-1])})`"
    command = words.pop(0) if re.fullmatch("[a-z]+", words[0]) and words[0] in _COMMANDS else "predict"
    given: List[str] = []
    while words:
        word = words.pop(0)
        if word.startswith("-"):
            name, equals, value = word.lstrip("-").partition("=")
            name = {"n": "gpus", "o": "out"}.get(name, name)
            if not equals:
                value = words.pop(0) if words and not words[0].startswith("-") else "true"
            key, equals, entry = value.partition("=")
            given.append(_setting(key, entry) if name == "set" and equals else f"{name.replace('-', '_')}={_value(value)}")
        else:
            given.append(word if word == "..." else _value(word))
    return f"`stepcast.{command}({', '.join(given)})`"


_LISTS = {"stacks": "frameworks", "models": "workloads"}
_COMMANDS = ("predict", "sweep", "plan", "explain", "diff", "compare", "replay", "guard", "show", "convert", "job", "fit",
             "calibrate", "run", "validate", "profile", "report", "doctor")


def in_python(text: str) -> str:
    """A sentence of a command with keywords in place of flags and calls in place of command lines."""
    text = re.sub(r"`stepcast ([^`]*)`", _call, text)
    text = re.sub(r"--set ([\w.\[\]]+)=([^\s,;:()`]+)", lambda m: _setting(m[1], m[2].strip("\"'")), text)
    text = re.sub(r"--([a-z][a-z-]+)[ =](\d[\w.]*)", lambda m: f"{m[1].replace('-', '_')}={_value(m[2])}", text)
    return re.sub(r"(?<![\w-])--([a-z][a-z-]+)", lambda m: m[1].replace("-", "_"), text)
