"""What docs/performance.md shows of the rows, as data: tables, and bars to be reached."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
Form = Callable[[Any], str]


# How values are written


def count(value: Any) -> str:
    return f"{value:,}"


def number(value: Any) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def milliseconds(value: Any) -> str:
    return number(value)


def megabytes(value: Any) -> str:
    return number(value / 1e6)


def gigabytes(value: Any) -> str:
    return f"{value / 1e9:.2f}"


def share(value: Any) -> str:
    return f"{100 * value:.3g} %"


def times(value: Any) -> str:
    return f"{value:.2f}x" if value < 10 else f"{value:.0f}x"


def power(value: Any) -> str:
    return f"{value:.0e}" if value else "0"


def points(value: Any) -> str:
    return f"{100 * value:.2f}"


@dataclass(frozen=True)
class Table:
    """Which fields tell cases apart, and what is shown of them: title -> (field, how)."""

    case: tuple[str, ...]
    columns: dict[str, tuple[str, Form]]


MODEL = ("refinements", "pivots", "precision", "delta", "seed")
TABLES = {
    "op": Table(
        ("nodes", "pivots", "width", "features", "precision", "backend"),
        {
            "nodes": ("nodes", count),
            "pivots": ("pivots", count),
            "precision": ("precision", str),
            "backend": ("backend", str),
            "forward ms": ("forward_ms", milliseconds),
            "backward ms": ("backward_ms", milliseconds),
            "both ms": ("both_ms", milliseconds),
            "speed-up over eager": ("speedup_over_eager", times),
            "peak MB": ("peak_bytes", megabytes),
            "GFLOP": ("gflop", number),
            "least MB": ("least_bytes", megabytes),
            "TFLOP/s": ("tflops", number),
            "ceiling TFLOP/s": ("ceiling_tflops", number),
            "share": ("ceiling_share", share),
            "useful share": ("useful_share", share),
            "error": ("value_error", power),
            "gradient error": ("gradient_error", power),
        },
    ),
    "epoch": Table(
        ("target", *MODEL, "epochs", "capture", "backend"),
        {
            "target": ("target", str),
            "nodes": ("nodes", count),
            "edges": ("edges", count),
            "pivots": ("pivots", count),
            "refinements": ("refinements", count),
            "precision": ("precision", str),
            "backend": ("picked", str),
            "CUDA graph": ("capture", lambda value: "yes" if value else "no"),
            "epoch ms": ("epoch_ms", milliseconds),
            "epochs": ("epochs", count),
            "all s": ("train_seconds", number),
            "speed-up over eager": ("speedup_over_eager", times),
            "GFLOP an epoch": ("gflop", number),
            "least MB": ("least_bytes", megabytes),
            "roof ms": ("roof_ms", milliseconds),
            "share of roof": ("roof_share", share),
            "peak MB": ("peak_bytes", megabytes),
        },
    ),
    "batch": Table(
        ("target", *MODEL, "epochs", "capture", "backend", "seeds"),
        {
            "target": ("target", str),
            "backend": ("picked", str),
            "precision": ("precision", str),
            "epochs": ("epochs", count),
            "one s": ("single_seconds", number),
            "seeds": ("seeds", count),
            "batch s": ("batch_seconds", number),
            "batch / one": ("ratio", times),
            "greatest difference in validation accuracy, points": (
                "greatest_accuracy_difference",
                points,
            ),
            "of the means, points": ("mean_accuracy_difference", points),
            "peak MB": ("peak_bytes", megabytes),
        },
    ),
    "scale": Table(
        ("nodes", "degree", "features", *MODEL, "backend", "kind"),
        {
            "nodes": ("nodes", count),
            "edges": ("edges", count),
            "pivots": ("pivots", count),
            "refinements": ("refinements", count),
            "precision": ("precision", str),
            "delta": ("delta", str),
            "backend": ("picked", str),
            "epoch ms": ("epoch_ms", milliseconds),
            "peak GB": ("peak_bytes", gigabytes),
            "of it the graph, GB": ("graph_bytes", gigabytes),
            "exponent above 100 k": ("exponent", "{:.2f}".format),
        },
    ),
    "fast_settings": Table(
        ("target", "setting", "seeds", "epochs"),
        {
            "target": ("target", str),
            "split": ("split", str),
            "setting": ("setting", str),
            "seeds": ("seeds", count),
            "epochs": ("epochs", count),
            "validation %": ("val_accuracy", points),
            "+-": ("val_accuracy_std", points),
            "test %": ("test_accuracy", points),
            "+- (test)": ("test_accuracy_std", points),
            "all seeds s": ("seconds", number),
        },
    ),
    "memory": Table(
        ("target", *MODEL, "epochs", "capture", "backend"),
        {
            "target": ("target", str),
            "nodes": ("nodes", count),
            "pivots": ("pivots", count),
            "refinements": ("refinements", count),
            "precision": ("precision", str),
            "backend": ("backend", str),
            "peak MB": ("peak_bytes", megabytes),
            "before training MB": ("base_bytes", megabytes),
            "of eager": ("share_of_eager", share),
        },
    ),
}


# The bars of the project: where a row meets them


@dataclass(frozen=True)
class Bar:
    """A figure that must be reached, and the rows it is read from."""

    what: str
    benchmark: str
    where: Row
    field: str
    form: Form
    bar: float
    aim: float | None = None
    at_least: bool = False

    def met(self, value: float, limit: float) -> bool:
        return value >= limit if self.at_least else value <= limit


PAPER = {"refinements": 10, "pivots": 1000, "precision": "float32", "delta": "truncate"}
GPU, CPU = {"device": "cuda"}, {"device": "cpu", "threads": 2}
FUSED = GPU | {"nodes": 200_000, "pivots": 1000, "width": 256, "features": 64, "backend": "triton"}
LARGE = {"refinements": 2, "degree": 20.0, "precision": "float32"}


def seconds(value: Any) -> str:
    return f"{number(value)} s"


def gb(value: Any) -> str:
    return f"{number(value / 1e9)} GB"


def epoch_bar(target: str, bar: float, aim: float) -> Bar:
    where = GPU | PAPER | {"target": target, "epochs": 500, "backend": "auto"}
    return Bar(
        f"{target}, 500 epochs of transfer", "epoch", where, "train_seconds", seconds, bar, aim
    )


BARS = (
    epoch_bar("amherst41", 3, 1),
    epoch_bar("johnshopkins55", 4, 1.5),
    Bar(
        "pubmed, P = 800, peak GPU memory",
        "epoch",
        GPU | PAPER | {"target": "pubmed", "pivots": 800, "epochs": 20, "picked": "triton"},
        "peak_bytes",
        gb,
        0.8e9,
        0.4e9,
    ),
    Bar(
        "10 seeds of amherst41 in one batch, against one seed, 100 epochs",
        "batch",
        GPU | PAPER | {"target": "amherst41", "seeds": 10, "epochs": 100},
        "ratio",
        times,
        4,
        2,
    ),
    *(
        Bar(
            f"op at N = 200,000, forward + backward in {precision}, fused against eager",
            "op",
            FUSED | {"precision": precision},
            "speedup_over_eager",
            times,
            3,
            6,
            at_least=True,
        )
        for precision in ("float32", "tf32", "bfloat16")
    ),
    *(
        Bar(
            f"its peak memory in {precision}, as a share of eager's",
            "op",
            FUSED | {"precision": precision},
            "peak_share_of_eager",
            share,
            0.125,
        )
        for precision in ("float32", "tf32", "bfloat16")
    ),
    *(
        Bar(
            f"its share of the measured matmul ceiling of {precision}",
            "op",
            FUSED | {"precision": precision},
            "ceiling_share",
            share,
            0.35,
            0.6,
            at_least=True,
        )
        for precision in ("tf32", "bfloat16")  # float32 is made of bfloat16 products
    ),
    Bar(
        "1 M nodes, 10 M edges, 2 refinements: peak of an epoch",
        "scale",
        GPU | LARGE | {"nodes": 1_000_000, "delta": "truncate"},
        "peak_bytes",
        gb,
        12e9,
        6e9,
    ),
    Bar(
        "10 M nodes, 100 M edges, 2 refinements: one epoch",
        "scale",
        GPU | LARGE | {"nodes": 10_000_000, "delta": "truncate"},
        "epoch_ms",
        lambda value: seconds(value / 1e3),
        float("inf"),
        5e3,
    ),
    Bar(
        "growth of epoch time above 100 k nodes: exponent",
        "scale",
        GPU | {"kind": "fit", "refinements": 2, "delta": "truncate", "precision": "float32"},
        "exponent",
        "{:.2f}".format,
        1.05,
    ),
    Bar(
        "reed98 on 2 CPU cores: one epoch",
        "epoch",
        CPU | PAPER | {"target": "reed98", "backend": "auto"},
        "epoch_ms",
        lambda value: seconds(value / 1e3),
        350,
        150,
    ),
    Bar(
        "linear against truncation by eager at N = 20,000, P = 1000 on 2 CPU cores",
        "op",
        CPU | {"nodes": 20_000, "pivots": 1000, "backend": "linear", "precision": "float32"},
        "speedup_over_eager",
        times,
        8,
        at_least=True,
    ),
    Bar(
        "1 M nodes, 10 M edges with linear on 2 CPU cores: peak of an epoch",
        "scale",
        CPU | LARGE | {"nodes": 1_000_000, "delta": "affine"},
        "peak_bytes",
        gb,
        10e9,
    ),
)
