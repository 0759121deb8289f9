"""Bytes gone wrong: what the fuzzers do to any file, and the odd values they put into all kinds.

All choices come from one ``random.Random``, so that a seed gives the same file again.
"""

import io
import json
import struct
import warnings
import zipfile
from collections.abc import Sequence
from random import Random
from typing import Any

NUMBERS = (0, 1, -1, 2, 7, 127, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**53 + 1, 2**63, 10**18)
TEXTS = (
    "", " ", "a", "0", "-1", "1e400", "-inf", "nan", "NaN", "None", "True", "1_000", "0x10",
    "1,5", "2024-01-31", "2024-13-45", "9999-12-31T23:59:60", "9" * 400, "\x1b[2J\x1b]0;owned\x07",
    "a\nb", "a\r\nb", "\0", "'", '"', '""', ";", "\t", "|", "=cmd()", "../../etc/passwd", "%s%n",
    "{x}", "<script>alert(1)</script>", "&lol;", "\ud7ff", "\u202etxt", "\U0001f600", "\ufeff",
    "e\u0301", "x" * 5000, "source", "id", "label", "split", "train",
)  # fmt: skip
TOKENS = (
    b"\0", b"\xff", b"\xff\xfe", b"\n", b"\r", b'"', b",", b";", b"<", b">", b"&", b"{", b"}", b"[",
    b"]", b"PK\x03\x04", b"PK\x05\x06", b"\x93NUMPY", b"PAR1", b"\x1f\x8b\x08", b"<!DOCTYPE a>",
    b"<!ENTITY a 'b'>", b"nan", b"1e999", b"-1", b"null", b"99999999999999999999", b"\x80\x02",
)  # fmt: skip


def odd(random: Random) -> Any:
    """A value as JSON can hold it, of any kind."""
    kind = random.randrange(8)
    if kind == 0:
        return random.choice((None, True, False, [], {}, [[]], {"": 0}))
    if kind == 1:
        return random.choice((0.5, -0.0, 1e308, 1e-320, float("nan"), float("inf")))
    if kind <= 3:
        return random.choice(NUMBERS)
    if kind == 4:
        return [odd(random) for _ in range(random.randrange(3))]
    return random.choice(TEXTS)


def mangled(value: Any, random: Random, share: float = 0.1) -> Any:
    """A copy of a JSON value in which some parts are others, or gone, or twice."""
    if random.random() < share:
        return odd(random)
    if isinstance(value, dict):
        kept = {k: mangled(v, random, share) for k, v in value.items() if random.random() > share}
        if random.random() < share:
            kept[random.choice(TEXTS)] = odd(random)
        return kept
    if isinstance(value, list):
        kept = [mangled(item, random, share) for item in value if random.random() > share / 2]
        return kept + kept[:1] if random.random() < share else kept
    return value


def damaged(data: bytes, random: Random, most: int = 4) -> bytes:
    """Bytes of a file with some of them changed, cut, moved or filled in."""
    found = bytearray(data)
    for _ in range(random.randint(1, most)):
        at = random.randrange(len(found) + 1)
        kind = random.randrange(8)
        if kind == 0 and found:
            found[min(at, len(found) - 1)] ^= 1 << random.randrange(8)
        elif kind == 1 and found:
            found[min(at, len(found) - 1)] = random.randrange(256)
        elif kind == 2:
            found[at : at + random.randint(1, 40)] = b""
        elif kind == 3:
            found[at:at] = found[at : at + random.randint(1, 40)]
        elif kind == 4:
            found[at:at] = random.choice(TOKENS)
        elif kind == 5:
            form = random.choice(("<I", "<Q", "<H", ">I"))
            size = struct.calcsize(form)
            number = random.choice(NUMBERS) % 256**size
            found[at : at + size] = struct.pack(form, number)
        elif kind == 6:
            del found[at:]
        else:
            found[at:at] = random.randbytes(random.randint(1, 20))
    return bytes(found)


def sometimes_damaged(data: bytes, random: Random, share: float = 0.4) -> bytes:
    return damaged(data, random) if random.random() < share else data


def zipped(entries: Sequence[tuple[str, bytes]], random: Random) -> bytes:
    """An archive; its names may be hostile, and what it says of sizes may be a lie."""
    buffer = io.BytesIO()
    odd_names = ("../x.npy", "/etc/passwd", "x\n.npy", "x.npy", "", "a/" * 40 + "x.npy", "y")
    with zipfile.ZipFile(buffer, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that come twice
        for name, data in entries:
            if random.random() < 0.01:
                name = random.choice(odd_names)
            packed = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
            if random.random() < 0.01:
                packed = random.choice((zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
            archive.writestr(zipfile.ZipInfo(name), data, packed)
    found = bytearray(buffer.getvalue())
    if random.random() < 0.1:  # sizes in the central directory
        at = found.rfind(b"PK\x01\x02")
        field = random.choice((8, 10, 16, 20, 24, 28, 42))
        found[at + field : at + field + 4] = struct.pack("<I", random.choice(NUMBERS) % 2**32)
    return bytes(found)


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")
