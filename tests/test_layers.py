"""Imports point down only, nothing unpickles, and only cli and report print: read from the AST."""

import ast
from pathlib import Path

import pytest

import graphglow

PACKAGE = Path(graphglow.__file__).parent
ORDER = (
    "version",
    "errors",
    "checks",
    "settings",
    "storage",
    "device",
    "parallel",
    "workers",
    "linalg",
    "graph",
    "checkpoint",
    "gnn",
    "paper",
    "evidence",
    "auditing",
    "pretrained",
    "metrics",
    "messages",
    "training",
    "transfer",
    "pretrain",
    "predict",
    "refine",
    "explain",
    "new_nodes",
    "audit",
    "sklearn_api",
    "pyg_api",
    "competitors",
    "lab",
    "compare",
    "report",
    "commands",
    "cli",
)
TOP = {"__main__": "cli"}
ON_DEMAND = {  # by methods, when called
    ("result.py", "new_nodes"),
    ("result.py", "pyg_api"),
    ("result.py", "competitors"),
    ("result.py", "explain"),
    ("evidence.py", "explain"),
    ("new_nodes.py", "explain"),
    ("predict.py", "explain"),
    ("explain.py", "report"),
}
PRINTERS = {"report", "commands", "cli"}
PICKLERS = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}


def area_of(parts):
    """The layer of a module given as its path inside the package: ("graphs", "load")."""
    return TOP.get(parts[0], parts[0])


def modules():
    """(area, path, tree) of every file but the package's own door, which imports on demand."""
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE).with_suffix("").parts
        if inside != ("__init__",):
            yield area_of(inside), path, ast.parse(path.read_text())


MODULES = list(modules())


def target(dotted):
    """The layer that ``graphglow.x.y`` names; None for the package itself or what is not ours."""
    parts = dotted.split(".")
    if parts[0] != "graphglow" or len(parts) == 1 or parts[1] == "__version__":
        return None
    home = graphglow._HOMES.get(parts[1], dotted)  # a public name, made by the door
    return area_of(home.split(".")[1:])


def imported_areas(tree):
    """(line, layer) of every import, at module or function level, and of uses of the door."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports must be absolute"
            if node.module == "graphglow":
                names = [f"graphglow.{alias.name}" for alias in node.names]
            else:
                names = [node.module or ""]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = [f"graphglow.{node.attr}"] if node.value.id == "graphglow" else []
        elif (
            isinstance(node, ast.Call)
            and called_name(node) in {"import_module", "__import__"}
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            names = [str(node.args[0].value)]
        for name in names:
            area = target(name)
            if area is not None:
                yield node.lineno, area


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


def rank(area):
    return ORDER.index(area) if area in ORDER else len(ORDER)


def upward_imports(area, path, tree):
    return [
        f"{path.name}:{line}: {area} imports {other}"
        for line, other in imported_areas(tree)
        if rank(other) > rank(area) and (path.name, other) not in ON_DEMAND
    ]


def pickling(path, tree):
    found = []
    if path.name == "parallel.py":  # what processes of one job tell each other
        return found
    for node in ast.walk(tree):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        found += [f"{path.name}:{node.lineno}" for m in modules if m.split(".")[0] in PICKLERS]
        if isinstance(node, ast.Attribute) and node.attr in {"read_pickle", "to_pickle"}:
            found.append(f"{path.name}:{node.lineno}")
        if isinstance(node, ast.Call) and keyword(node, "allow_pickle"):
            found.append(f"{path.name}:{node.lineno}")
    return found


def unsafe_torch_loads(path, tree):
    return [
        f"{path.name}:{call.lineno}"
        for call in calls(tree, "load")
        if isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "torch"
        and keyword(call, "weights_only") is not True
    ]


def test_the_package_was_found():
    assert {"errors", "storage", "graph", "linalg", "paper", "gnn", "training"} <= {
        area for area, _, _ in MODULES
    }
    assert sum(len(list(imported_areas(tree))) for _, _, tree in MODULES) > 50


def test_every_module_has_a_layer():
    assert {area for area, _, _ in MODULES} <= set(ORDER)


def test_imports_point_down_only():
    assert [line for module in MODULES for line in upward_imports(*module)] == []


def test_ops_knows_tensors_only():
    found = {
        other for area, _, tree in MODULES if area == "linalg" for _, other in imported_areas(tree)
    }
    assert found <= {"linalg", "checks", "errors"}


def test_only_cli_and_report_print():
    found = [
        f"{path.name}:{call.lineno}"
        for area, path, tree in MODULES
        if area not in PRINTERS
        for call in calls(tree, "print")
    ]
    assert found == []


def test_nothing_unpickles():
    """But the reader that makes arrays only, before PyG unpickles the citation graphs."""
    found = [line for _, path, tree in MODULES for line in pickling(path, tree)]
    assert [line.split(":")[0] for line in found] == ["datasets.py"]


def test_torch_load_reads_weights_only():
    assert [line for _, path, tree in MODULES for line in unsafe_torch_loads(path, tree)] == []


@pytest.mark.parametrize(
    "source",
    [
        "from graphglow.training import transfer",
        "import graphglow.training.transfer",
        "from graphglow import transfer",
        "def f():\n    from graphglow.evidence import x",
        "import graphglow\ngraphglow.pretrain([])",
        "import importlib\nimportlib.import_module('graphglow.cli')",
    ],
)
def test_the_walk_sees_an_upward_import(source):
    assert upward_imports("paper", Path("x.py"), ast.parse(source))
    assert not upward_imports("cli", Path("x.py"), ast.parse(source))


def test_the_walk_lets_a_downward_import_pass():
    source = "import graphglow.gnn\nfrom graphglow import __version__, gnn\nimport graphglow.graph"
    assert not upward_imports("paper", Path("x.py"), ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from joblib import load",
        "np.load(f, allow_pickle=True)",
        "pd.read_pickle(f)",
    ],
)
def test_the_walk_sees_a_pickle(source):
    assert pickling(Path("x.py"), ast.parse(source))


def test_the_walk_sees_an_unsafe_torch_load():
    for source in ("torch.load(f)", "torch.load(f, weights_only=False)"):
        assert unsafe_torch_loads(Path("x.py"), ast.parse(source))
    assert not unsafe_torch_loads(Path("x.py"), ast.parse("torch.load(f, weights_only=True)"))
