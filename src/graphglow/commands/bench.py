"""``graphglow bench op|epoch|batch|scale|refine``."""

import json as json_text
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from graphglow.commands.files import check_output
from graphglow.commands.flags import DataRoot, Json, said
from graphglow.commands.terminal import print_json, say, show_rows, strict, waiting
from graphglow.errors import InputError
from graphglow.lab.bench import op as eq11
from graphglow.lab.bench import refine as refining
from graphglow.lab.bench import transfers
from graphglow.lab.bench.config import BenchConfig, Row, shown, stamped
from graphglow.storage import append_line
from graphglow.training.device import resolve_device

ADDED = "Add the rows to this file, one JSON line each, as they are measured."


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Flags of all benchmarks."""

    out: Annotated[Path | None, said(ADDED, "FILE.jsonl", "(optional)")] = None
    data_root: DataRoot = None
    json: Json = False


Flags = Annotated[Shared, arg(name="")]


def bench() -> None:
    """Measure time and memory on this machine.

    Medians of warm calls; ratios come from one run; each row names machine and versions. Every
    benchmark takes --out FILE.jsonl, --seed, --device, --data-root and --json beside its own
    options: see graphglow bench op --help.
    """


def op(config: Annotated[eq11.OpBench, arg(name="")], flags: Flags) -> None:
    """Time the node-pivot message passing (Eq. 11), backend against backend, with its roofline."""
    _report("op", config, eq11.run_op(config), flags)


def epoch(config: Annotated[transfers.EpochBench, arg(name="")], flags: Flags) -> None:
    """Time the epochs of a transfer on graphs by name, with a learner that was never trained."""
    _report("epoch", config, transfers.run_epoch(config, flags.data_root), flags)


def batch(config: Annotated[transfers.BatchBench, arg(name="")], flags: Flags) -> None:
    """Time several seeds trained as one batch against one seed, and compare their results."""
    _report("batch", config, transfers.run_batch(config, flags.data_root), flags)


def scale(config: Annotated[transfers.ScaleBench, arg(name="")], flags: Flags) -> None:
    """Time an epoch on random graphs of growing size, and fit the growth."""
    _report("scale", config, transfers.run_scale(config), flags)


def refine(config: Annotated[refining.RefineBench, arg(name="")], flags: Flags) -> None:
    """Time the stages of a refinement and of an audit, on graphs by name or random ones."""
    _report("refine", config, refining.run_refine(config, flags.data_root), flags)


PARTS = {"op": op, "epoch": epoch, "batch": batch, "scale": scale, "refine": refine}


def _report(name: str, config: BenchConfig, rows: Iterable[Row], flags: Shared) -> None:
    """Measure; write rows as they come; then show them all."""
    out = flags.out
    if out is not None:
        out = check_output(out, overwrite=True, suffixes=(".jsonl",), shared=True)
    device = resolve_device(config.device)
    measured = []
    with waiting(f"measuring {name}"):
        for row in stamped(name, device, rows):
            if out is not None:
                append_line(out, json_text.dumps(strict(row), allow_nan=False))
            measured.append(row)
    if not measured:
        raise InputError("a benchmark must have at least one case; got none")
    if flags.json:
        print_json({"command": "bench", "benchmark": name, "out": out, "rows": measured})
        return
    cases = [row for row in measured if row.get("kind") != "fit"]
    fields = [field for field in COLUMNS[name] if any(shown(row, field) for row in cases)]
    titles = [TITLES.get(field, field.replace("_", "\n")) for field in fields]
    show_rows(titles, [[shown(row, field) or "-" for field in fields] for row in cases])
    for row in measured[len(cases) :]:
        say(f"epoch time grows as nodes^{row['exponent']:.2f} from {min(row['fitted_nodes']):,}")
    machine = measured[0]["provenance"]["machine"]
    chip = machine["gpu"] if device.type == "cuda" else f"{machine['cpu']} CPU"
    say(f"on {chip}, {measured[0]['threads']} threads" + (f"; rows in {out}" if out else ""))


COLUMNS = {
    "op": ("nodes", "backend", "forward_ms", "backward_ms", "both_ms", "speedup_over_eager",
           "peak_bytes", "ceiling_share", "gradient_error"),
    "epoch": ("target", "nodes", "picked", "epoch_ms", "epochs", "train_seconds",
              "speedup_over_eager", "roof_share", "peak_bytes"),
    "batch": ("target", "picked", "epochs", "single_seconds", "seeds", "batch_seconds", "ratio",
              "greatest_accuracy_difference", "peak_bytes"),
    "scale": ("nodes", "edges", "picked", "delta", "epoch_ms", "peak_bytes", "graph_bytes"),
    "refine": ("target", "part", "stage", "seconds", "cpu_seconds", "peak_bytes", "search",
               "ratio"),
}  # fmt: skip
"""Fields of each benchmark's rows that are shown; one that no row has is left out."""
TITLES = {
    "picked": "backend",
    "speedup_over_eager": "speed\n-up",
    "peak_bytes": "peak\nMB",
    "graph_bytes": "graph\nMB",
    "ceiling_share": "of\nceiling",
    "roof_share": "of\nroof",
    "train_seconds": "all\ns",
    "single_seconds": "one\ns",
    "batch_seconds": "batch\ns",
    "greatest_accuracy_difference": "points\napart",
}
"""What fields are called, where not by their name."""
