"""Imports point down, nothing unpickles, and only the doors print: read from the syntax trees."""

import ast
from pathlib import Path

import graphglow

PACKAGE = Path(graphglow.__file__).parent
ORDER = (
    "version",
    "errors",
    "settings",
    "storage",
    "device",
    "linalg",
    "graph",
    "gnn",
    "paper",
    "evidence",
    "auditing",
    "pretrained",
    "scores",
    "result",
    "predict refine audit explain pretrain transfer sklearn_api pyg_api",
    "competitors",
    "lab",
    "compare demo",
    "report",
    "commands",
    "cli",
    "__main__",
)
"""From the bottom up. What only experiments need is ``lab``; no part of the product needs it."""
RANK = {area: rank for rank, areas in enumerate(ORDER) for area in areas.split()}
MAY_USE_LAB = {"lab", "compare", "demo", "commands"}
MAY_PRINT = {"report", "commands", "cli"}
TORCH_FREE = {"version", "errors", "settings", "cli"}
PICKLERS = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}


def modules():
    """(area, path, tree) of every file but the package's own door, which imports on demand."""
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE).with_suffix("").parts
        if inside != ("__init__",):
            yield inside[0], path, ast.parse(path.read_text())


MODULES = list(modules())


def area_of(dotted):
    """The area that ``graphglow.x.y`` names; None for the package itself or what is not ours."""
    parts = dotted.split(".")
    if parts[0] != "graphglow" or len(parts) == 1 or parts[1] == "__version__":
        return None
    return graphglow._HOMES.get(parts[1], dotted).split(".")[1]  # a public name, or a module


def imports(nodes):
    """(line, dotted name) of imports among nodes."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports must be absolute"
            if node.module == "graphglow":
                yield from ((node.lineno, f"graphglow.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, node.module or ""


def at_import(tree):
    """Imports that run when a module is imported: neither in functions nor for types alone."""
    return imports(tree.body)


def called_name(call):
    """``load`` of ``torch.load(..)`` and of ``load(..)``."""
    return getattr(call.func, "attr", getattr(call.func, "id", None))


def calls(tree, name):
    return [n for n in ast.walk(tree) if isinstance(n, ast.Call) and called_name(n) == name]


def keyword(call, name):
    for given in call.keywords:
        if given.arg == name and isinstance(given.value, ast.Constant):
            return given.value.value
    return None


def upward_imports(area, path, tree):
    """Imports of a higher layer; a method may import one when it is called."""
    return [
        f"{path.name}:{line}: {area} imports {other}"
        for line, name in at_import(tree)
        if (other := area_of(name)) is not None and RANK[other] > RANK[area]
    ]


def pickling(path, tree):
    found = [
        f"{path.name}:{line}"
        for line, name in imports(ast.walk(tree))
        if name.split(".")[0] in PICKLERS
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in {"read_pickle", "to_pickle"}:
            found.append(f"{path.name}:{node.lineno}")
        if isinstance(node, ast.Call) and keyword(node, "allow_pickle"):
            found.append(f"{path.name}:{node.lineno}")
    return found


def unsafe_torch_loads(path, tree):
    return [
        f"{path.name}:{call.lineno}"
        for call in calls(tree, "load")
        if getattr(getattr(call.func, "value", None), "id", None) == "torch"
        and keyword(call, "weights_only") is not True
    ]


def test_every_module_has_a_layer():
    assert {area for area, _, _ in MODULES} <= set(RANK)
    assert len(MODULES) > 80


def test_imports_point_down_only():
    assert [line for module in MODULES for line in upward_imports(*module)] == []


def test_the_product_never_imports_the_laboratory():
    found = [
        f"{path.name}:{line}"
        for area, path, tree in MODULES
        if area not in MAY_USE_LAB
        for line, name in imports(ast.walk(tree))
        if area_of(name) == "lab"
    ]
    assert found == []


def test_help_needs_no_torch():
    heavy = {"torch", "torch_geometric", "numpy", "scipy", "pandas", "sklearn"}
    for area, path, tree in MODULES:
        if area in TORCH_FREE or area == "commands":
            for line, name in at_import(tree):
                assert name.split(".")[0] not in heavy, f"{path.name}:{line}"
                free = {None, "commands", *TORCH_FREE}
                assert area_of(name) in free or name == "graphglow.lab.config", f"{path.name}"


def test_only_doors_print():
    found = [
        f"{path.name}:{call.lineno}"
        for area, path, tree in MODULES
        if area not in MAY_PRINT
        for call in calls(tree, "print")
    ]
    assert found == []


def test_nothing_unpickles():
    """But the reader that makes arrays only."""
    found = [line for _, path, tree in MODULES for line in pickling(path, tree)]
    assert {line.split(":")[0] for line in found} <= {"datasets.py"}


def test_torch_load_reads_weights_only():
    assert [line for _, path, tree in MODULES for line in unsafe_torch_loads(path, tree)] == []


def test_the_walks_see_what_they_look_for():
    path, parse = Path("x.py"), ast.parse
    upward = "from graphglow.result import TransferResult", "import graphglow.transfer"
    for source in (*upward, "from graphglow import transfer"):
        assert upward_imports("paper", path, parse(source))
        assert not upward_imports("cli", path, parse(source))
    loads = "np.load(f, allow_pickle=True)", "pd.read_pickle(f)"
    for source in ("import pickle", "from joblib import load", *loads):
        assert pickling(path, parse(source))
    for source in ("torch.load(f)", "torch.load(f, weights_only=False)"):
        assert unsafe_torch_loads(path, parse(source))
    assert not unsafe_torch_loads(path, parse("torch.load(f, weights_only=True)"))
