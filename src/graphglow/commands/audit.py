"""``graphglow audit``: which edges of a graph look wrong, and which are missing."""

import time
from functools import partial
from typing import Annotated

from tyro.conf import arg

from graphglow.checks import at_least
from graphglow.commands import flags
from graphglow.commands.files import Working, check_output, write_each
from graphglow.commands.terminal import say, tell, waiting
from graphglow.errors import InputError
from graphglow.graph.write import TABLES, write_table
from graphglow.settings import Device

Top = Annotated[int | None, flags.said(None, "INT", "(default: as many as edges)")]


def audit(  # noqa: D417 (flags.py says the rest)
    target: flags.GraphName,
    reading: flags.Reading,
    working: Working,
    suspects: flags.OptionalFile = None,
    missing: flags.OptionalFile = None,
    out: flags.OptionalFile = None,
    top: Top = None,
    seed: int = 0,
    device: Annotated[Device, arg(help="Where to compute.")] = "auto",
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Say which edges of a graph look wrong and which are missing, with nothing trained.

    Labels are not needed; those of training nodes are evidence too. Edges count as undirected.

    Example: graphglow audit --target people.csv+relations.csv --suspects s.csv --out audit.html

    Args:
        suspects: Where to write every edge once, the most doubtful first (.csv or .parquet):
            source, target, probability_real, probability_same_class, against.
        missing: Where to write the pairs without an edge that look most like edges (.csv or
            .parquet).
        out: Where to write a page with pictures (.html) that opens offline.
        top: How many missing pairs to write.
        seed: Of random numbers that the evidence uses.
    """
    from graphglow.audit import audit as audit_graph
    from graphglow.report.audit import write_audit
    from graphglow.report.page import PAGES

    if top is not None:
        at_least("top", top, 0)
    given = [path.expanduser().absolute() for path in (suspects, missing, out) if path is not None]
    if len(set(given)) < len(given):
        raise InputError(f"--suspects, --missing and --out must be different files; got {given[0]}")
    inputs = (target, reading.split_file)
    if suspects is not None:
        suspects = check_output(suspects, overwrite=overwrite, suffixes=TABLES, inputs=inputs)
    if missing is not None:
        missing = check_output(missing, overwrite=overwrite, suffixes=TABLES, inputs=inputs)
    if out is not None:
        out = check_output(out, overwrite=overwrite, suffixes=PAGES, inputs=inputs)
    with waiting("loading the graph"):
        data, split = reading.read(target, need_labels=False)
    began = time.perf_counter()
    with waiting("auditing"):
        found = audit_graph(
            data, top=top, seed=seed, device=device, workers=working.workers, ray=working.ray
        )
    seconds = time.perf_counter() - began
    with waiting("writing"):
        write_each(
            (suspects, lambda path: write_table(found.suspects, path, "a table of suspects")),
            (missing, lambda path: write_table(found.missing, path, "a table of pairs")),
            (out, partial(write_audit, found)),
        )
    facts = {
        "command": "audit",
        "target": data.name,
        "split": split,
        "nodes": found.problem.num_nodes,
        "edges": found.edges.shape[1],
        "false_share": found.false_share.estimate,
        "false_share_low": found.false_share.low,
        "false_share_high": found.false_share.high,
        "doubtful_edges": int((found.probability_real < 0.5).sum()),
        "likely_missing": int((found.findings.pair_log_odds > 0).sum()),
        "seconds": seconds,
        "suspects": suspects,
        "missing": missing,
        "out": out,
        "seed": seed,
    }
    tell("Audit", facts, json=json)
    if not json:
        say(found.verdict)
