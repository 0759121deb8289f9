"""``graphglow bench op|epoch|batch|scale|memory``."""

import json as json_text
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from tyro.conf import arg

from graphglow.commands.files import check_output
from graphglow.commands.flags import UNUSED, DataRoot, Json
from graphglow.commands.terminal import print_json, printable, say, show, strict, waiting
from graphglow.experiments.bench.batch import BatchBench, run_batch
from graphglow.experiments.bench.config import BenchConfig
from graphglow.experiments.bench.epoch import EpochBench, run_epoch
from graphglow.experiments.bench.memory import MemoryBench, run_memory
from graphglow.experiments.bench.op import OpBench, run_op
from graphglow.experiments.bench.rows import Row, stamped
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
    config: Annotated[EpochBench, arg(name="")],
    out: RowsFile = None,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Time the epochs of a transfer on graphs by name, with a learner that was never trained."""
    _report("epoch", config, run_epoch(config, data_root), out, json)


def batch(
    config: Annotated[BatchBench, arg(name="")],
    out: RowsFile = None,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Time several seeds trained as one batch against one seed, and compare their results."""
    _report("batch", config, run_batch(config, data_root), out, json)


def scale(
    config: Annotated[ScaleBench, arg(name="")],
    out: RowsFile = None,
    data_root: UnusedRoot = None,
    json: Json = False,
) -> None:
    """Time an epoch on random graphs of growing size, and fit the growth."""
    _report("scale", config, run_scale(config), out, json)


def memory(
    config: Annotated[MemoryBench, arg(name="")],
    out: RowsFile = None,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Peak memory of a transfer, backend against backend, each in a process of its own."""
    _report("memory", config, run_memory(config, data_root), out, json)


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
    for row in measured:
        if row.get("kind") == "fit":
            say(
                f"epoch time grows as nodes^{row['exponent']:.2f} from {min(row['fitted_nodes']):,}"
            )
    machine = measured[0]["provenance"]["machine"]
    chip = machine["gpu"] if device.type == "cuda" else f"{machine['cpu']} CPU"
    say(f"on {chip}, {measured[0]['threads']} threads" + (f"; rows in {out}" if out else ""))


def _show(name: str, rows: list[Row]) -> None:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)  # fits in 80 columns
    columns = {
        title: column
        for title, column in COLUMNS[name].items()
        if any(_cell(row, *column) != "-" for row in rows)
    }
    for title, (field, _) in columns.items():
        text = any(isinstance(row.get(field), str) for row in rows)
        table.add_column(title, justify="left" if text else "right", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row, field, form) for field, form in columns.values()))
    show(table)


def _cell(row: Row, field: str, form: Callable[[Any], str]) -> str:
    if row.get("out_of_memory") and field.endswith("_ms"):
        return "out of memory"
    value = row.get(field)
    return "-" if value is None else form(value)


def _count(value: float) -> str:
    return f"{value:,}"


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _share(value: float) -> str:
    return f"{value:.0%}" if value >= 0.1 else f"{value:.1%}"


def _times(value: float) -> str:
    return f"{value:.2f}x" if value < 10 else f"{value:.0f}x"


def _mib(value: int) -> str:
    return f"{value / 2**20:,.0f}"


Columns = dict[str, tuple[str, Callable[[Any], str]]]

COLUMNS: dict[str, Columns] = {
    "op": {
        "nodes": ("nodes", _count),
        "backend": ("backend", printable),
        "forward\nms": ("forward_ms", _number),
        "backward\nms": ("backward_ms", _number),
        "both\nms": ("both_ms", _number),
        "speed\n-up": ("speedup_over_eager", _times),
        "peak\nMiB": ("peak_bytes", _mib),
        "of\nceiling": ("ceiling_share", _share),
        "gradient\nerror": ("gradient_error", "{:.0e}".format),
    },
    "epoch": {
        "target": ("target", printable),
        "nodes": ("nodes", _count),
        "backend": ("picked", printable),
        "epoch ms": ("epoch_ms", _number),
        "epochs": ("epochs", _count),
        "all s": ("train_seconds", _number),
        "speed-up": ("speedup_over_eager", _times),
        "of roof": ("roof_share", _share),
        "peak MiB": ("peak_bytes", _mib),
    },
    "batch": {
        "target": ("target", printable),
        "backend": ("picked", printable),
        "epochs": ("epochs", _count),
        "one\ns": ("single_seconds", _number),
        "seeds": ("seeds", _count),
        "batch\ns": ("batch_seconds", _number),
        "batch\n/ one": ("ratio", _times),
        "accuracy\napart": ("greatest_accuracy_difference", "{:.4f}".format),
        "peak MiB": ("peak_bytes", _mib),
    },
    "scale": {
        "nodes": ("nodes", _count),
        "edges": ("edges", _count),
        "backend": ("picked", printable),
        "delta": ("delta", printable),
        "epoch ms": ("epoch_ms", _number),
        "peak MiB": ("peak_bytes", _mib),
        "graph MiB": ("graph_bytes", _mib),
    },
    "memory": {
        "target": ("target", printable),
        "nodes": ("nodes", _count),
        "pivots": ("pivots", _count),
        "backend": ("backend", printable),
        "peak MiB": ("peak_bytes", _mib),
        "before MiB": ("base_bytes", _mib),
        "of eager": ("share_of_eager", _share),
    },
}
"""Title -> field of the row and how it is written. A column that no row fills is left out."""
