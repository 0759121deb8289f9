"""``graphglow refine``."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

from torch_geometric.data import Data
from tyro.conf import FlagCreatePairsOff, arg

from graphglow.checks import at_least
from graphglow.commands.files import check_output, learner_file
from graphglow.commands.flags import (
    EmbeddingSize,
    Json,
    Log,
    OptionalFile,
    OutFile,
    Overwrite,
)
from graphglow.commands.graph_flags import GraphFlags
from graphglow.commands.terminal import percent, print_json, show_facts, waiting
from graphglow.commands.transfer import readable, run_transfer, was_source
from graphglow.errors import InputError
from graphglow.experiments.structure_metrics import graph_facts
from graphglow.graphs import write_graph
from graphglow.graphs.table_file import require_pyarrow
from graphglow.graphs.write import WRITERS
from graphglow.training import TransferConfig, TransferResult


def refine(  # noqa: D417 (the flags and the config say the rest)
    out: OutFile,
    reading: Annotated[GraphFlags, arg(name="")],
    config: Annotated[TransferConfig, arg(name="")],
    learner: Annotated[
        str | None, arg(metavar="NAME|FILE", help_behavior_hint="(with --target)")
    ] = None,
    target: Annotated[
        str | None, arg(metavar="NAME|FILE", help_behavior_hint="(with --learner)")
    ] = None,
    result: OptionalFile = None,
    top_k: int = 16,
    self_loops: Annotated[bool, FlagCreatePairsOff, arg(help_behavior_hint="")] = True,
    embedding_size: EmbeddingSize = None,
    overwrite: Overwrite = False,
    log: Log = None,
    json: Json = False,
) -> None:
    """Transfer, then write the learned graph to a file.

    Either --learner and --target, or --result: a file that graphglow transfer --out wrote.

    Example: graphglow refine --learner universal --target wine --out refined.csv

    Args:
        out: Where to write. The suffix is the format: .pt, .npz and .graphml hold the whole graph;
            .csv and .parquet hold its edges (source, target, weight) with your own node ids. All
            say how much of a weight came by the input graph and how much was learned.
        learner: The structure learner, as in graphglow transfer: citation, social, universal,
            sharp, a file, or random.
        target: The target graph: a name (see graphglow datasets), a file or folder, or two tables
            as people.csv+relations.csv.
        result: A saved transfer, instead of --learner and --target; it has its own settings.
        top_k: Strongest incoming edges kept for each node.
        self_loops: Leave out what a node passes to itself.
    """
    out = check_output(
        out,
        overwrite=overwrite,
        suffixes=tuple(WRITERS),
        inputs=(learner_file(learner), target, result, reading.split_file),
    )
    if out.suffix.lower() == ".parquet":
        require_pyarrow()
    at_least("top_k", top_k, 1)
    split = None
    if result is not None:
        others = {
            "learner": learner,
            "target": target,
            **vars(reading),
            "data_root": None,  # does no harm
            "embedding_size": embedding_size,
            "log": log,
        }
        given = [name for name, value in others.items() if value not in (None, (), False)]
        trained = _saved(result, config, given)
    elif learner is None or target is None:
        raise InputError(
            "refine needs --learner and --target, or --result; see graphglow refine --help"
        )
    else:
        trained, split = run_transfer(
            learner, target, reading, config, embedding_size=embedding_size, log=log
        )
    with waiting("refining"):
        graph = trained.refined_graph(top_k, self_loops=self_loops)
        write_graph(graph, out)
    before, after = graph_facts(trained.data, undirected=True), graph_facts(graph)
    facts: dict[str, Any] = {
        **trained.summary(),
        "split": split,
        "target_was_source": was_source(trained),
        "out": out,
        "top_k": top_k,
        "self_loops": self_loops,
        "nodes": trained.graph.num_nodes,
        "input_edges": before.edges,
        "refined_edges": after.edges,
        "input_homophily": before.homophily,
        "refined_homophily": after.homophily,
        "refined_homophily_by_weight": _by_weight(graph),
    }
    if json:
        print_json(facts)
        return
    shown = readable({**facts, "split": split or f"saved in {result}"})
    shown["edges"] = f"{before.edges:,} in the input, {after.edges:,} refined (directed, no loops)"
    shown["edge homophily"] = (
        f"{percent(before.homophily)} in the input; refined {percent(after.homophily)} of the "
        f"edges, {percent(facts['refined_homophily_by_weight'])} of their weight"
    )
    show_facts("Refined graph", shown)


def _by_weight(graph: Data) -> float | None:
    """The share of the weight between labelled nodes that joins nodes of one class."""
    source, target = graph.edge_index
    y, weight = graph.y, graph.edge_weight.double()
    known = (y[source] >= 0) & (y[target] >= 0) & (source != target)
    same = known & (y[source] == y[target])
    whole = float(weight[known].sum())
    return float(weight[same].sum()) / whole if whole > 0 else None


def _saved(path: Path, config: TransferConfig, others: list[str]) -> TransferResult:
    """Load a saved result; refuse settings and ``others`` that it would ignore."""
    default = TransferConfig()
    given = [f.name for f in fields(config) if getattr(config, f.name) != getattr(default, f.name)]
    if config.device == "cpu":  # where a saved result is computed anyway
        given.remove("device")
    if given + others:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in others + given)
        raise InputError(f"--result has its own settings and must come alone; got {flags} too")
    return TransferResult.load(path.expanduser())
