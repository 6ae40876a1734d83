"""Requests made of Python values."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Union

from . import _library
from ._errors import EnvironmentLack, error_of

_ANSWERS = (0, 1, 5)  # done; a check said no; no verdict
_DEGREES = {"gpus", "devices", "tp", "parallel.tensor", "pp", "parallel.pipeline", "cp", "parallel.context"}
_OF_DOCUMENTS = ("picture", "report")  # they take answers as they are


def plain(value: Any, keep_none: bool = False) -> Any:
    """In types of JSON: dataclasses, ranges, numbers and arrays of NumPy, paths. Fields that are None were not set."""
    if value is None or isinstance(value, (str, bool, int, float)) and type(value).__module__ == "builtins":
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items() if entry is not None or keep_none}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):  # NumPy's, pandas'
        return value.tolist()
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Iterable):
        return [plain(entry) for entry in value]
    return value


def _input(place: Any, command: str, changes: Iterable[str]) -> Any:
    """A job of what was answered: of a ranking its best plan, of a forecast what was forecast."""
    place = plain(place)
    if not isinstance(place, dict) or command in _OF_DOCUMENTS:
        return place
    job = place
    if place.get("plans"):
        job = place = place["plans"][0]
        if isinstance(place.get("job"), dict):
            job = place["job"]
    elif "iteration_time_s" in place and "job" in place:
        job = place = place["job"]
    elif isinstance(place.get("job"), dict):
        job = place["job"]
    if _DEGREES.intersection(changes) and not {"dp", "parallel.data"}.intersection(changes) and job.get("stepcast"):
        job.get("parallel", {}).pop("data", None)  # it follows from the others
    return place


def run(command: str, places: Iterable[Any], options: Mapping[str, Any],
        progress: Optional[_library.Progress] = None) -> _library.Answer:
    """Calls a command."""
    given = {name: plain(value, name in ("set", "with")) for name, value in options.items() if value is not None}
    changes = {*given, *given.get("set", {})}
    request = {"command": command, "options": given, "screen": True,
               "inputs": [_input(place, command, changes) for place in places if place is not None]}
    answer = _library.call(json.dumps(request), progress)
    if answer.code not in _ANSWERS:
        raise error_of(answer.code, answer.error)
    return answer


def executable() -> str:
    """The program `stepcast`, for what starts ranks."""
    found = shutil.which("stepcast")
    if found is None:
        raise EnvironmentLack("this starts processes of the program `stepcast`, which is not on the PATH; install its package")
    return found


def run_executable(command: str, places: Iterable[Any], options: Mapping[str, Any]) -> Any:
    """A command that starts ranks, by the program."""
    with tempfile.TemporaryDirectory() as folder:
        arguments: List[str] = [executable(), command]
        for i, place in enumerate(p for p in places if p is not None):
            value = _input(place, command, {*options, *(options.get("set") or {})})
            if isinstance(value, dict):
                file = Path(folder) / f"job{i}.json"
                file.write_text(json.dumps(value), encoding="utf-8")
                value = str(file)
            arguments.append(value)
        for name, value in options.items():
            option = "--" + name.rstrip("_").replace("_", "-")
            values: Union[List[Any], Dict[str, Any]] = plain(value) if isinstance(value, (Mapping, list, tuple)) else [plain(value)]
            for entry in values.items() if isinstance(values, dict) else values:
                if isinstance(entry, tuple):
                    entry = f"{entry[0]}={entry[1] if isinstance(entry[1], str) else json.dumps(entry[1])}"
                if entry is True:
                    arguments.append(option)
                elif entry is not None and entry is not False:
                    arguments += [option, str(entry)]
        done = subprocess.run([*arguments, "--format", "json"], capture_output=True, text=True)
    if done.returncode not in _ANSWERS:
        raise error_of(done.returncode, done.stderr.strip().rpartition("stepcast: ")[2])
    return json.loads(done.stdout) if done.stdout.strip() else {}
