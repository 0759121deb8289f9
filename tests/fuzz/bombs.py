"""Small files that mean harm: each would take gigabytes, hours, or a trip to another file.

As a script it reads each file of a folder under limits and prints what came of it:

    python bombs.py FOLDER
"""

import contextlib
import gzip
import io
import json
import os
import resource
import struct
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

Bomb = Callable[[Path], bytes | None]
"""Makes the file at a path, or returns what is to be in it."""
MIB = 2**20


def _npy(shape: tuple[int, ...], body: bytes = b"") -> bytes:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape!r}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


def _zip(entries: dict[str, bytes], packed: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", packed) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def zeros_npz(path: Path) -> None:
    """Zeros, which pack to a thousandth."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w", force_zip64=True) as entry,
    ):
        entry.write(_npy((40 * MIB,)))
        for _ in range(10):
            entry.write(bytes(32 * MIB))


def npz_of_petabytes(_: Path) -> bytes:
    """A directory that says what is not there."""
    data = bytearray(_zip({"x.npy": _npy((8,), bytes(64))}))
    at = data.rfind(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", 2**32 - 2)
    return bytes(data)


def npz_of_absurd_shape(_: Path) -> bytes:
    return _zip({"x.npy": _npy((2**40, 2**20)), "y.npy": _npy((10**9,))})


def npz_of_overflowing_shape(_: Path) -> bytes:
    return _zip({"x.npy": _npy((2**62, 4))})  # 0 in 64 bits


def npz_of_many_entries(_: Path) -> bytes:
    return _zip({f"{number}.npy": b"" for number in range(20_000)})


def npz_of_climbing_names(_: Path) -> bytes:
    return _zip({"../../../x.npy": _npy((1,), bytes(8)), "/etc/passwd": b""})


def _saved(content: object, **settings: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, **settings)
    return buffer.getvalue()


def expanded_pt(_: Path) -> bytes:
    """One number that claims to be 10^14."""
    return _saved({"x": torch.ones(1).expand(10**7, 10**7), "y": torch.arange(8) % 2})


def sparse_pt(_: Path) -> bytes:
    """A sparse matrix that is exabytes when dense."""
    at = torch.zeros(2, 1, dtype=torch.int64)
    x = torch.sparse_coo_tensor(at, torch.ones(1), (2**40, 2**20))
    return _saved({"x": x, "y": torch.zeros(8, dtype=torch.int64)})


def sparse_pt_out_of_bounds(_: Path) -> bytes:
    """Indices far outside of the matrix, where making it dense would write."""
    at = torch.full((2, 1), 2**40)
    x = torch.sparse_coo_tensor(at, torch.ones(1), (8, 2), check_invariants=False)
    return _saved({"x": x, "y": torch.arange(8) % 2})


def meta_pt(_: Path) -> bytes:
    return _saved({"x": torch.ones(8, 2, device="meta"), "y": torch.arange(8) % 2})


def packed_pt(_: Path) -> bytes:
    """What torch.save stores, compressed: unpacking it is unpacking a bomb."""
    with zipfile.ZipFile(io.BytesIO(_saved({"x": torch.zeros(10**6)}))) as archive:
        return _zip({name: archive.read(name) for name in archive.namelist()})


def old_pt(_: Path) -> bytes:
    return _saved({"x": torch.zeros(8, 2)}, _use_new_zipfile_serialization=False)


def zeros_csv_gz(path: Path) -> None:
    """Blank cells, each of which takes more in a table than in the file."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"id,label,a\n")
        for _ in range(10):
            file.write(b",,,,,,,," * MIB)


def endless_header_csv_gz(path: Path) -> None:
    """Text without a line end."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(10):
            file.write(b"a" * 8 * MIB)


def wide_csv(_: Path) -> bytes:
    """As many columns as a careless check compares with each other."""
    names = ",".join(f"c{i}" for i in range(100_000))
    return f"{names}\n{'1,' * 99_999}1\n".encode()


def repeated_parquet(path: Path) -> None:
    """A text of a megabyte that stands once in the file and in 3000 rows of the table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = pa.DictionaryArray.from_arrays(pa.array([0] * 3000, pa.int32()), ["x" * 10**6])
    table = pa.table({"id": pa.array(range(3000)), "label": text, "a": text})
    pq.write_table(table, path, store_schema=False, compression="zstd")


def long_parquet(path: Path) -> None:
    """The same number in forty million rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    group = pa.table({"id": pa.array(np.zeros(10**6, np.int64))})
    with pq.ParquetWriter(path, group.schema, compression="zstd") as writer:
        for _ in range(40):
            writer.write_table(group)


LAUGHS = "".join(f'<!ENTITY l{i + 1} "{f"&l{i};" * 10}">' for i in range(9))


def laughing_graphml(_: Path) -> bytes:
    """Entities of entities: 10^9 words."""
    return (
        f'<?xml version="1.0"?><!DOCTYPE g [<!ENTITY l0 "lol">{LAUGHS}]>'
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph id="&l9;"/></graphml>'
    ).encode()


def fetching_graphml(_: Path) -> bytes:
    """An entity that is another file."""
    return (
        b'<!DOCTYPE g [<!ENTITY f SYSTEM "file:///etc/passwd">]>'
        b'<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph id="&f;"/></graphml>'
    )


def deep_graphml(_: Path) -> bytes:
    head = b'<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    return head + b"<graph>" * 10**5 + b"</graph>" * 10**5 + b"</graphml>"


def huge_numbers_graphml(_: Path) -> bytes:
    key = '<key id="k" for="node" attr.name="{}" attr.type="int"/>'
    keys = key.format("label") + key.format("a").replace('"k"', '"a"')
    nodes = "".join(
        f'<node id="{i}"><data key="k">{i % 2}</data><data key="a">{"9" * 400}</data></node>'
        for i in range(8)
    )
    head = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    return f"{head}{keys}<graph>{nodes}</graph></graphml>".encode()


def _tensors(length: int, header: bytes, body: bytes = b"") -> bytes:
    return struct.pack("<Q", length) + header + body


def long_header_safetensors(_: Path) -> bytes:
    return _tensors(2**60, b"{}")


def absurd_shape_safetensors(_: Path) -> bytes:
    told = {"dtype": "F32", "shape": [2**40, 2**20], "data_offsets": [0, 2**62]}
    header = json.dumps({"w": told}).encode()
    return _tensors(len(header), header)


def deep_safetensors(_: Path) -> bytes:
    header = json.dumps({"__metadata__": {"graphglow": "[" * 10**6}}).encode()
    return _tensors(len(header), header)


def deep_json(_: Path) -> bytes:
    return b"[" * 10**6


def long_number_json(_: Path) -> bytes:
    return b'{"gcn": {"cora": {"hidden": ' + b"9" * 10**6 + b"}}}"


def endless_line_jsonl(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b'{"a": "')
        file.truncate(300 * MIB)  # a hole: it takes no room on the disk


BOMBS: dict[str, tuple[str, Bomb]] = {
    make.__name__: (suffix, make)
    for suffix, makes in {
        ".npz": (zeros_npz, npz_of_petabytes, npz_of_absurd_shape, npz_of_overflowing_shape,
                 npz_of_many_entries, npz_of_climbing_names),
        ".pt": (expanded_pt, sparse_pt, sparse_pt_out_of_bounds, meta_pt, packed_pt, old_pt),
        ".csv.gz": (zeros_csv_gz, endless_header_csv_gz),
        ".csv": (wide_csv,),
        ".parquet": (repeated_parquet, long_parquet),
        ".graphml": (laughing_graphml, fetching_graphml, deep_graphml, huge_numbers_graphml),
        ".safetensors": (long_header_safetensors, absurd_shape_safetensors, deep_safetensors),
        ".json": (deep_json, long_number_json),
        ".jsonl": (endless_line_jsonl,),
    }.items()
    for make in makes
}  # fmt: skip


def write_bombs(folder: Path) -> None:
    """All of them, each under its name."""
    for name, (suffix, make) in BOMBS.items():
        path = folder / f"{name}{suffix}"
        data = make(path)
        if data is not None:
            path.write_bytes(data)


def _read(path: Path) -> object:
    from graphglow import StructureLearner
    from graphglow.experiments.cell_rows import find_rows
    from graphglow.experiments.search.settings import read_settings
    from graphglow.graphs import load_graph

    readers = {".safetensors": StructureLearner.load, ".json": read_settings, ".jsonl": find_rows}
    return readers.get(path.suffix, load_graph)(path)


def main(folder: Path) -> None:
    """Read every file, and print a line of JSON for each."""
    from graphglow.errors import InputError

    with_imports(folder / "deep_json.json")
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + 700 * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for path in sorted(p for p in folder.iterdir() if p.name.split(".")[0] in BOMBS):
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            _read(path)
            said = "accepted"
        except InputError as error:
            said = f"refused: {error}"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        row = {"name": path.name.split(".")[0], "said": said}
        row["seconds"] = time.perf_counter() - start
        row["megabytes"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(json.dumps(row), flush=True)


def with_imports(path: Path) -> None:
    """Import what the readers import when they are first used."""
    import networkx  # noqa: F401
    import pandas  # noqa: F401
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401

    from graphglow.errors import InputError

    with contextlib.suppress(InputError):
        _read(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
