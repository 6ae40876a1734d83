"""What is built in, and commands of the program alone."""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping, Optional

from ._answers import Record
from ._call import run as _run, run_executable


def _listed(what: str) -> Dict[str, str]:
    return {entry["name"]: entry["facts"] for entry in json.loads(_run("list", [what], {}).text)}


def workloads() -> Dict[str, str]:
    """The built-in models: names and what they are."""
    return _listed("workloads")


def systems() -> Dict[str, str]:
    """The built-in systems: names and what they are."""
    return _listed("systems")


def devices() -> Dict[str, str]:
    """The built-in devices: names and what they are."""
    return _listed("devices")


def frameworks() -> Dict[str, str]:
    """The frameworks a job may run on: names and what they are."""
    return _listed("stacks")


def keys() -> Dict[str, str]:
    """The keys of a job, for `set` and dicts: paths and what they mean."""
    return _listed("keys")


def run(job: Any = None, *, set: Optional[Mapping[str, Any]] = None, **options: Any) -> Record:
    """Trains a few steps of the job for real, by the program `stepcast`; options as `stepcast run --help` lists them."""
    return Record(run_executable("run", [job], {"set": set, **options}))


def calibrate(**options: Any) -> Record:
    """Measures this machine, by the program `stepcast`; options as `stepcast calibrate --help` lists them."""
    return Record(run_executable("calibrate", [], options))
