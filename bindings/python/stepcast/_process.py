"""Runs the executable of the package, with Python values as its arguments."""

from __future__ import annotations

import json as _json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from ._result import Result


class Error(Exception):
    """What the command said, in its words; `code` is its exit code."""

    code = 70


class InputError(Error, ValueError):
    """The input is wrong: place, found, expected, remedy."""

    code = 2


class EnvironmentLack(Error, OSError):
    """The machine lacks something that was asked for."""

    code = 3


class RunError(Error, RuntimeError):
    """A run failed while running."""

    code = 4


class InternalError(Error):
    """A defect of stepcast."""


_ERRORS = {error.code: error for error in (InputError, EnvironmentLack, RunError)}
_ANSWERS = (0, 1, 5)  # done; a check said no; no verdict


def executable() -> str:
    """The stepcast that is called: the one of this package, else the one in PATH."""
    own = Path(__file__).parent / "bin" / "stepcast"
    found = str(own) if own.exists() else shutil.which("stepcast")
    if found is None:
        raise EnvironmentLack("no stepcast in this package nor in PATH; install the wheel, or put stepcast into PATH")
    return found


def run(command: str, places: Sequence[Any], *, json: bool = True, **options: Any) -> Result:
    """`stepcast command places... --options`: dicts among `places` become files for as long as it runs."""
    with tempfile.TemporaryDirectory(prefix="stepcast-") as folder:
        arguments = [command, *_files(places, folder)]
        for name, value in options.items():
            arguments += _option(name, value)
        if json:
            arguments += ["--format", "json"]
        done = subprocess.run([executable(), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode not in _ANSWERS:
        words = done.stderr.strip()
        if words.startswith("stepcast: "):
            words = words[len("stepcast: "):]
        error = _ERRORS.get(done.returncode, InternalError)(words)
        error.code = done.returncode
        raise error
    return Result(command, _json.loads(done.stdout) if json and done.stdout else {}, done.stdout, done.stderr, done.returncode)


def _files(places: Sequence[Any], folder: str) -> Iterator[str]:
    for number, place in enumerate(places):
        if isinstance(place, Mapping):
            file = Path(folder) / f"{'ab'[number]}.json"
            file.write_text(_json.dumps(_plain(place)), encoding="utf-8")
            yield str(file)
        elif place is not None:
            yield os.fspath(place)


def _plain(value: Any) -> Any:
    return value.to_dict() if isinstance(value, Result) else dict(value)


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):  # of a sweep
        return ",".join(_text(v) for v in value)
    if isinstance(value, (bool, dict)) or value is None:
        return _json.dumps(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _option(name: str, value: Any) -> Iterator[str]:
    option = "--" + name.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return
    if value is True:
        yield option
    elif isinstance(value, Mapping):  # set={"parallel.tensor": 8}
        for key, entry in value.items():
            yield from (option, f"{key}={_text(entry)}")
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from (option, _text(entry))
    else:
        yield from (option, _text(value))
