"""run_notebook.py FILE...: runs the code cells of notebooks in order and draws what each ends with, as Jupyter does."""

import ast
import json
import sys

for file in sys.argv[1:]:
    with open(file, encoding="utf-8") as opened:
        cells = [cell for cell in json.load(opened)["cells"] if cell["cell_type"] == "code"]
    names = {"__name__": "__main__"}
    drawn = 0
    for number, cell in enumerate(cells, 1):
        body = ast.parse("".join(cell["source"]), f"{file}, code cell {number}").body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), f"{file}, code cell {number}", "exec"), names)
        value = eval(compile(ast.Expression(last.value), f"{file}, code cell {number}", "eval"), names) if last else None
        if hasattr(value, "_repr_html_"):
            drawn += "<" in value._repr_html_()
    print(f"{file}: {len(cells)} code cells, {drawn} drawn")
    assert cells and drawn, "nothing was run or drawn"
