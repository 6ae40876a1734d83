"""Calls into libstepcast.so (docs/reference/c-interface.md): a request as JSON, an answer as text."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Callable, List, NamedTuple, Optional

Progress = Callable[[float, str], None]

_API_VERSION = 1


def _found() -> str:
    """The library: of a wheel or a build beside this file, of an installed package in the folder of libraries, else the loader's."""
    here = Path(__file__).parent
    installed = f"libstepcast.so.{_API_VERSION}"
    places = [here / "libstepcast.so", *here.parents[2].glob(installed), *here.parents[2].glob("*/" + installed)]
    return next((str(place) for place in places if place.exists()), installed)


def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(_found())
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
            ("api_version", number, ()), ("version", text, ()),
            ("open", pointer, (text, ctypes.POINTER(text))), ("start", pointer, (pointer, text)),
            ("wait", number, (pointer, number)), ("progress", ctypes.c_double, (pointer, ctypes.POINTER(text))),
            ("status", number, (pointer,)), ("answer", text, (pointer,)), ("screen", text, (pointer,)),
            ("notes", text, (pointer,)), ("error", text, (pointer,)), ("free", None, (pointer,)),
            ("main", number, (number, ctypes.POINTER(text)))):
        function = getattr(library, "stepcast_" + name)
        function.restype, function.argtypes = result, arguments
    if library.stepcast_api_version() != _API_VERSION:
        raise ImportError(f"{library._name} has version {library.stepcast_api_version()} of the C interface, "
                          f"expected {_API_VERSION}")
    return library


_c = _load()
version: str = _c.stepcast_version().decode()
_engine: Optional[int] = None


def _opened() -> int:
    """The engine of this process: it keeps the data files it has read."""
    global _engine
    if _engine is None:
        why = ctypes.c_char_p()
        _engine = _c.stepcast_open(None, ctypes.byref(why))
        if _engine is None:
            raise ImportError((why.value or b"").decode())
    return _engine


def _forget_engine() -> None:
    """A fork may have come while another thread held a lock of the engine."""
    global _engine
    _engine = None


os.register_at_fork(after_in_child=_forget_engine)


class Answer(NamedTuple):
    code: int
    text: str
    screen: str
    notes: str
    error: str


def call(request: str, progress: Optional[Progress] = None) -> Answer:
    """Runs a request. Other threads go on meanwhile; what interrupts the wait, or what `progress` raises, ends it."""
    running = _c.stepcast_start(_opened(), request.encode())
    if not running:
        raise MemoryError("no thread for the call")
    try:
        note = ctypes.c_char_p()
        while not _c.stepcast_wait(running, 50):
            share = _c.stepcast_progress(running, ctypes.byref(note))
            if share >= 0 and progress is not None:
                progress(share, (note.value or b"").decode())
        return Answer(_c.stepcast_status(running),
                      *(part(running).decode() for part in (_c.stepcast_answer, _c.stepcast_screen, _c.stepcast_notes, _c.stepcast_error)))
    finally:
        _c.stepcast_free(running)


def main(arguments: List[str]) -> int:
    """The command line, on the terminal; the exit code."""
    code: int = _c.stepcast_main(len(arguments), (ctypes.c_char_p * len(arguments))(*map(os.fsencode, arguments)))
    return code
