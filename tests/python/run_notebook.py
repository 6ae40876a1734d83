"""run_notebook.py FILE...: runs the code of notebooks and the Python of pages in order and draws what each cell ends with, as Jupyter does."""

import ast
import json
import os
import re
import sys
import tempfile


def cells_of(file):
    with open(file, encoding="utf-8") as opened:
        if file.endswith(".md"):
            return re.findall(r"^```python\n(.*?)^```", opened.read(), re.DOTALL | re.MULTILINE)
        return ["".join(cell["source"]) for cell in json.load(opened)["cells"] if cell["cell_type"] == "code"]


for file in [os.path.abspath(given) for given in sys.argv[1:]]:
    cells = cells_of(file)
    names = {"__name__": "__main__"}
    drawn = 0
    with tempfile.TemporaryDirectory() as folder:
        if file.endswith(".md"):  # its code writes files
            os.chdir(folder)
        for number, cell in enumerate(cells, 1):
            where = f"{file}, code cell {number}"
            body = ast.parse(cell, where).body
            last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
            exec(compile(ast.Module(body, []), where, "exec"), names)
            value = eval(compile(ast.Expression(last.value), where, "eval"), names) if last else None
            if hasattr(value, "_repr_html_"):
                drawn += "<" in value._repr_html_()
        os.chdir("/")
    print(f"{file}: {len(cells)} code cells, {drawn} drawn")
    assert cells and (drawn or file.endswith(".md")), "nothing was run or drawn"
