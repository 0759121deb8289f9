"""``graphglow audit``: which edges of a graph look wrong, and which are missing."""

import time
from functools import partial

from graphglow.commands import flags
from graphglow.commands.output import check_output, print_facts, print_text, write_each
from graphglow.commands.progress import spinner
from graphglow.errors import InputError


def audit(
    target: flags.GraphName,
    reading: flags.Reading,
    working: flags.Working,
    auditor: flags.AuditorName = "audit",
    suspects: flags.OptionalFile = None,
    missing: flags.OptionalFile = None,
    out: flags.OptionalFile = None,
    top: flags.OptionalInt = None,
    seed: int = 0,
    device: flags.Device = "auto",
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
        top: How many missing pairs to write; by default as many as there are edges.
        seed: Seed of the random numbers that the evidence uses.
    """
    from graphglow.audit import audit as audit_graph
    from graphglow.graph.write import TABLES, write_table
    from graphglow.report import PAGES
    from graphglow.report.explanations import write_audit

    given = [path.expanduser().absolute() for path in (suspects, missing, out) if path is not None]
    if len(set(given)) < len(given):
        raise InputError("--suspects, --missing and --out are one file: name different ones")
    new = partial(check_output, overwrite=overwrite, inputs=(target, auditor, reading.split_file))
    suspects = suspects and new(suspects, suffixes=TABLES)
    missing = missing and new(missing, suffixes=TABLES)
    out = out and new(out, suffixes=PAGES)
    with spinner("loading the graph"):
        data, split = reading.read(target, need_labels=False)
    began = time.perf_counter()
    with spinner("auditing"):
        found = audit_graph(data, auditor, top=top, seed=seed, device=device, **vars(working))
    seconds = time.perf_counter() - began
    with spinner("writing"):
        write_each(
            (suspects, lambda path: write_table(found.suspects, path, "a table of suspects")),
            (missing, lambda path: write_table(found.missing, path, "a table of pairs")),
            (out, partial(write_audit, found)),
        )
    facts = {
        "command": "audit",
        "target": data.name,
        "split": split,
        "nodes": data.num_nodes,
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
    print_facts("Audit", facts, json=json)
    if not json:
        print_text(found.verdict)
