"""Every reader of graphglow as a fuzzer calls it, and what it may do: return, or say one sentence.

``outcome`` is the oracle. A file is accepted or refused with :class:`InputError`; any other
exception, a warning that is not ours, or a failed allocation is a :class:`Finding`.
"""

import contextlib
import json
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random

import fuzz_files as files
import fuzz_tables as tables
from fuzz_bytes import TEXTS, sometimes_damaged
from fuzz_shards import folder_file, read_arrays, read_shards
from graphglow.errors import InputError, InputWarning

MARK = "<img src=x onerror=hacked()>"


class Finding(Exception):
    """A reader did what it must not do."""


@dataclass(frozen=True)
class Reader:
    """How files of one kind are made and read."""

    suffix: str
    make: Callable[[Random], bytes]
    read: Callable[[Path], object]
    slow: bool = False
    """Takes so long per file that it gets fewer of them."""


def outcome(reader: Reader, path: Path) -> str:
    """``accepted`` or ``refused``; anything else is raised as a finding."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            reader.read(path)
            found = "accepted"
        except InputError as error:
            if _failed_allocation(error):
                raise Finding(f"tried to allocate too much: {error.__cause__!r:.200}") from error
            found = "refused"
        except TimeoutError:
            raise
        except BaseException as error:
            raise Finding(f"{type(error).__name__}: {error!s:.200}") from error
    for one in said:
        if not issubclass(one.category, InputWarning | ResourceWarning):
            raise Finding(f"{one.category.__name__}: {one.message!s:.200} ({one.filename})")
    return found


def _failed_allocation(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError) or "allocate" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _labels_needed(path: Path) -> bool:
    return path.stat().st_size % 4 != 0


def _graph(path: Path) -> object:
    from graphglow.graphs import load_graph

    return load_graph(path, need_labels=_labels_needed(path))


@lru_cache
def _small_graph() -> object:
    """A checked graph that came from a table, for readers that need one."""
    from graphglow.graphs import load_graph

    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "people.csv")
        rows = "\n".join(f"{i},{'ab'[i % 2]},{i},{'uv'[i % 2]}" for i in range(tables.NODES))
        table.write_text(f"id,label,a,b\n{rows}\n")
        return load_graph(table)


def _split(path: Path) -> object:
    from graphglow.graphs.split import apply_split_file

    return apply_split_file(_small_graph(), path)


def _edges(path: Path) -> object:
    from graphglow.graphs import load_graph

    nodes = path.with_name("people.csv")
    if not nodes.exists():
        rows = "\n".join(f"{i},{'ab'[i % 2]},{i}" for i in range(tables.NODES))
        nodes.write_text(f"id,label,a\n{rows}\n")
    return load_graph((nodes, path))


def edges_file(random: Random) -> bytes:
    """An edges table beside a nodes table."""
    lines = [random.choice(("source,target,weight", "from,to", "a,b", "source,target"))]
    if random.random() < 0.05:
        lines = [",".join(random.choice(TEXTS) for _ in range(3))]
    for _ in range(random.randrange(12)):
        cells = [str(random.randrange(tables.NODES)) for _ in range(3)]
        if random.random() < 0.05:
            cells[random.randrange(3)] = random.choice(TEXTS)
        lines.append(",".join(cells[: lines[0].count(",") + 1]))
    return sometimes_damaged("\n".join(lines).encode("utf-8", "replace"), random, 0.3)


def _new_nodes(path: Path) -> object:
    from graphglow.graphs.new_tables import read_new_nodes

    return read_new_nodes(path, None, _small_graph())


def new_nodes_file(random: Random) -> bytes:
    """A table of new nodes for the small graph."""
    return tables.csv_file(random).replace(b"\n0,", b"\nn0,").replace(b"\n1,", b"\nn1,")


def _learner(path: Path) -> object:
    from graphglow import StructureLearner

    return StructureLearner.load(path)


def _result(path: Path) -> object:
    from graphglow.training import TransferResult

    result = TransferResult.load(path)
    table = path.with_name("new.csv")
    if not table.exists():
        table.write_text("id,a,b\nnew,1,u\n")
    result.predict_new_tables(table, None)
    return result.summary()


def _settings(path: Path) -> object:
    from graphglow.experiments.search.settings import check_settings, read_settings

    return check_settings(read_settings(path), path)


def _rows(path: Path) -> object:
    from graphglow.experiments.cell_rows import find_rows, latest, same_run
    from graphglow.report.result_rows import origins, read_rows, without_repeats

    shown = without_repeats(read_rows(path).rows)[0]
    origins(shown)
    rows = latest(find_rows(path).rows)
    return [same_run(row) for row in rows]


def _report(path: Path) -> object:
    from graphglow.report.result_rows import read_rows
    from graphglow.report.results_page import write_results

    file = read_rows(path)
    if file.rows:
        out = path.with_suffix(".html")
        write_results([file], [], out, title=MARK)
        page = out.read_text(encoding="utf-8")
        if MARK in page or "<script>alert" in page:
            raise Finding("text of a row came into the page without being escaped")
    return None


def report_file(random: Random) -> bytes:
    """Rows that are whole and full of tags."""
    lines = []
    for line in files.rows_file(Random(random.randrange(2**32))).splitlines():
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict):
                for name in ("experiment", "cell", "label", "method", "target", "series", "device"):
                    if random.random() < 0.5:
                        row[name] = MARK + random.choice(TEXTS)[:50]
                row["config"] = {MARK: MARK}
                row["provenance"] = {"commit": MARK, "versions": {MARK: MARK}, "date": MARK}
                row["metrics"] = {MARK: 0.5}
                lines.append(json.dumps(row))
    return "\n".join(lines).encode()


def _storage(path: Path) -> object:
    from graphglow.experiments.search.trials import opened

    with opened(path) as storage:
        return len(storage.get_all_studies())


@lru_cache
def _study() -> bytes:
    import optuna

    from graphglow.experiments.search.trials import opened

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trials.db")
        with opened(path) as storage:
            optuna.create_study(storage=storage, study_name="s").ask()
        return path.read_bytes()


def storage_file(random: Random) -> bytes:
    """A database of trials."""
    return sometimes_damaged(_study(), random, 0.95)


def _name(path: Path) -> object:
    from graphglow.graphs import load_graph

    text = path.read_bytes().decode("utf-8", "replace")
    return load_graph(text, data_root=path.parent / "nothing")


def name_text(random: Random) -> bytes:
    """What a user may write in place of a graph; classes that PyG has are left out."""
    parts = ("ogb:", "ogbn-x", "torch_geometric.datasets.", "Nix", "os.", "Path", ":name=", "+")
    words = [random.choice((*parts, *TEXTS)) for _ in range(random.randint(1, 4))]
    return "".join(words).replace("\0", random.choice(("", "\0"))).encode("utf-8", "replace")


READERS: dict[str, Reader] = {
    "npz": Reader(".npz", files.npz_file, _graph),
    "split": Reader(".npz", files.npz_file, _split),
    "pt": Reader(".pt", files.pt_file, _graph),
    "csv": Reader(".csv", tables.csv_file, _graph),
    "csv_gz": Reader(".csv.gz", tables.csv_gz_file, _graph),
    "edges": Reader(".csv", edges_file, _edges),
    "new_nodes": Reader(".csv", new_nodes_file, _new_nodes),
    "parquet": Reader(".parquet", tables.parquet_file, _graph),
    "graphml": Reader(".graphml", tables.graphml_file, _graph),
    "learner": Reader(".safetensors", files.learner_file, _learner),
    "result": Reader(".safetensors", files.result_file, _result),
    "shards": Reader(".json", folder_file("shards"), read_shards),
    "arrays": Reader(".json", folder_file("arrays"), read_arrays),
    "settings": Reader(".json", files.settings_file, _settings),
    "rows": Reader(".jsonl", files.rows_file, _rows),
    "name": Reader(".txt", name_text, _name),
    "report": Reader(".jsonl", report_file, _report, slow=True),
    "storage": Reader(".db", storage_file, _storage, slow=True),
}
