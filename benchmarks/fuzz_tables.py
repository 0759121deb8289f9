"""Tables and GraphML files, valid in the main and wrong in places; see ``fuzz_files.py``."""

import gzip
import io
from random import Random
from typing import Any

import numpy as np

from fuzz_bytes import TEXTS, sometimes_damaged

NODES = 8


def _cell(random: Random) -> str:
    return random.choice(TEXTS) if random.random() < 0.02 else str(random.randrange(3))


def csv_file(random: Random) -> bytes:
    """A nodes table."""
    separator = random.choice(",,,,;\t|")
    names = ["id", "label", "a", "b", "split"][: random.randint(3, 5)]
    if random.random() < 0.1:
        names[random.randrange(len(names))] = random.choice(TEXTS)
    rows = [names]
    for row in range(random.choice((0, 1, 2, 6, 6, 6, 12, 12, 40))):
        cells = [str(row), random.choice("ab"), _cell(random), _cell(random)]
        cells += [random.choice(("train", "val", "test", ""))]
        cells = cells[: len(names)]
        if random.random() < 0.03:
            cells[random.randrange(len(cells))] = random.choice(TEXTS)
        if random.random() < 0.02:
            cells += ["x"]
        rows.append(cells)
    end = random.choice(("\n", "\n", "\r\n", "\r"))
    quoted = random.random() < 0.3
    lines = [separator.join(f'"{c}"' if quoted else c for c in cells) for cells in rows]
    encoding = random.choice(("utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "latin1"))
    data = end.join(lines).encode(encoding, "replace")
    return sometimes_damaged(data, random, 0.3)


def csv_gz_file(random: Random) -> bytes:
    """The same, packed."""
    packed = gzip.compress(csv_file(random), compresslevel=1, mtime=0)
    if random.random() < 0.1:
        packed += packed
    return sometimes_damaged(packed, random, 0.4)


def parquet_file(random: Random) -> bytes:
    """A nodes table whose columns have odd types."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = random.choice((0, 1, 2, 8, 8, 8))
    columns: dict[str, Any] = {
        "id": pa.array([f"n{i}" for i in range(rows)]),
        "label": pa.array([i % 2 for i in range(rows)]),
        "a": pa.array(np.arange(rows, dtype="f4")),
        "b": pa.array([random.choice("xyz") for _ in range(rows)]),
    }
    kinds: tuple[Any, ...] = (
        pa.array([[1, 2]] * rows, pa.list_(pa.int8())),
        pa.array([{"k": 1}] * rows, pa.struct([("k", pa.int8())])),
        pa.array([b"\xff\0"] * rows, pa.binary()),
        pa.array([pd.Timestamp("1677-09-21")] * rows, pa.timestamp("us")),
        pa.array([253402300799] * rows, pa.int64()).cast(pa.timestamp("s")),
        pa.array([None] * rows, pa.null()),
        pa.array([10**30] * rows, pa.decimal128(38, 2)),
        pa.array([3] * rows, pa.time64("us")),
        pa.array([3] * rows, pa.duration("ns")),
        pa.array([float("inf")] * rows),
        pa.array([2**64 - 1] * rows, pa.uint64()),
        pa.array([random.choice(TEXTS) for _ in range(rows)]),
        pa.array(["a"] * rows).dictionary_encode(),
        pa.array([True, None, False, True, None, False, True, None][:rows]),
    )
    for name in list(columns):
        if random.random() < 0.1:
            columns[name] = random.choice(kinds)
        if random.random() < 0.03:
            columns[random.choice(TEXTS)] = columns.pop(name)
    try:
        table = pa.table(columns)
        buffer = io.BytesIO()
        packed = random.choice(("none", "snappy", "gzip", "zstd"))
        pq.write_table(table, buffer, compression=packed, row_group_size=random.choice((1, 3, 99)))
    except (pa.ArrowException, UnicodeError):
        return b"PAR1"
    return sometimes_damaged(buffer.getvalue(), random, 0.5)


GRAPHML = """<?xml version="1.0" encoding="UTF-8"?>%s
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="d0" for="node" attr.name="%s" attr.type="%s"/>
<key id="d1" for="node" attr.name="label" attr.type="%s"><default>%s</default></key>
<key id="d2" for="edge" attr.name="weight" attr.type="%s"/>
<graph edgedefault="%s">%s%s</graph></graphml>"""


def graphml_file(random: Random) -> bytes:
    """A graph in XML, sometimes with a document type and entities."""
    from xml.sax.saxutils import escape

    def text() -> str:
        return escape(random.choice(TEXTS).replace("\0", "").replace("\x1b", "").replace("\7", ""))

    def kind(usual: str) -> str:
        others = ("int", "long", "float", "double", "boolean", "string", "yfiles", "x")
        return random.choice(others) if random.random() < 0.15 else usual

    head = "" if random.random() < 0.9 else '<!DOCTYPE g [<!ENTITY lol "lol">]>'
    by = random.choice(("a", "x")) if random.random() < 0.9 else text()
    nodes = []
    for i in range(NODES):
        value = str(i) if by != "x" else f"[{i}, 1]"
        value = text() if random.random() < 0.05 else value
        label = text() if random.random() < 0.03 else str(i % 2)
        nodes.append(
            f'<node id="n{i}"><data key="d0">{value}</data><data key="d1">{label}</data></node>'
        )
    edges = []
    for i in range(NODES - 1):
        value = text() if random.random() < 0.05 else "0.5"
        edges.append(f'<edge source="n{i}" target="n{i + 1}"><data key="d2">{value}</data></edge>')
    way = random.choice(("directed", "undirected", "undirected"))
    head = GRAPHML % (
        head, by, kind("double" if by != "x" else "string"), kind("int"),
        text() if random.random() < 0.1 else "0", kind("double"), way, "".join(nodes),
        "".join(edges),
    )  # fmt: skip
    return sometimes_damaged(head.encode("utf-8", "replace"), random, 0.35)
