"""Pages with blocks that are made from rows, between ``<!-- table: NAME -->`` and its end."""

import re
from collections.abc import Mapping
from pathlib import Path

from graphglow.errors import InputError
from graphglow.storage import atomic_path

MARKER = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", flags=re.DOTALL)
NO_ROWS = "No rows yet.\n"


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
