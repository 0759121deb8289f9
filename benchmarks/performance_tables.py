"""Write the tables of docs/performance.md from the rows of results/bench_*.jsonl.

    python benchmarks/performance_tables.py            rewrite what stands between the markers
    python benchmarks/performance_tables.py --check    exit with 1 if that would change the page

Of several rows of one case
on one machine the newest counts.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from marked_page import NO_ROWS, markdown, write_page
from measuring import Row

MODEL = ("refinements", "pivots", "precision", "delta", "seed")
CASES = {
    "op": ("nodes", "pivots", "width", "features", "precision", "backend"),
    "epoch": ("target", *MODEL, "epochs", "capture", "backend"),
    "batch": ("target", *MODEL, "epochs", "capture", "backend", "seeds"),
    "scale": ("nodes", "degree", "features", *MODEL, "backend", "kind"),
    "fast_settings": ("target", "setting", "seeds", "epochs"),
}
"""By benchmark: the fields that tell its cases apart."""
COLUMNS = {
    "op": ("nodes", "pivots", "precision", "backend", "forward_ms", "backward_ms", "both_ms",
           "speedup_over_eager", "peak_bytes", "gflop", "least_bytes", "tflops", "ceiling_tflops",
           "ceiling_share", "useful_share", "value_error", "gradient_error"),
    "epoch": ("target", "nodes", "edges", "pivots", "refinements", "precision", "picked", "capture",
              "epoch_ms", "epochs", "train_seconds", "speedup_over_eager", "gflop", "least_bytes",
              "roof_ms", "roof_share", "peak_bytes"),
    "batch": ("target", "picked", "precision", "epochs", "single_seconds", "seeds", "batch_seconds",
              "ratio", "greatest_accuracy_difference", "mean_accuracy_difference", "peak_bytes"),
    "scale": ("nodes", "edges", "pivots", "refinements", "precision", "delta", "picked", "epoch_ms",
              "peak_bytes", "graph_bytes", "exponent"),
    "fast_settings": ("target", "split", "setting", "seeds", "epochs", "val_accuracy",
                      "val_accuracy_std", "test_accuracy", "test_accuracy_std", "seconds"),
}  # fmt: skip
"""By benchmark: the fields that its table shows."""
TITLES = {
    "picked": "backend",
    "speedup_over_eager": "speed-up over eager",
    "peak_bytes": "peak MB",
    "least_bytes": "least MB",
    "graph_bytes": "of it the graph, MB",
    "gflop": "GFLOP",
    "tflops": "TFLOP/s",
    "ceiling_tflops": "ceiling TFLOP/s",
    "ceiling_share": "share",
    "roof_share": "share of roof",
    "value_error": "error",
    "capture": "CUDA graph",
    "train_seconds": "all s",
    "single_seconds": "one s",
    "batch_seconds": "batch s",
    "ratio": "batch / one",
    "greatest_accuracy_difference": "greatest difference in validation accuracy, points",
    "mean_accuracy_difference": "of the means, points",
    "exponent": "exponent above 100 k",
    "val_accuracy": "validation %",
    "val_accuracy_std": "+-",
    "test_accuracy": "test %",
    "test_accuracy_std": "+- (test)",
    "seconds": "all seeds s",
}
"""What fields are called, where not by their name."""


def shown(row: Row, field: str) -> str:
    """A field as people read it: bytes in MB, shares in %, accuracies in points."""
    value = row.get(field)
    if value is None:
        return "out of memory" if row.get("out_of_memory") and field.endswith("_ms") else ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if field.endswith(("share", "share_of_eager")):
        return f"{100 * value:.3g} %"
    if field.endswith("_error"):
        return f"{value:.0e}" if value else "0"
    if field in ("ratio", "speedup_over_eager"):
        return f"{value:.2f}x" if value < 10 else f"{value:.0f}x"
    if "accuracy" in field or field == "exponent":
        return f"{value if field == 'exponent' else 100 * value:.2f}"
    if field.endswith("_bytes"):
        value = value / 1e6
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:.3g}"


class Bar(NamedTuple):
    """A figure that must be reached, and the rows it is read from."""

    what: str
    benchmark: str
    where: Row
    field: str
    bar: float | None
    aim: float | None = None
    at_least: bool = False

    def met(self, value: float, limit: float | None) -> bool:
        return limit is None or (value >= limit if self.at_least else value <= limit)

    def limit(self, value: float | None) -> str:
        return "" if value is None else f"{'>=' if self.at_least else '<='} {self.shown(value)}"

    def shown(self, value: float) -> str:
        units = {"train_seconds": " s", "epoch_ms": " ms", "peak_bytes": " MB"}
        return shown({self.field: value}, self.field) + units.get(self.field, "")


GPU, CPU = {"device": "cuda"}, {"device": "cpu", "threads": 2}
PAPER = {"refinements": 10, "pivots": 1000, "precision": "float32", "delta": "truncate"}
LARGE = {"refinements": 2, "degree": 20.0, "precision": "float32"}
FUSED = GPU | {"nodes": 200_000, "pivots": 1000, "width": 256, "features": 64, "backend": "triton"}
ALL = ("float32", "tf32", "bfloat16")
BARS = (
    Bar("amherst41, 500 epochs of transfer", "epoch",
        GPU | PAPER | {"target": "amherst41", "epochs": 500, "backend": "auto"},
        "train_seconds", 3, 1),
    Bar("johnshopkins55, 500 epochs of transfer", "epoch",
        GPU | PAPER | {"target": "johnshopkins55", "epochs": 500, "backend": "auto"},
        "train_seconds", 4, 1.5),
    Bar("pubmed, P = 800, peak GPU memory", "epoch",
        GPU | PAPER | {"target": "pubmed", "pivots": 800, "epochs": 20, "picked": "triton"},
        "peak_bytes", 0.8e9, 0.4e9),
    Bar("10 seeds of amherst41 in one batch, against one seed, 100 epochs", "batch",
        GPU | PAPER | {"target": "amherst41", "seeds": 10, "epochs": 100}, "ratio", 4, 2),
    *(Bar(f"op at N = 200,000, forward + backward in {precision}, fused against eager", "op",
          FUSED | {"precision": precision}, "speedup_over_eager", 3, 6, at_least=True)
      for precision in ALL),
    *(Bar(f"its peak memory in {precision}, as a share of eager's", "op",
          FUSED | {"precision": precision}, "peak_share_of_eager", 0.125) for precision in ALL),
    *(Bar(f"its share of the measured matmul ceiling of {precision}", "op",
          FUSED | {"precision": precision}, "ceiling_share", 0.35, 0.6, at_least=True)
      for precision in ALL[1:]),  # float32 is made of bfloat16 products
    Bar("1 M nodes, 10 M edges, 2 refinements: peak of an epoch", "scale",
        GPU | LARGE | {"nodes": 1_000_000, "delta": "truncate"}, "peak_bytes", 12e9, 6e9),
    Bar("10 M nodes, 100 M edges, 2 refinements: one epoch", "scale",
        GPU | LARGE | {"nodes": 10_000_000, "delta": "truncate"}, "epoch_ms", None, 5e3),
    Bar("growth of epoch time above 100 k nodes: exponent", "scale",
        GPU | {"kind": "fit", "refinements": 2, "delta": "truncate", "precision": "float32"},
        "exponent", 1.05),
    Bar("reed98 on 2 CPU cores: one epoch", "epoch",
        CPU | PAPER | {"target": "reed98", "backend": "auto"}, "epoch_ms", 350, 150),
    Bar("linear against truncation by eager at N = 20,000, P = 1000 on 2 CPU cores", "op",
        CPU | {"nodes": 20_000, "pivots": 1000, "backend": "linear", "precision": "float32"},
        "speedup_over_eager", 8, at_least=True),
    Bar("1 M nodes, 10 M edges with linear on 2 CPU cores: peak of an epoch", "scale",
        CPU | LARGE | {"nodes": 1_000_000, "delta": "affine"}, "peak_bytes", 10e9),
)  # fmt: skip
"""The bars of the project; without a number, it must run."""


def read_rows(folder: Path) -> list[Row]:
    """All rows, oldest first."""
    files = sorted(folder.glob("bench_*.jsonl"))
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines() if line]
    return sorted(rows, key=lambda row: row["provenance"]["date"])


def machine(row: Row) -> str:
    """One line that names the machine and the software."""
    made = row["provenance"]
    where = f"{row.get('threads')} threads of a {made['machine']['cpu']} CPU"
    if row["device"] == "cuda":
        where = f"{made['machine']['gpu']}, CUDA {made['versions'].get('cuda')}"
    return f"{where}, torch {made['versions']['torch']}"


def table(name: str, rows: Sequence[Row]) -> str:
    """The table of one benchmark for each machine; columns that stay empty are left out."""
    by_machine: dict[str, dict[tuple[object, ...], Row]] = {}
    for row in rows:
        if row["benchmark"] == name:
            case = tuple(row.get(field) for field in CASES[name])
            by_machine.setdefault(machine(row), {})[case] = row
    parts = []
    for where, cases in by_machine.items():
        chosen = list(cases.values())
        commits = ", ".join(dict.fromkeys(str(row["provenance"]["commit"]) for row in chosen))
        fields = [field for field in COLUMNS[name] if any(shown(row, field) for row in chosen)]
        titles = [TITLES.get(field, field.replace("_", " ")) for field in fields]
        cells = [[shown(row, field) for field in fields] for row in chosen]
        parts.append(f"{where}; commit {commits}:\n\n{markdown(titles, cells)}")
    return "\n".join(parts) or NO_ROWS


def bars(rows: Sequence[Row]) -> str:
    """Each bar with the newest figure that it is about."""
    lines = []
    for bar in BARS:
        wanted = {"benchmark": bar.benchmark, **bar.where}.items()
        fitting = [row[bar.field] for row in rows if row.get(bar.field) is not None
                   and all(row.get(name) == value for name, value in wanted)]  # fmt: skip
        measured, verdict = "not measured", ""
        if fitting:
            measured = bar.shown(fitting[-1])
            verdict = "yes" if bar.met(fitting[-1], bar.bar) else "**no**"
            if bar.aim is not None and bar.met(fitting[-1], bar.aim):
                verdict = "yes, and the aim"
        limit = bar.limit(bar.bar) or "runs"
        lines.append([bar.what, limit, bar.limit(bar.aim), measured, verdict])
    return markdown(["what", "bar", "aim", "measured", "met"], lines)


def tables(results: Path) -> dict[str, str]:
    rows = read_rows(results)
    return {"bars": bars(rows), **{name: table(name, rows) for name in COLUMNS}}


if __name__ == "__main__":
    sys.exit(write_page("performance.md", tables))
