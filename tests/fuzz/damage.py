"""Files of every kind that graphglow reads, valid in the main and wrong in places.

One function per kind: ``make(random) -> bytes``. All choices come from one ``random.Random``, so
that a seed gives the same file again. Bytes changed blindly hardly ever pass a check sum: so cells,
arrays and JSON values are changed before they are packed, and bytes of a share of the files after.
"""

import gzip
import io
import json
import struct
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.torch import load
from torch_geometric.data import Data

from graphglow import LearnerConfig, StructureLearner
from graphglow.storage import checksum

NODES = 8
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
    b"]", b"PK\x03\x04", b"\x93NUMPY", b"PAR1", b"\x1f\x8b\x08", b"<!DOCTYPE a>", b"nan", b"1e999",
    b"-1", b"null", b"99999999999999999999", b"\x80\x02",
)  # fmt: skip
ODD = (None, True, [], {}, [[]], 0.5, -0.0, 1e308, float("nan"), float("inf"), *NUMBERS, *TEXTS)


def mangled(value: Any, random: Random, share: float) -> Any:
    """A copy of a JSON value in which some parts are others, or gone, or twice."""
    if random.random() < share:
        return random.choice(ODD)
    if isinstance(value, dict):
        kept = {k: mangled(v, random, share) for k, v in value.items() if random.random() > share}
        return kept | ({random.choice(TEXTS): 1} if random.random() < share else {})
    if isinstance(value, list):
        kept = [mangled(item, random, share) for item in value if random.random() > share / 2]
        return kept + kept[:1] if random.random() < share else kept
    return value


def damaged(data: bytes, random: Random, share: float) -> bytes:
    """The bytes of a file, in a share of cases with some changed, cut, moved or filled in."""
    found = bytearray(data)
    for _ in range(random.randint(1, 4) if random.random() < share else 0):
        at, some = random.randrange(len(found) + 1), random.randint(1, 40)
        kind = random.randrange(6)
        if kind == 0 and at < len(found):
            found[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            found[at : at + some] = b""
        elif kind == 2:
            found[at:at] = found[at : at + some]
        elif kind == 3:
            found[at:at] = random.choice(TOKENS)
        elif kind == 4:
            found[at : at + 4] = struct.pack("<I", random.choice(NUMBERS) % 2**32)
        else:
            found[at:at] = random.randbytes(some // 2)
    return bytes(found[: random.randrange(len(found))]) if random.random() < share / 8 else found


def arrays() -> dict[str, np.ndarray]:
    return {
        "x": np.arange(NODES * 2, dtype=np.float32).reshape(NODES, 2),
        "y": np.arange(NODES) % 2,
        "edge_index": np.array([[0, 1, 2, 3], [1, 2, 3, 4]]),
        "edge_weight": np.ones(4),
        "train": np.array([0, 1, 2, 3]),
        "val": np.array([4, 5]),
        "test": np.array([6, 7]),
    }


def sparse_arrays() -> dict[str, np.ndarray]:
    """The same in the field's sparse convention."""
    found: dict[str, np.ndarray] = {"labels": np.arange(NODES) % 2}
    for name, indices, width in (("adj", [1, 2, 3, 4, 5, 6, 7, 0], NODES), ("attr", [0, 1] * 4, 2)):
        found[f"{name}_data"] = np.ones(NODES, np.float32)
        found[f"{name}_indices"] = np.array(indices, np.int32)
        found[f"{name}_indptr"] = np.arange(NODES + 1, dtype=np.int32)
        found[f"{name}_shape"] = np.array([NODES, width])
    return found


def odd_array(array: np.ndarray, random: Random) -> np.ndarray:
    kind = random.randrange(5)
    out = array.astype("f8" if kind == 1 else array.dtype)
    if kind == 0:
        return array.astype(random.choice(("f2", "f8", "i4", "u8", "?", "U5", "S3", "c8", ">i2")))
    if kind == 1:
        out.flat[random.randrange(out.size)] = random.choice((np.nan, np.inf, 1e308, -3.0, 2.0**63))
    elif kind == 2:
        out.flat[random.randrange(out.size)] = random.choice([n for n in NUMBERS if n < 2**31])
    elif kind == 3:
        return array[: random.randrange(len(array) + 1)]
    else:
        return np.array([random.choice(TEXTS) for _ in array.flat]).reshape(array.shape)
    return out


def npz_file(random: Random) -> bytes:
    """A graph, or a split, of named arrays; headers of some lie about what follows."""
    given = sparse_arrays() if random.random() < 0.3 else arrays()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in given.items():
            if random.random() < 0.04:
                continue
            entry = io.BytesIO()
            odd = odd_array(array, random) if random.random() < 0.08 else array
            np.lib.format.write_array(entry, odd, allow_pickle=True)
            data = entry.getvalue()
            if random.random() < 0.03:
                shape = random.choice(("(2**40,)", "(8, 2)", "(-1,)", "(0, 10**18)", "()"))
                data = data.replace(f"'shape': {odd.shape}".encode(), f"'shape': {shape}".encode())
            archive.writestr(f"{name}.npy", damaged(data, random, 0.02))
    return damaged(buffer.getvalue(), random, 0.2)


def _odd_tensor(tensor: torch.Tensor, random: Random) -> Any:
    kind = random.randrange(7)
    if kind == 0:
        return tensor[:1].expand(10**6, *tensor.shape[1:])
    if kind == 1:
        return tensor.to("meta")
    if kind == 2 and tensor.ndim == 2:
        return tensor.to_sparse()
    if kind == 3:
        at = torch.zeros(2, 1, dtype=torch.int64)
        size = (2**40, 2**20)
        return torch.sparse_coo_tensor(at, torch.ones(1), size, check_invariants=False)
    if kind == 4:
        return torch.nn.Parameter(tensor.float())
    if kind == 5:
        return tensor.to(random.choice((torch.complex64, torch.bool, torch.bfloat16, torch.uint8)))
    return random.choice(ODD)


def pt_file(random: Random) -> bytes:
    """A ``Data`` or a dict of tensors by ``torch.save``."""
    fields: dict[str, Any] = {name: torch.from_numpy(a) for name, a in arrays().items()}
    for name in list(fields):
        if (chance := random.random()) < 0.06:
            fields[name] = _odd_tensor(fields[name], random)
        elif chance < 0.1:
            del fields[name]
    if random.random() < 0.15:
        extra = random.choice(("node_id", "class_names", "feature_columns", "name", "z"))
        fields[extra] = random.choice(ODD)
    content: Any = Data(**fields) if random.random() < 0.3 else fields
    content = random.choice(([content], {"a": content}, 3)) if random.random() < 0.05 else content
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(content, buffer, _use_new_zipfile_serialization=random.random() > 0.05)
    return damaged(buffer.getvalue(), random, 0.2)


def csv_file(random: Random, ids: str = "") -> bytes:
    """A nodes table."""
    names = ["id", "label", "a", "b", "split"][: random.randint(3, 5)]
    if random.random() < 0.1:
        names[random.randrange(len(names))] = random.choice(TEXTS)
    rows = [names]
    for row in range(random.choice((0, 1, 2, 6, 6, 6, 12, 12, 40))):
        cells = [f"{ids}{row}", random.choice("ab"), str(random.randrange(3)), random.choice("xy")]
        cells = [*cells, random.choice(("train", "val", "test", ""))][: len(names)]
        if random.random() < 0.03:
            cells[random.randrange(len(cells))] = random.choice(TEXTS)
        rows.append([*cells, "x"] if random.random() < 0.02 else cells)
    quoted, separator = random.random() < 0.3, random.choice(",,,,;\t|")
    lines = [separator.join(f'"{c}"' if quoted else c for c in cells) for cells in rows]
    encoding = random.choice(("utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "latin1"))
    text = random.choice(("\n", "\n", "\r\n", "\r")).join(lines)
    return damaged(text.encode(encoding, "replace"), random, 0.3)


def csv_gz_file(random: Random) -> bytes:
    return damaged(gzip.compress(csv_file(random), 1, mtime=0), random, 0.4)


def edges_file(random: Random) -> bytes:
    """An edges table beside a nodes table."""
    lines = [random.choice(("source,target,weight", "from,to", "a,b", random.choice(TEXTS)))]
    for _ in range(random.randrange(12)):
        cells = [str(random.randrange(NODES)) for _ in range(3)]
        if random.random() < 0.05:
            cells[random.randrange(3)] = random.choice(TEXTS)
        lines.append(",".join(cells[: lines[0].count(",") + 1]))
    return damaged("\n".join(lines).encode("utf-8", "replace"), random, 0.3)


def parquet_file(random: Random) -> bytes:
    """A nodes table whose columns have odd types."""
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
        pa.array([b"\xff\0"] * rows, pa.binary()),
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
    for name in columns:
        if random.random() < 0.1:
            columns[name] = random.choice(kinds)
    buffer = io.BytesIO()
    packed = random.choice(("none", "snappy", "gzip", "zstd"))
    pq.write_table(pa.table(columns), buffer, compression=packed, row_group_size=3)
    return damaged(buffer.getvalue(), random, 0.5)


GRAPHML = """<?xml version="1.0" encoding="UTF-8"?>%s
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="d0" for="node" attr.name="%s" attr.type="%s"/>
<key id="d1" for="node" attr.name="label" attr.type="%s"/>
<key id="d2" for="edge" attr.name="weight" attr.type="%s"/>
<graph edgedefault="%s">%s%s</graph></graphml>"""


def graphml_file(random: Random) -> bytes:
    """A graph in XML, sometimes with a document type and entities."""
    from xml.sax.saxutils import escape

    def text(usual: object, share: float = 0.05) -> str:
        words = [word for word in TEXTS if word.isprintable()]
        return escape(random.choice(words)) if random.random() < share else str(usual)

    def kind(usual: str) -> str:
        return random.choice(("int", "boolean", "string", "x")) if random.random() < 0.15 else usual

    by = random.choice(("a", "x"))
    nodes = "".join(
        f'<node id="n{i}"><data key="d0">{text(i if by == "a" else f"[{i}, 1]")}</data>'
        f'<data key="d1">{text(i % 2)}</data></node>'
        for i in range(NODES)
    )
    edges = "".join(
        f'<edge source="n{i}" target="n{i + 1}"><data key="d2">{text(0.5)}</data></edge>'
        for i in range(NODES - 1)
    )
    head = "" if random.random() < 0.9 else '<!DOCTYPE g [<!ENTITY lol "lol">]>'
    usual = kind("double" if by == "a" else "string")
    way = random.choice(("directed", "undirected"))
    page = GRAPHML % (head, text(by), usual, kind("int"), kind("double"), way, nodes, edges)
    return damaged(page.encode("utf-8", "replace"), random, 0.35)


@lru_cache
def saved_learner() -> bytes:
    """A small learner, as graphglow writes it."""
    learner = StructureLearner(LearnerConfig(embedding_size=4, num_heads=2))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file.safetensors")
        learner.save(path)
        return path.read_bytes()


def safetensors_file(random: Random) -> bytes:
    """What graphglow wrote, with other facts in its header and a checksum that fits them."""
    data = saved_learner()
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    told = json.loads(header["__metadata__"]["graphglow"])
    del told["sha256"]
    told = mangled(told, random, random.choice((0, 0.005, 0.03, 0.1)))
    if isinstance(told, dict):
        told["sha256"] = checksum(load(data), told)
    header["__metadata__"]["graphglow"] = json.dumps(told)
    header = mangled(header, random, 0.03) if random.random() < 0.2 else header
    text = json.dumps(header).encode("utf-8", "replace")
    return damaged(len(text).to_bytes(8, "little") + text + body, random, 0.15)


MAKERS: dict[str, tuple[str, Callable[[Random], bytes]]] = {
    "npz": (".npz", npz_file),
    "split": (".npz", npz_file),
    "pt": (".pt", pt_file),
    "csv": (".csv", csv_file),
    "csv_gz": (".csv.gz", csv_gz_file),
    "edges": (".csv", edges_file),
    "new_nodes": (".csv", partial(csv_file, ids="n")),
    "parquet": (".parquet", parquet_file),
    "graphml": (".graphml", graphml_file),
    "learner": (".safetensors", safetensors_file),
}
"""Kind -> suffix and maker."""
