"""``graphglow bench op|epoch|batch|scale|memory``."""

import json as json_text
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from rich.box import SIMPLE_HEAD
from rich.table import Table
from tyro.conf import arg

from graphglow.commands.files import check_output
from graphglow.commands.flags import UNUSED, DataRoot, Json
from graphglow.commands.terminal import print_json, printable, say, show, strict, waiting
from graphglow.experiments.bench import transfers
from graphglow.experiments.bench.config import BenchConfig, Row, shown, stamped
from graphglow.experiments.bench.op import OpBench, run_op
from graphglow.experiments.bench.scale import ScaleBench, run_scale
from graphglow.storage import append_line
from graphglow.training.device import resolve_device

RowsFile = Annotated[
    Path | None,
    arg(
        metavar="FILE.jsonl",
        help="Add the rows to this file, one JSON line each, as they are measured.",
        help_behavior_hint="(optional)",
    ),
]
UnusedRoot = Annotated[Path | None, arg(metavar="FOLDER", help=UNUSED, help_behavior_hint="")]


def bench() -> None:
    """Measure time and memory on this machine.

    Medians of warm calls; ratios come from one run; each row names machine and versions. Every
    benchmark takes --out FILE.jsonl, --seed, --device, --data-root and --json beside its own
    options: see graphglow bench op --help.
    """


def op(
    config: Annotated[OpBench, arg(name="")],
    out: RowsFile = None,
    data_root: UnusedRoot = None,
    json: Json = False,
) -> None:
    """Time the node-pivot message passing (Eq. 11), backend against backend, with its roofline."""
    _report("op", config, run_op(config), out, json)


def epoch(
    config: Annotated[transfers.EpochBench, arg(name="")],
    out: RowsFile = None,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Time the epochs of a transfer on graphs by name, with a learner that was never trained."""
    _report("epoch", config, transfers.run_epoch(config, data_root), out, json)


def batch(
    config: Annotated[transfers.BatchBench, arg(name="")],
    out: RowsFile = None,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Time several seeds trained as one batch against one seed, and compare their results."""
    _report("batch", config, transfers.run_batch(config, data_root), out, json)


def scale(
    config: Annotated[ScaleBench, arg(name="")],
    out: RowsFile = None,
    data_root: UnusedRoot = None,
    json: Json = False,
) -> None:
    """Time an epoch on random graphs of growing size, and fit the growth."""
    _report("scale", config, run_scale(config), out, json)


def memory(
    config: Annotated[transfers.MemoryBench, arg(name="")],
    out: RowsFile = None,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Peak memory of a transfer, backend against backend, each in a process of its own."""
    _report("memory", config, transfers.run_memory(config, data_root), out, json)


PARTS = {"op": op, "epoch": epoch, "batch": batch, "scale": scale, "memory": memory}


def _report(
    name: str, config: BenchConfig, rows: Iterable[Row], out: Path | None, json: bool
) -> None:
    """Measure; write rows as they come; then show them all."""
    if out is not None:
        out = check_output(out, overwrite=True, suffixes=(".jsonl",))  # rows are added, not lost
    device = resolve_device(config.device)
    measured = []
    with waiting(f"measuring {name}"):
        for row in stamped(name, device, rows):
            if out is not None:
                append_line(out, json_text.dumps(strict(row), allow_nan=False))
            measured.append(row)
    if json:
        print_json({"command": "bench", "benchmark": name, "out": out, "rows": measured})
        return
    _show(name, [row for row in measured if row.get("kind") != "fit"])
    for row in (row for row in measured if row.get("kind") == "fit"):
        say(f"epoch time grows as nodes^{row['exponent']:.2f} from {min(row['fitted_nodes']):,}")
    machine = measured[0]["provenance"]["machine"]
    chip = machine["gpu"] if device.type == "cuda" else f"{machine['cpu']} CPU"
    say(f"on {chip}, {measured[0]['threads']} threads" + (f"; rows in {out}" if out else ""))


def _show(name: str, rows: list[Row]) -> None:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)  # fits in 80 columns
    fields = [field for field in COLUMNS[name] if any(shown(row, field) for row in rows)]
    for field in fields:
        text = any(isinstance(row.get(field), str) for row in rows)
        title = TITLES.get(field, field.replace("_", "\n"))
        table.add_column(title, justify="left" if text else "right", overflow="fold")
    for row in rows:
        table.add_row(*(printable(shown(row, field) or "-") for field in fields))
    show(table)


COLUMNS = {
    "op": ("nodes", "backend", "forward_ms", "backward_ms", "both_ms", "speedup_over_eager",
           "peak_bytes", "ceiling_share", "gradient_error"),
    "epoch": ("target", "nodes", "picked", "epoch_ms", "epochs", "train_seconds",
              "speedup_over_eager", "roof_share", "peak_bytes"),
    "batch": ("target", "picked", "epochs", "single_seconds", "seeds", "batch_seconds", "ratio",
              "greatest_accuracy_difference", "peak_bytes"),
    "scale": ("nodes", "edges", "picked", "delta", "epoch_ms", "peak_bytes", "graph_bytes"),
    "memory": ("target", "nodes", "pivots", "backend", "peak_bytes", "base_bytes",
               "share_of_eager"),
}  # fmt: skip
"""Fields of each benchmark's rows that are shown; one that no row has is left out."""
TITLES = {
    "picked": "backend",
    "speedup_over_eager": "speed\n-up",
    "peak_bytes": "peak\nMB",
    "graph_bytes": "graph\nMB",
    "base_bytes": "before\nMB",
    "ceiling_share": "of\nceiling",
    "roof_share": "of\nroof",
    "share_of_eager": "of\neager",
    "train_seconds": "all\ns",
    "single_seconds": "one\ns",
    "batch_seconds": "batch\ns",
    "ratio": "batch\n/ one",
    "greatest_accuracy_difference": "points\napart",
}
"""What fields are called, where not by their name."""
