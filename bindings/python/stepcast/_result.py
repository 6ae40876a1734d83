"""What a command answered."""

from __future__ import annotations

import copy
import html
import importlib
import json
from typing import Any, Dict, Iterator, List, Mapping, Optional

from . import _stepcast


def _short(value: Any) -> str:
    """A number, a word or a flag as it is; of what is larger how much there is."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return f"[{len(value)}]"
    return "{..}" if isinstance(value, dict) else str(value)


class Result(Mapping[str, Any]):
    """The JSON document of a command (docs/reference/outputs.md): its keys are items and attributes.

    It is read when first asked for.
    """

    def __init__(self, command: str, text: str, notes: str, exit_code: int) -> None:
        self._read: Any = None
        self.command = command
        self.text = text            #: what it printed
        self.notes = notes          #: what it said beside that: warnings, files written
        self.exit_code = exit_code  #: 0 done, 1 a check said no, 5 the data allow no verdict

    @property
    def _document(self) -> Any:
        if self._read is None:
            self._read = json.loads(self.text) if self.text else {}
        return self._read

    def __getitem__(self, key: str) -> Any:
        return self._document[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._document)

    def __len__(self) -> int:
        return len(self._document)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and isinstance(self._document, dict) and name in self._document:
            return self._document[name]
        raise AttributeError(f"the answer of {self.command} has no '{name}'; it has {', '.join(map(str, self))}")

    def __dir__(self) -> List[str]:
        return [*super().__dir__(), *(k for k in self if isinstance(k, str))]

    def __repr__(self) -> str:
        return f"<stepcast {self.command}: {', '.join(f'{key} {_short(self[key])}' for key in self)}>"

    def to_dict(self) -> Dict[str, Any]:
        """A copy of the document."""
        document: Dict[str, Any] = copy.deepcopy(self._document)
        return document

    @property
    def tables(self) -> Dict[str, List[Dict[str, Any]]]:
        """The lists of rows in the document, by key."""
        return {key: value for key, value in self._document.items()
                if isinstance(value, list) and value and all(isinstance(row, dict) for row in value)}

    def to_pandas(self, table: Optional[str] = None) -> Any:
        """One of `tables` as a DataFrame, the longest unless named; nested values get dotted columns."""
        pandas: Any = importlib.import_module("pandas")

        tables = self.tables
        if table is None and not tables:
            return pandas.json_normalize(self._document)
        name = table if table is not None else max(tables, key=lambda key: len(tables[key]))
        if name not in tables:
            raise KeyError(f"the answer of {self.command} has no table '{name}'; it has {', '.join(tables) or 'none'}")
        return pandas.json_normalize(tables[name])

    def _repr_html_(self) -> str:
        """The pictures that `stepcast report` draws of this answer; of what it does not know, the text."""
        try:
            return _stepcast.pictures(self.command, self.text)
        except ValueError:
            return f"<pre>{html.escape(self.text)}</pre>"
