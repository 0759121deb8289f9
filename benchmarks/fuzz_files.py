"""Files of every kind that graphglow reads, valid in the main and wrong in places.

One function per kind: ``make(random) -> bytes``. They know the inside of their format (entries and
headers of archives, cells of tables, JSON values), since bytes changed blindly hardly ever pass a
check sum; ``fuzz_bytes.damaged`` does that as well, to a share of the files.
"""

import functools
import io
import json
import pickle
import tempfile
import warnings
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from fuzz_bytes import NUMBERS, TEXTS, dumped, mangled, odd, sometimes_damaged, zipped
from fuzz_tables import NODES


def _arrays() -> dict[str, np.ndarray]:
    return {
        "x": np.arange(NODES * 2, dtype=np.float32).reshape(NODES, 2),
        "y": np.arange(NODES) % 2,
        "edge_index": np.array([[0, 1, 2, 3], [1, 2, 3, 4]]),
        "edge_weight": np.ones(4),
        "train": np.array([0, 1, 2, 3]),
        "val": np.array([4, 5]),
        "test": np.array([6, 7]),
    }


SHAPES = ((), (0,), (8,), (8, 2), (2, 4), (10**12,), (2**40, 2**40), (0, 10**18), (-1,), (8, 1, 2))
DTYPES = (
    "<f4", ">f8", "<f2", "<i8", ">i4", "|u1", "|b1", "<U5", "|S3", "<c8", "<M8[D]", "|O", "<U0",
    "<U999999999", "|V8", [("a", "<f4")], "f4,i8", "<f16",
)  # fmt: skip


def _npy(array: np.ndarray, random: Random) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=True)
    data = buffer.getvalue()
    if random.random() < 0.05:  # a header that does not fit
        header: dict[str, Any] = {
            "descr": random.choice(DTYPES) if random.random() < 0.5 else array.dtype.str,
            "fortran_order": random.choice((False, True, 0, "x")),
            "shape": random.choice(SHAPES) if random.random() < 0.5 else array.shape,
        }
        if random.random() < 0.2:
            header.pop(random.choice(list(header)))
        text = (repr(header) + "\n").encode("latin1")
        data = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + array.tobytes()
    return sometimes_damaged(data, random, 0.02)


def _odd_array(array: np.ndarray, random: Random) -> np.ndarray:
    kind = random.randrange(6)
    if kind == 0:
        return array.astype(random.choice(("f2", "f8", "i4", "u8", "?", "U5", "S3", "c8", ">i2")))
    if kind == 1:
        return array.reshape(random.choice([(-1,), (1, -1), (-1, 1)]))
    if kind == 2:
        out = array.astype("f8")
        out.flat[random.randrange(out.size)] = random.choice((np.nan, np.inf, 1e308, -3.0, 2.0**63))
        return out
    if kind == 3:
        out = array.copy()
        out.flat[random.randrange(out.size)] = random.choice([n for n in NUMBERS if abs(n) < 2**31])
        return out
    if kind == 4:
        return array[: random.randrange(len(array) + 1)]
    return np.array([random.choice(TEXTS) for _ in array.flat]).reshape(array.shape)


def npz_file(random: Random) -> bytes:
    """A graph, or a split, of named arrays."""
    entries = []
    for name, array in _arrays().items():
        if random.random() < 0.04:
            continue
        if random.random() < 0.08:
            array = _odd_array(array, random)
        entries.append((f"{name}.npy", _npy(array, random)))
    if random.random() < 0.1:
        ids = [random.choice(TEXTS) for _ in range(NODES)]
        entries.append(("node_id.npy", _npy(np.array(ids), random)))
    return sometimes_damaged(zipped(entries, random), random, 0.2)


def _odd_tensor(tensor: torch.Tensor, random: Random) -> Any:
    kind = random.randrange(12)
    if kind == 0:
        return tensor[:1].expand(10**6, *tensor.shape[1:])
    if kind == 1:
        return torch.as_strided(tensor.flatten(), (10**7, 10**5), (0, 0))
    if kind == 2:
        return tensor.to("meta")
    if kind == 3 and tensor.ndim == 2:
        return tensor.to_sparse()
    if kind == 4:
        huge = (2**40, 2**20)
        at = torch.zeros(2, 1, dtype=torch.int64)
        return torch.sparse_coo_tensor(at, torch.ones(1), huge, check_invariants=False)
    if kind == 5:
        return tensor.tolist()
    if kind == 6:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.quint8)
    if kind == 7:
        return torch.nn.Parameter(tensor.float())
    if kind == 8:
        choices = (torch.complex64, torch.bool, torch.float16, torch.bfloat16, torch.uint8)
        return tensor.to(random.choice(choices))
    if kind == 9:
        return torch.from_numpy(_odd_number(tensor, random))
    if kind == 10 and tensor.ndim == 2:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return tensor.float().to_sparse_csr()
    return odd(random)


def _odd_number(tensor: torch.Tensor, random: Random) -> np.ndarray:
    array = tensor.numpy().copy()
    array.flat[random.randrange(array.size)] = random.choice([n for n in NUMBERS if n < 2**31])
    return array


def pt_file(random: Random) -> bytes:
    """A ``Data`` or a dict of tensors by ``torch.save``, or a pickle in its place."""
    fields: dict[Any, Any] = {name: torch.from_numpy(a) for name, a in _arrays().items()}
    for name in list(fields):
        chance = random.random()
        if chance < 0.06:
            fields[name] = _odd_tensor(fields[name], random)
        elif chance < 0.1:
            del fields[name]
    if random.random() < 0.15:
        extra = random.choice(("node_id", "class_names", "feature_columns", "name", "z", 3, None))
        fields[extra] = odd(random)
    content: Any = fields
    if random.random() < 0.3:
        content = Data(**{str(k): v for k, v in fields.items()})
    if random.random() < 0.05:
        content = random.choice(([content], odd(random), {"a": content}, np.zeros(3), Random))
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        new = random.random() > 0.05
        try:
            torch.save(content, buffer, _use_new_zipfile_serialization=new)
        except (RuntimeError, NotImplementedError, AttributeError, pickle.PickleError):
            return b"\x80\x02."
    data = buffer.getvalue()
    if new and random.random() < 0.3:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [(i.filename, archive.read(i)) for i in archive.infolist()]
        data = zipped([(n, sometimes_damaged(d, random, 0.1)) for n, d in entries], random)
    return sometimes_damaged(data, random, 0.2)


@functools.lru_cache
def _saved(kind: str) -> bytes:
    """A small learner or result, as graphglow writes it."""
    import graphglow

    learner = graphglow.StructureLearner(graphglow.LearnerConfig(embedding_size=4, num_heads=2))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file.safetensors")
        if kind == "learner":
            learner.save(path)
        else:
            fields = {name: torch.from_numpy(a) for name, a in _arrays().items()}
            data = Data(x=fields["x"], y=fields["y"], edge_index=fields["edge_index"])
            data.feature_columns = {
                "columns": [
                    {"name": "a", "mean": 0.0, "scale": 1.0},
                    {"name": "b", "categories": ["u"]},
                ]
            }
            config = graphglow.TransferConfig(epochs=1, num_pivots=2, device="cpu")
            graphglow.transfer(learner, data, config).save(path)
        return path.read_bytes()


def _safetensors(kind: str, random: Random) -> bytes:
    data = _saved(kind)
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    if random.random() < 0.7:
        told = json.loads(header["__metadata__"]["graphglow"])
        told.pop("sha256", None)  # or the checksum alone would refuse it
        share = random.choice((0.005, 0.03, 0.1))
        told = mangled(told, random, share)
        header["__metadata__"]["graphglow"] = json.dumps(told)
    if random.random() < 0.3:
        header = mangled(header, random, 0.03)
    text = dumped(header)
    size = len(text) if random.random() > 0.05 else random.choice(NUMBERS) % 2**64
    return sometimes_damaged(size.to_bytes(8, "little") + text + body, random, 0.15)


def learner_file(random: Random) -> bytes:
    """A structure learner."""
    return _safetensors("learner", random)


def result_file(random: Random) -> bytes:
    """A saved transfer."""
    return _safetensors("result", random)


def settings_file(random: Random) -> bytes:
    """Settings by method and target."""
    settings = {
        "gcn": {"cora": {"dropout": 0.5, "hidden": 64}},
        "graphglow": {"reed98": {"pretrain": {"episodes": 2}, "transfer": {"dropout": 0.2}}},
    }
    data = dumped(mangled(settings, random, 0.15))
    if random.random() < 0.02:
        data = b"[" * random.choice((10, 10**5))
    return sometimes_damaged(data, random, 0.3)


def rows_file(random: Random) -> bytes:
    """Rows of results."""
    row = {
        "experiment": "table2", "cell": "gcn on cora", "label": "GCN", "method": "gcn",
        "target": "cora", "split": "public", "seed": 0, "test_accuracy": 0.8, "val_accuracy": 0.7,
        "train_seconds": 1.5, "sources": ["reed98"], "metrics": {"homophily": 0.5, "c": [1, None]},
        "config": {"dropout": 0.5, "input_weight": 1}, "pretraining": {"seed": 0}, "error": None,
        "damage": None, "observe_every": None, "device": "cpu", "paper": 0.8, "paper_std": 0.01,
        "provenance": {"commit": "abc", "machine": {"cores": 2}, "versions": {"torch": "2.6"}},
    }  # fmt: skip
    common = {"as": "5f0c", "value": row["config"]}
    short = {**row, "config": {"as": "5f0c", "seed": 0}}
    whole = {"as": "77aa", "value": row}
    least = {"as": "77aa", "seed": 1, "test_accuracy": 0.5}
    each = [random.choice((row, common, short, whole, least)) for _ in range(random.randint(1, 6))]
    lines = [dumped(mangled(line, random, 0.03)) for line in each]
    return sometimes_damaged(b"\n".join(lines), random, 0.3)
