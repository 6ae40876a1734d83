#!/usr/bin/env python3
"""Puts the module, its data files and the page's sources into one file that needs nothing else.

pack.py BUILD: reads BUILD/stepcast_web.js and .wasm and BUILD/page.js (the modules of page/, bundled), writes BUILD/index.html and
BUILD/data.json.
"""
import base64
import gzip
import json
import pathlib
import re
import sys

build = pathlib.Path(sys.argv[1])
root = pathlib.Path(__file__).resolve().parents[2]
page = pathlib.Path(__file__).resolve().parent / "page"

# What a library has (core/config/config.h), as it is installed.
# Devices share most of their measured points, farther apart than gzip looks back: each line is kept once.
numbers, data = {}, {}
for folder in ["workloads/zoo", "workloads/published", "models/devices", "models/systems", "models/stacks"]:
    for file in sorted((root / folder).rglob("*.json")):
        data[str(file.relative_to(root))] = [numbers.setdefault(line, len(numbers)) for line in file.read_text().split("\n")]


def packed(content):
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


def script(text):
    """JavaScript inside an element of HTML."""
    return re.sub(r"</(script)", r"<\\/\1", text)


def licence(package):
    return (pathlib.Path("/usr/share/doc") / package / "copyright").read_text()


libraries = {"Emscripten and its C and C++ libraries": "emscripten", "fmt": "libfmt-dev", "JSON for Modern C++": "nlohmann-json3-dev",
             "CLI11": "libcli11-dev", "Boost": "libboost-dev", "Eigen": "libeigen3-dev", "toml++": "libtomlplusplus-dev"}
notices = [(root / "LICENSE").read_text()] + [f"==== {name}\n\n{licence(package)}" for name, package in libraries.items()
                                             if (pathlib.Path("/usr/share/doc") / package / "copyright").exists()]
escaped = "\n\n".join(notices).replace("&", "&amp;").replace("<", "&lt;")
version = re.search(r"kVersionText = \"stepcast ([^\"]+)\"", (build / "version.cpp").read_text()).group(1)
data_text = json.dumps({"lines": list(numbers), "files": data}, ensure_ascii=False, separators=(",", ":"))
parts = {
    "STYLE": (page / "style.css").read_text(),
    "VERSION": version,
    "LICENCES": escaped,
    "GLUE": script((build / "stepcast_web.js").read_text()),
    "WORKER": script((page / "worker.js").read_text()),
    "WASM": packed((build / "stepcast_web.wasm").read_bytes()),
    "DATA": packed(data_text.encode()),
    "PAGE": script((build / "page.js").read_text()),
}
html = re.sub(r"@([A-Z]+)@", lambda m: parts[m.group(1)], (page / "index.html").read_text())
(build / "data.json").write_text(data_text)
(build / "index.html").write_text(html)
size = len((build / "stepcast_web.wasm").read_bytes())
print(f"{build}/index.html: {len(html) / 1e6:.2f} MB; module {size / 1e6:.2f} MB, compressed "
      f"{len(parts['WASM']) * 3 / 4e6:.2f} MB; data compressed {len(parts['DATA']) * 3 / 4e6:.2f} MB")
