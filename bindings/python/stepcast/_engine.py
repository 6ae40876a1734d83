"""Calls commands with Python values as their arguments."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence

from . import _stepcast
from ._result import Result

Progress = Callable[[float, str], None]


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
    """A command failed while running."""

    code = 4


class InternalError(Error):
    """A defect of stepcast."""


_ERRORS = {error.code: error for error in (InputError, EnvironmentLack, RunError)}
_ANSWERS = (0, 1, 5)  # done; a check said no; no verdict


def _library() -> str:
    """The data files of this package, or of the source tree it was built from."""
    own = Path(__file__).parent / "share" / "stepcast"
    return str(own) if own.is_dir() else _stepcast.source


_engine = _stepcast.Engine(_library())


def run(command: str, places: Sequence[Any], *, document: bool = True, progress: Optional[Progress] = None, **options: Any) -> Result:
    """`stepcast command places... --options`. Places that are no files stand as documents under a name of theirs."""
    documents: Dict[str, str] = {}
    given = [place for place in places if place is not None]
    arguments = [command, *(_place(place, f"job {'AB'[i]}" if len(given) > 1 else "job", documents) for i, place in enumerate(given))]
    for name, value in options.items():
        arguments += _option(name, value)
    if document:
        arguments += ["--format", "json"]
    code, text, notes = _engine.run(arguments, documents, progress)
    if code not in _ANSWERS:
        words = notes.strip()
        if words.startswith("stepcast: "):
            words = words[len("stepcast: "):]
        error = _ERRORS.get(code, InternalError)(words)
        error.code = code
        raise error
    return Result(command, text, notes, code)


def _place(place: Any, name: str, documents: Dict[str, str]) -> str:
    if isinstance(place, Result):
        documents[name] = place.text
    elif isinstance(place, Mapping):
        documents[name] = json.dumps(_plain(place))
    elif dataclasses.is_dataclass(place) and not isinstance(place, type):
        documents[name] = json.dumps(_plain(dataclasses.asdict(place)))
    else:
        return str(os.fspath(place))
    return name


def _plain(value: Any) -> Any:
    """Without what is None: a field of a dataclass that was not set."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):  # of a sweep
        return ",".join(_text(v) for v in value)
    if isinstance(value, (bool, dict)) or value is None:
        return json.dumps(value)
    return str(os.fspath(value) if isinstance(value, os.PathLike) else value)


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
