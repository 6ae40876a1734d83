"""What commands answer: dicts whose keys are attributes, too."""

from __future__ import annotations

import difflib
import html
import importlib
import json
import os
import re
from typing import Any, Dict, Iterable, List, Optional, Union

from . import _plot
from ._call import run

Path = Union[str, "os.PathLike[str]"]


class Text(str):
    """A text that an interpreter prints as it reads."""

    def __repr__(self) -> str:
        return str(self)


def _short(value: Any) -> str:
    """A number, a word or a flag as it is; of what is larger how much there is."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return f"[{len(value)}]"
    return "{..}" if isinstance(value, dict) else str(value)


class Record(Dict[str, Any]):
    """A part of an answer: `record.key` is `record["key"]`."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        if name.startswith("__"):
            raise AttributeError(name)
        near = difflib.get_close_matches(name, map(str, self), 1)
        raise AttributeError(f"no '{name}' here" + (f"; did you mean '{near[0]}'?" if near else f"; there is {', '.join(map(str, self))}"))

    def __dir__(self) -> List[str]:
        return [*super().__dir__(), *(key for key in self if key.isidentifier())]

    def to_dict(self) -> Dict[str, Any]:
        """A copy in plain dicts and lists."""
        plain: Dict[str, Any] = json.loads(json.dumps(self))
        return plain


class Planned(Record):
    """A job with its plan: of a ranking, or of what was predicted. It is a job for every command."""

    def to_framework(self, name: str, file: Optional[Path] = None) -> Text:
        """The plan as the framework reads it: "megatron", "nemo", "torchtitan", "deepspeed"; into a file, too."""
        text = Text(run("export", [self], {"to": name}).text)
        if file is not None:
            with open(file, "w", encoding="utf-8") as opened:
                opened.write(text)
        return text

    def to_megatron(self, file: Optional[Path] = None) -> Text:
        """Arguments of Megatron-LM."""
        return self.to_framework("megatron", file)

    def to_nemo(self, file: Optional[Path] = None) -> Text:
        """A recipe of NeMo."""
        return self.to_framework("nemo", file)

    def to_torchtitan(self, file: Optional[Path] = None) -> Text:
        """A config of torchtitan."""
        return self.to_framework("torchtitan", file)

    def to_deepspeed(self, file: Optional[Path] = None) -> Text:
        """A config of DeepSpeed."""
        return self.to_framework("deepspeed", file)


class Result(Record):
    """The JSON document of a command (docs/reference/outputs.md)."""

    command: str
    notes: str      #: what the command said beside its answer: warnings, files written
    exit_code: int  #: 0 done, 1 a check said no, 5 the data allow no verdict
    _screen: str

    def __str__(self) -> str:
        return str(self.summary())

    def __repr__(self) -> str:
        keys = [key for key in self if isinstance(self[key], (int, float, str))]
        return f"<stepcast {self.command}: {', '.join(f'{key} {_short(self[key])}' for key in (keys or list(self))[:12])}>"

    def summary(self) -> Text:
        """What the command prints for people."""
        return Text(re.sub(r"^  next .*\n(?: {9}stepcast .*\n)*", "", self._screen, flags=re.MULTILINE))

    def to_json(self, file: Optional[Path] = None) -> str:
        """The document as text; into a file, too."""
        text = json.dumps(self, indent=2)
        if file is not None:
            with open(file, "w", encoding="utf-8") as opened:
                opened.write(text + "\n")
        return text

    @property
    def tables(self) -> Dict[str, List[Record]]:
        """The lists of rows in the document, by key."""
        return {key: value for key, value in self.items()
                if isinstance(value, list) and value and all(isinstance(row, dict) for row in value)}

    def to_pandas(self, table: Optional[str] = None) -> Any:
        """One of `tables` as a DataFrame, the longest unless named; nested values get dotted columns."""
        pandas: Any = importlib.import_module("pandas")
        tables = self.tables
        if table is None and not tables:
            return pandas.json_normalize(self.to_dict())
        name = table if table is not None else max(tables, key=lambda key: len(tables[key]))
        if name not in tables:
            raise KeyError(f"the answer of {self.command} has no table '{name}'; it has {', '.join(tables) or 'none'}")
        return pandas.json_normalize(tables[name])

    def plot(self, axes: Any = None) -> Any:
        """Draws the answer with matplotlib; returns the axes."""
        return _plot.draw(self.command, self, axes)

    def _repr_html_(self) -> str:
        """The pictures of the report; of what it does not know, the text."""
        try:
            return run("picture", [self], {}).text
        except ValueError:
            return f"<pre>{html.escape(str(self))}</pre>"


class Prediction(Result, Planned):
    """One training step."""

    iteration_time_s: float
    interval_s: Record
    fits: bool
    mfu: float
    throughput: Record
    time_s: Record
    memory_bytes: Record
    job: Record
    warnings: List[str]


class Plans(Result):
    """Ranked plans."""

    plans: List[Planned]
    bound: Record

    @property
    def best(self) -> Planned:
        """The plan that is predicted to be the fastest."""
        return Planned(self["plans"][0])


class Sweep(Result):
    """One prediction per point."""

    points: List[Record]


def answer(kind: type, command: str, places: Iterable[Any], options: Dict[str, Any], progress: Any = None) -> Any:
    """Runs a command; its document as `kind`."""
    got = run(command, places, options, progress)
    document = json.loads(got.text, object_hook=Record) if got.text.strip() else Record()
    if not isinstance(document, dict):
        document = Record(rows=document)
    result = kind(document)
    result.__dict__.update(command=command, notes=got.notes, exit_code=got.code, _screen=got.screen or got.text)
    for i, plan in enumerate(result.get("plans", [])):
        if kind is Plans:
            result["plans"][i] = Planned(plan)
    return result
