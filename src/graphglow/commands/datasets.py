"""``graphglow datasets``: the graphs that are known by name."""

from graphglow.commands.flags import DataRoot, Json
from graphglow.commands.output import print_json, print_table, print_text


def datasets(data_root: DataRoot = None, json: Json = False) -> None:
    """List the graphs, and the pre-trained learners, that are known by name.

    Any other graph is given by a path: two tables as people.csv+relations.csv (or .parquet), a
    folder with nodes.csv and edges.csv, or a .pt, .npz or .graphml file.
    """
    from graphglow.graph import DATASETS
    from graphglow.graph.load import data_folder
    from graphglow.pretrained import PRETRAINED

    root = data_folder(data_root)
    present = {path.parent.parent.name.lower() for path in root.glob("*/raw/*")}
    names = ("name", "kind", "nodes", "edges", "classes", "features", "needs_data", "description")
    rows = [
        {name: getattr(info, name) for name in names}
        | {"found": not info.needs_data or info.name in present}
        for info in DATASETS.values()
    ]
    if json:
        learners = [{"name": name, "what": what} for name, what in PRETRAINED.items()]
        print_json({"data_root": root.absolute(), "datasets": rows, "learners": learners})
        return
    lines = []
    for row in rows:
        files = "not needed" if not row["needs_data"] else "found" if row["found"] else "missing"
        lines.append((row["name"], row["kind"], *(f"{row[n]:,}" for n in names[2:5]), files))
    print_table((*names[:5], "raw files"), lines)
    print_text(f"raw files are looked for in {root.absolute()} (--data-root or GRAPHGLOW_DATA)")
    print_text("pre-trained learners, for --learner:")
    for name, what in PRETRAINED.items():
        print_text(f"  {name:<9}  {what}")
