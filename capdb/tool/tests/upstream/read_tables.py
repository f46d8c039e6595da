"""Executes the fragment of an installed module that makes a table, and prints the table's row for a key.

    read_tables.py FILE NAME KEY

Everything else of the module is left out, so that nothing has to be imported. The fragment is the assignment to NAME, wherever
in the module or in one of its classes it stands, and the assignments of numbers in front of it.
"""

import ast
import json
import sys


def statements(body):
    """Assignments of a body, with those of its classes and of its `if` and `try` blocks."""
    for node in body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            yield node
        for part in ("body", "orelse", "handlers", "finalbody"):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from statements(getattr(node, part, []))


def target(node):
    first = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return first.id if isinstance(first, ast.Name) else None


def table(path, name):
    with open(path, encoding="utf-8") as file:
        module = ast.parse(file.read(), path)
    # The whole file is code that Python accepts, not the fragment alone.
    compile(module, path, "exec")
    known = {}
    for node in statements(module.body):
        if node.value is None:
            continue
        try:
            value = eval(compile(ast.Expression(node.value), path, "eval"), {"__builtins__": {}}, dict(known))
        except Exception:
            # Needs something that is imported: not a number, and not the table.
            continue
        if target(node) == name:
            return value
        if isinstance(value, (int, float)):
            known[target(node)] = value
    sys.exit(f"{path}: no {name} that can be evaluated")


def main():
    path, name, key = sys.argv[1:]
    row = table(path, name)[ast.literal_eval(key)]
    print(json.dumps(row))


main()
