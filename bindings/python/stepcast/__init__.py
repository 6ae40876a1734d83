"""Forecast a training step before you run it, from Python.

    import stepcast
    step = stepcast.predict(set={"workload": "llama3-8b", "system": "dgx-h100", "devices": 8})
    step["iteration_time_s"], step.memory_bytes["total"]
    stepcast.sweep(set={"workload": "llama3-8b", "system": "dgx-h100", "devices": [8, 16, 32]}).to_pandas()

Every function is the command of that name (docs/reference/commands.md): a job is a dict or a file, an option `--time-limit 5` is
`time_limit=5`. The commands run in processes of their own, so other Python threads go on meanwhile and an interrupt ends
them.
"""

from __future__ import annotations

import os
from typing import Any, Iterable, Mapping, Optional, Union

from ._process import EnvironmentLack, Error, InputError, InternalError, RunError, executable, run
from ._result import Result

__all__ = ["predict", "plan", "sweep", "explain", "replay", "show", "convert", "version", "executable",
           "Result", "Error", "InputError", "EnvironmentLack", "RunError", "InternalError"]

Job = Union[Mapping[str, Any], str, "os.PathLike[str]", None]
Settings = Optional[Mapping[str, Any]]


def predict(job: Job = None, *, set: Settings = None, **options: Any) -> Result:
    """The time of one training step, where it goes, memory, throughput."""
    return run("predict", [job], set=set, **options)


def sweep(job: Job = None, *, set: Settings = None, **options: Any) -> Result:
    """One prediction per point of the cross product of the settings that are lists."""
    return run("sweep", [job], set=set, **options)


def plan(job: Job = None, *, set: Settings = None, **options: Any) -> Result:
    """Ranked plans: of embedding tables, or of the ways to split a transformer."""
    return run("plan", [job], set=set, **options)


def explain(a: Job = None, b: Job = None, *, set: Settings = None, with_: Settings = None, **options: Any) -> Result:
    """Where the difference between two jobs, plans or traces comes from; `with_` makes B of A."""
    return run("explain", [a, b], set=set, with_=with_, **options)


def replay(traces: Union[str, "os.PathLike[str]", Iterable[Union[str, "os.PathLike[str]"]]], **options: Any) -> Result:
    """Recorded runs simulated again: errors with controls, what-if (`scale=["gemm=0.5"]`), a guard (`baseline=FILE`)."""
    many = [traces] if isinstance(traces, (str, os.PathLike)) else list(traces)
    return run("replay", many, **options)


def show(what: Job = None, *, set: Settings = None, **options: Any) -> Result:
    """What a job, trace, system, device or plan consists of."""
    return run("show", [what], set=set, **options)


def convert(source: Union[str, "os.PathLike[str]"], target: Union[str, "os.PathLike[str]"], **options: Any) -> str:
    """Writes a trace in another format (`to="perfetto"`), or a job of what other tools write; returns the target."""
    run("convert", [source, target], json=False, **options)
    return os.fspath(target)


def version() -> str:
    """Version, revision, compiler and what is built in."""
    return run("--version", [], json=False).text
