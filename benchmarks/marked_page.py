"""Pages with blocks that are made from rows, between ``<!-- table: NAME -->`` and its end."""

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from graphglow.errors import InputError
from graphglow.storage import atomic_path

MARKER = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", flags=re.DOTALL)
NO_ROWS = "No rows yet.\n"
ROOT = Path(__file__).resolve().parents[1]


def rewrite(page: Path, made: Mapping[str, str], *, check: bool = False) -> int:
    """Put every block of a page in its place; return 1 if it was stale and is only to be checked.

    Each of ``made`` must have its markers in the page once, and no others may be there.
    """
    before = page.read_text()
    there = [match[2] for match in MARKER.finditer(before)]
    if sorted(there) != sorted(made):
        raise InputError(
            f"{page.name} must have the blocks {', '.join(made)}; got {', '.join(there)}"
        )
    after = MARKER.sub(lambda match: match[1] + made[match[2]] + match[3], before)
    if before == after:
        return 0
    if not check:
        with atomic_path(page) as temporary:
            temporary.write_text(after)
    return int(check)


def markdown(titles: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table; lines within it must be of the same length."""
    whole = [titles, ["---"] * len(titles), *lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in whole)


def write_page(
    page: str, make: Callable[[Path], Mapping[str, str]], words: Sequence[str] | None = None
) -> int:
    """The command of a script that makes the blocks of one page of docs/ from a folder of rows."""
    parser = argparse.ArgumentParser(description=f"Write the tables of docs/{page} from rows.")
    parser.add_argument("--check", action="store_true", help="change nothing; 1 if it is stale")
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / page)
    args = parser.parse_args(words)
    return rewrite(args.page, make(args.results), check=args.check)
