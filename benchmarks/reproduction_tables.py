"""Write the tables of docs/reproduction.md from rows; --check says whether they are stale.

python benchmarks/reproduction_tables.py [--check]
"""

import sys
from collections import Counter
from pathlib import Path

from graphglow.lab.config import read_settings
from graphglow.lab.paper_tables import EXPERIMENTS
from graphglow.lab.rows import rows_in
from graphglow.lab.tables import tables_of
from marked_page import write_page


def tables(results: Path) -> dict[str, str]:
    """Every block of the page, by name."""
    tuned = read_settings(results / "settings.json")
    rows = rows_in(results / "reproduce", EXPERIMENTS)
    made = {name: tables_of(name, rows, tuned) for name in EXPERIMENTS}
    where = Counter(
        (row["provenance"]["machine"].get("gpu") or "CPU", row["provenance"]["versions"]["torch"])
        for row in rows
    )
    machines = "".join(f"- {gpu}, torch {torch}: {n:,}\n" for (gpu, torch), n in where.items())
    return made | {"rows": f"{len(rows):,} rows.\n\n{machines}"}


if __name__ == "__main__":
    sys.exit(write_page("docs/reproduction.md", tables))
