"""``graphglow predict``."""

from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from graphglow.commands.files import check_output
from graphglow.commands.flags import UNUSED, Json, OptionalFile, OutFile, Overwrite
from graphglow.commands.terminal import print_json, show_facts, waiting
from graphglow.graphs.write import prediction_file
from graphglow.training import TransferResult
from graphglow.training.config import Device

InFile = Annotated[Path, arg(metavar="FILE")]


def predict(  # noqa: D417 (flags.py says the rest)
    result: InFile,
    nodes: InFile,
    out: OutFile,
    edges: OptionalFile = None,
    overwrite: Overwrite = False,
    json: Json = False,
    seed: Annotated[int, arg(help=UNUSED)] = 0,
    device: Annotated[Device, arg(help=UNUSED)] = "auto",
    data_root: Annotated[
        Path | None, arg(metavar="FOLDER", help=UNUSED, help_behavior_hint="")
    ] = None,
) -> None:
    """Predict the classes of nodes added after training, without training again.

    Example: graphglow predict --result people.safetensors --nodes new_nodes.csv
    --edges new_edges.csv --out predictions.csv

    Args:
        result: A saved transfer, from graphglow transfer --out.
        nodes: The new nodes (.csv or .parquet): ids that are new, and the columns of the nodes
            table that the graph was loaded from. A label and a split are passed over.
        edges: Their edges (.csv or .parquet): source and target, ids of old or new nodes, each
            with a new end, and optionally weight. Without it the nodes have no edges, or, where
            the graph was made of nearest neighbours, those to their nearest nodes.
        out: Where to write ids, predicted classes and probabilities (.csv or .parquet).
    """
    out = check_output(prediction_file(out), overwrite=overwrite, inputs=(result, nodes, edges))
    trained = TransferResult.load(result.expanduser())
    with waiting("predicting"):
        found = trained.predict_new_tables(nodes, edges)
        found.write(out)
    frame = found.to_frame()
    counts = {str(name): int(count) for name, count in frame["predicted"].value_counts().items()}
    if json:
        facts = {"command": "predict", "target": trained.graph.name, "nodes": len(frame)}
        print_json({**facts, "predicted": counts, "out": out})
        return
    shown = {"graph": trained.graph.name, "new nodes": str(len(frame))}
    shown |= {f"predicted {name}": str(count) for name, count in counts.items()}
    show_facts("Predictions", {**shown, "written to": str(out)})
