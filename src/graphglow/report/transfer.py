"""The page of ``graphglow report``: saved transfers in one self-contained file."""

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from graphglow.report import structure
from graphglow.report.page import percent, write_page
from graphglow.training import PaperResult, TransferResult


def write_transfers(
    transfers: Sequence[tuple[Path, TransferResult]],
    path: str | Path,
    *,
    title: str = "graphglow results",
) -> None:
    """Write the page of transfers and where they come from; an existing one is replaced."""
    write_page(
        path,
        "transfer.html.j2",
        title=title,
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        transfers=[_transfer(path, result, len(transfers)) for path, result in transfers],
        top_k=structure.TOP_K,
        largest_refined=structure.LARGEST_REFINED,
    )


def _transfer(path: Path, result: TransferResult, count: int) -> dict[str, Any]:
    """What the page shows of a saved transfer, one of ``count``."""
    learned, fewer = structure.LearnedStructure(result), min(count, 4)
    shares = {name: learned.share(edges) for name, edges in learned.edges.items()}
    drawing = learned.drawing(structure.NODES_DRAWN // fewer)
    more = {"input weight": f"{result.message_graph[1]:g}"}
    if isinstance(result, PaperResult):
        more = {"pivots": f"{len(result.pivots):,}"} | more
    beside = {n: v for n, v in (result.metrics() or {}).items() if n != "accuracy"}
    more |= {n.replace("_", " "): percent(v) for n, v in beside.items() if isinstance(v, float)}
    if sources := result.provenance.get("sources"):
        more["pre-trained on"] = ", ".join(sources)
    small = [structure.homophily_chart(learned)] if len(shares) > 1 else []
    small += [structure.training_chart(result.history)] if result.history else []
    return {
        "path": path,
        "structure": learned,
        "facts": result.summary(),
        "drawn": structure.graph_chart(learned, drawing),
        "more": more,
        "small": small,
        "graphs": {**shares, "learned graph alone": learned.learned_share()},
        "confusion": learned.confusion().tolist(),
    }
