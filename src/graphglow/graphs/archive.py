"""What a packed file may unpack to: looked up before anything is unpacked.

A few kilobytes can say that they are petabytes, and a few megabytes can be gigabytes of zeros. A
packed file may unpack to ``FREE`` bytes, or to ``RATIO`` times its own size where that is more;
text, whose cells take more room than their letters, to less. ``GRAPHGLOW_UNPACK_LIMIT``, a number
of GiB, goes before all of these.
"""

import gzip
import io
import math
import os
import zipfile
from pathlib import Path

from graphglow.errors import InputError

FREE = 256 * 2**20
RATIO = 200
FREE_TEXT = 16 * 2**20
RATIO_OF_TEXT = 50
MOST_ENTRIES = 10_000
VARIABLE = "GRAPHGLOW_UNPACK_LIMIT"
PACKED_AS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}


def unpack_limit(path: Path, *, text: bool = False) -> int:
    """The most bytes that this file may unpack to."""
    told = os.environ.get(VARIABLE, "").strip()
    if not told:
        free, ratio = (FREE_TEXT, RATIO_OF_TEXT) if text else (FREE, RATIO)
        return max(free, ratio * path.stat().st_size)
    try:
        limit = float(told)
    except ValueError:
        limit = math.nan
    if not limit > 0:
        raise InputError(f"{VARIABLE} must be a number of GiB above 0; got {told!r}")
    return int(min(limit, 2**30) * 2**30)


def check_unpacked(size: int, path: Path, *, text: bool = False) -> None:
    """Raise if what is in ``path`` would take ``size`` bytes, and that is too much."""
    limit = unpack_limit(path, text=text)
    if size > limit:
        raise InputError(
            f"{path} must unpack to at most {_size(limit)}; got {_size(size)} in a file of "
            f"{path.stat().st_size:,} bytes ({VARIABLE}=GIB in the environment allows more)"
        )


def _size(size: int) -> str:
    if size >= 2**60:
        return "far more"
    return f"{size / 2**20:,.1f} MiB" if size < 2**30 else f"{size / 2**30:,.1f} GiB"


def check_zip(archive: zipfile.ZipFile, path: Path, *, packed: bool = True) -> None:
    """Raise if an archive is one that nobody writes for us: a bomb, a puzzle, or locked.

    Args:
        archive: The opened archive, of which only the directory has been read.
        path: The file, for its size and its name.
        packed: Whether its entries may be compressed.
    """
    entries = archive.infolist()
    if len(entries) > MOST_ENTRIES:
        raise InputError(f"{path} must hold at most {MOST_ENTRIES:,} entries; got {len(entries):,}")
    names = [entry.filename for entry in entries]
    if len(set(names)) < len(names):
        raise InputError(f"{path} must name each entry once; got a name twice")
    for entry in entries:
        if entry.compress_type not in (PACKED_AS if packed else {zipfile.ZIP_STORED}):
            rule = "stored or deflated" if packed else "stored, not compressed"
            raise InputError(f"entries of {path} must be {rule}; got {entry.filename!r:.80}")
        if entry.flag_bits & 1:
            raise InputError(f"{path} must not be encrypted; got {entry.filename!r:.80}")
    check_unpacked(sum(entry.file_size for entry in entries), path)


class Unpacked(io.RawIOBase):
    """The text in a packed stream, as bytes, up to the limit of its file; more raise an error."""

    def __init__(self, stream: gzip.GzipFile, path: Path) -> None:
        self.stream, self.path, self.seen = stream, path, 0
        self.limit = unpack_limit(path, text=True)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill ``buffer``; see :class:`io.RawIOBase`."""
        data = self.stream.read(len(buffer))
        self.seen += len(data)
        if self.seen > self.limit:
            check_unpacked(self.seen, self.path, text=True)
        buffer[: len(data)] = data
        return len(data)
