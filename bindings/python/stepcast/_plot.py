"""Pictures with matplotlib."""

from __future__ import annotations

import importlib
from typing import Any, Dict, List, Mapping

_GIB = 2**30


def _bars(axes: Any, parts: Mapping[str, float], unit: str) -> None:
    left = 0.0
    for name, value in parts.items():
        if value:
            axes.barh([unit], [value], left=[left], label=f"{name} {value:.3g}")
            left += value
    axes.legend(fontsize="small")
    axes.set_xlabel(unit)


def _prediction(document: Mapping[str, Any], axes: Any) -> None:
    parts = {name[:-2] if name.endswith("_s") else name: value for name, value in document["time_s"].items()
             if isinstance(value, (int, float)) and name not in ("total", "step")}
    _bars(axes, {name.replace("_", " "): value for name, value in parts.items()}, "s")
    axes.set_title(f"{document['iteration_time_s']:.3g} s a step" + ("" if document["fits"] else ", out of memory"))


def _sweep(document: Mapping[str, Any], axes: Any) -> None:
    points: List[Dict[str, Any]] = [p for p in document["points"] if p.get("iteration_time_s") is not None]
    keys = list(points[0]["set"])
    label = ", ".join(keys)
    x = [p["set"][keys[0]] if len(keys) == 1 else ", ".join(str(v) for v in p["set"].values()) for p in points]
    if not all(isinstance(v, (int, float)) for v in x):
        x = [str(v) for v in x]
    y = [p["iteration_time_s"] for p in points]
    axes.plot(x, y, color="tab:blue")
    fits = [bool(p["fits"]) for p in points]
    for wanted, marker, name in ((True, "o", "fits"), (False, "x", "out of memory")):
        if wanted in fits:
            axes.plot([v for v, f in zip(x, fits) if f == wanted], [v for v, f in zip(y, fits) if f == wanted], marker,
                      color="tab:blue", label=name)
    axes.legend()
    axes.set_xlabel(label)
    axes.set_ylabel("s a step")


def _plans(document: Mapping[str, Any], axes: Any) -> None:
    for i, plan in enumerate(document["plans"], 1):
        axes.barh([f"plan {i}"], [plan["predicted_step_s"]], color="tab:blue")
    axes.invert_yaxis()
    axes.set_xlabel("s a step")


def _difference(document: Mapping[str, Any], axes: Any) -> None:
    rows = sorted(document["parts"], key=lambda row: abs(float(row["delta_s"])))
    axes.barh([row["part"] for row in rows], [row["delta_s"] for row in rows],
              color=["tab:red" if row["delta_s"] > 0 else "tab:green" for row in rows])
    axes.set_xlabel("s a step, B - A")


_DRAWN = {"predict": _prediction, "sweep": _sweep, "plan": _plans, "explain": _difference, "diff": _difference}


def draw(command: str, document: Mapping[str, Any], axes: Any) -> Any:
    if command not in _DRAWN:
        raise TypeError(f"no picture of the answer of {command}; there is one of {', '.join(_DRAWN)}")
    if axes is None:
        axes = importlib.import_module("matplotlib.pyplot").subplots(layout="constrained")[1]
    _DRAWN[command](document, axes)
    return axes


def memory(document: Mapping[str, Any], axes: Any = None) -> Any:
    """The memory of the fullest rank by purpose, in GiB."""
    if axes is None:
        axes = importlib.import_module("matplotlib.pyplot").subplots(layout="constrained")[1]
    _bars(axes, {name: value / _GIB for name, value in document["memory_bytes"].items() if name not in ("total", "capacity", "free")}, "GiB")
    return axes
