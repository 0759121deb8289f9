"""Pages with blocks that are made from rows, between ``<!-- table: NAME -->`` and its end."""

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from graphglow.errors import InputError
from graphglow.storage import atomic_path

MARKER = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", flags=re.DOTALL)
ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"


def rewrite(page: Path, made: Mapping[str, str], *, check: bool = False) -> int:
    """Put every block of a page in its place; return 1 if it was stale and is only to be checked.

    Each of ``made`` must have its markers in the page once, and no others may be there.
    """
    before = page.read_text()
    blocks = [match[2] for match in MARKER.finditer(before)]
    if sorted(blocks) != sorted(made):
        raise InputError(f"{page.name} has the blocks {blocks}; the script makes {[*made]}")
    after = MARKER.sub(lambda match: match[1] + made[match[2]] + match[3], before)
    if before != after and not check:
        with atomic_path(page) as temporary:
            temporary.write_text(after)
    return int(before != after and check)


def write_page(
    page: str, make: Callable[[Path], Mapping[str, str]], words: Sequence[str] | None = None
) -> int:
    """The command of a script that makes the blocks of one page from a folder of rows."""
    parser = argparse.ArgumentParser(description=f"Write the tables of {page} from rows.")
    parser.add_argument("--check", action="store_true", help="change nothing; 1 if it is stale")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=ROOT / page)
    args = parser.parse_args(words)
    return rewrite(args.page, make(args.results), check=args.check)
