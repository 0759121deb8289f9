"""``graphglow predict``."""

from graphglow.commands.files import check_output
from graphglow.commands.flags import (
    Columns,
    InFile,
    Json,
    OptionalFile,
    OutFile,
    Overwrite,
    SavedTransfer,
    SkipUnknownEdges,
    UnusedDataRoot,
    UnusedDevice,
    UnusedSeed,
)
from graphglow.commands.graph_flags import read_columns
from graphglow.commands.terminal import print_json, show_facts, waiting
from graphglow.graphs.write import prediction_file
from graphglow.training import TransferResult


def predict(  # noqa: D417 (flags.py says the rest)
    result: SavedTransfer,
    nodes: InFile,
    out: OutFile,
    edges: OptionalFile = None,
    columns: Columns = (),
    skip_unknown_edges: SkipUnknownEdges = False,
    overwrite: Overwrite = False,
    json: Json = False,
    seed: UnusedSeed = 0,
    device: UnusedDevice = "auto",
    data_root: UnusedDataRoot = None,
) -> None:
    """Predict the classes of nodes added after training, without training again.

    Example: graphglow predict --result people.safetensors --nodes new_nodes.csv
    --edges new_edges.csv --out predictions.csv

    Args:
        nodes: The new nodes (.csv or .parquet): ids that are new, and the columns of the nodes
            table that the graph was loaded from. A label and a split are passed over. What was
            said by --columns at the transfer holds here too.
        edges: Their edges (.csv or .parquet): source and target, ids of old or new nodes, each
            with a new end, and optionally weight. Without it the nodes have no edges, or, where
            the graph was made of nearest neighbours, those to their nearest nodes.
        out: Where to write ids, predicted classes and probabilities (.csv or .parquet).
    """
    out = check_output(prediction_file(out), overwrite=overwrite, inputs=(result, nodes, edges))
    trained = TransferResult.load(result.expanduser())
    with waiting("predicting"):
        found = trained.predict_new_tables(
            nodes, edges, columns=read_columns(columns), skip_unknown_edges=skip_unknown_edges
        )
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
