"""A folder of shards is what was written, or it is refused; nor is it believed what it counts."""

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from tiny_graphs import small_data

sys.path.insert(0, str(Path(__file__).parents[2] / "fuzz"))

from damage import sign_shards

from graphglow import load_graph
from graphglow.errors import InputError
from graphglow.training.distributed import (
    GraphArrays,
    Ranks,
    is_shard_folder,
    read_shard,
    shards_info,
    write_shards,
)


@dataclass(frozen=True)
class Beside(Ranks):
    """One of two ranks; the other finds nothing wrong, and adds this to a sum."""

    size: int = 2
    others: tuple[int, ...] = ()

    def texts(self, own):
        return ["", own] if self.rank else [own, ""]

    def total(self, x):
        return x + torch.tensor(self.others)


def cut(folder, parts, *, seed=0, **settings):
    data = small_data(num_nodes=40, seed=seed, **settings)
    data.name = "graph"
    write_shards(GraphArrays.of_data(data), folder, parts, method="given")
    return folder


@pytest.fixture
def two(tmp_path):
    return cut(tmp_path / "two", 2)


@pytest.fixture
def one(tmp_path):
    return cut(tmp_path / "one", 1)


def change_json(path, change):
    facts = json.loads(path.read_text())
    change(facts)
    path.write_text(json.dumps(facts))


def change_array(path, change):
    array = np.load(path)
    change(array)
    np.save(path, array)


def swap(folder, other):
    (folder / "part-0").rename(folder / "kept")
    (folder / "part-1").rename(folder / "part-0")
    (folder / "kept").rename(folder / "part-1")


def copy_part(folder, other):
    shutil.rmtree(folder / "part-1")
    shutil.copytree(folder / "part-0", folder / "part-1")


def take_part(folder, other):
    shutil.rmtree(folder / "part-1")
    shutil.copytree(other / "part-1", folder / "part-1")


def take_meta(folder, other):
    shutil.copy(other / "shards.json", folder)


def take_arrays(folder, other):
    for path in (other / "part-1").glob("*.npy"):
        shutil.copy(path, folder / "part-1")


def take_one_array(folder, other):
    shutil.copy(folder / "part-0" / "y.npy", folder / "part-1")


@pytest.mark.parametrize(
    ("mix", "rule"),
    [
        (swap, "part-1 must be part 1; got part 0"),
        (copy_part, "part-1 must be part 1; got part 0"),
        (take_part, "part-1 must belong to the shards.json beside it; got a part of another graph"),
        (take_meta, "part-1 must belong to the shards.json beside it; got a part of another graph"),
        (take_arrays, r"part-1/y.npy must be as graphglow shard wrote it; .* taken from else"),
        (take_one_array, r"part-1/y.npy must be as graphglow shard wrote it"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(two, tmp_path, mix, rule):
    other = cut(tmp_path / "other", 2, seed=1, noise=0.6)
    mix(two, other)
    with pytest.raises(InputError, match=rule):
        read_shard(two, Beside(rank=1))


def test_the_same_graph_cut_again_is_the_same_folder(two, tmp_path):
    again = cut(tmp_path / "again", 2)
    assert shards_info(again).identity == shards_info(two).identity
    assert shards_info(cut(tmp_path / "other", 2, seed=1)).identity != shards_info(two).identity


@pytest.mark.parametrize("sparse_features", [True, False])
def test_a_changed_byte_is_refused(tmp_path, sparse_features):
    folder = cut(tmp_path / "s", 1, sparse_features=sparse_features)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    rng = np.random.default_rng(0)
    for turn in range(300):
        path = files[turn % len(files)]
        whole = path.read_bytes()
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), rng.integers(1, 4)):
            damaged[place] ^= rng.integers(1, 256)
        path.write_bytes(damaged[: rng.integers(1, len(whole))] if turn % 7 == 0 else damaged)
        if not same_facts(path, whole):
            with pytest.raises(InputError):
                read_shard(folder, Ranks())
        path.write_bytes(whole)
    read_shard(folder, Ranks())


def same_facts(path, whole):
    """Whether a JSON file says the same with other blanks."""
    try:
        return path.suffix == ".json" and json.loads(path.read_bytes()) == json.loads(whole)
    except ValueError:
        return False


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"nodes": 39}, r"nodes.npy must be int64 \(39,\); got int64 \(40,\)"),
        ({"nodes": 0}, "must count features, training .* from 1; got fewer"),
        ({"nodes": 2**60}, "counts in .* must be whole numbers .* got 1152921504606846976"),
        ({"nodes": 40.0}, "counts in .* must be whole numbers .* got 40.0"),
        ({"nodes": "40"}, "counts in .* must be whole numbers .* got '40'"),
        ({"entries": 5}, "must hold 5 entries, as shards.json says; got"),
        ({"halo": 1}, "must hold 1 nodes of other parts that it needs, .* says; got 0"),
        ({"train": 1}, "must hold 1 training nodes, as shards.json says; got 20"),
        ({"val": 11}, "must hold 11 validation nodes, as shards.json says; got 10"),
        ({"val": 0}, "must count .* from 1; got fewer"),
        ({"test": 1}, "must hold 1 test nodes, as shards.json says; got 10"),
        ({"classes": 4}, "must hold 4 classes, as shards.json says; got 3"),
        ({"classes": 2}, r"y.npy must lie in \[-1, 1\]"),
        ({"classes": 41}, r"from 2 classes to as many as nodes \(40\); got 41"),
        ({"more": 1}, "must describe the parts of a graph; got other facts"),
    ],
)
def test_counts_are_compared_with_the_arrays(one, change, rule):
    """The checksums are made right: what is wrong is what ``shards.json`` says."""
    change_json(one / "shards.json", lambda facts: facts["parts"][0].update(change))
    with pytest.raises(InputError, match=r"shards.json must be as graphglow shard wrote it"):
        read_shard(one, Ranks())
    sign_shards(one)
    with pytest.raises(InputError, match=rule):
        read_shard(one, Ranks())


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("[]", r"shards.json must be a JSON object; got another file \(it is a list\)"),
        ("", r"shards.json must be a JSON object; got another file \(Expecting value"),
        ("[" * 10**5, "shards.json must be a JSON object"),
        ('{"version": 1}', r"format version 2; got 1 in .* \(make them again with graphglow shard"),
        ('{"version": 2}', "shards.json must be as graphglow shard wrote it"),
    ],
)
def test_another_shards_json_is_refused(one, text, rule):
    (one / "shards.json").write_text(text)
    with pytest.raises(InputError, match=rule):
        read_shard(one, Ranks())


@pytest.mark.parametrize("facts", [{"parts": []}, {"parts": 1}, {"num_features": None}])
def test_a_shards_json_of_other_facts_is_refused(one, facts):
    change_json(one / "shards.json", lambda meta: meta.update(facts))
    sign_shards(one)
    rule = "must describe the parts|must count|whole numbers|as graphglow shard wrote it"
    with pytest.raises(InputError, match=rule):
        read_shard(one, Ranks())


def put(place, value):
    def change(array):
        array[place] = value

    return change


def first_training_node(folder):
    return int(np.flatnonzero(np.load(folder / "part-0" / "split.npy") == 1)[0])


@pytest.mark.parametrize(
    ("name", "change", "rule"),
    [
        ("x", put((3, 2), np.nan), "x.npy must be finite; got NaN or infinity"),
        ("values", put(3, np.inf), "values.npy must be finite; got NaN or infinity"),
        ("values", put(3, -1e30), r"values.npy must lie in \[0, 1\]"),
        ("values", put(3, 2), r"values.npy must lie in \[0, 1\]"),
        ("nodes", put(3, 4), "nodes.npy must ascend"),
        ("nodes", put(39, 40), r"nodes.npy must lie in \[0, 39\]"),
        ("col", put(3, 40), r"col.npy must lie in \[0, 39\]"),
        ("crow", put(3, 0), "crow.npy must ascend from 0"),
        ("split", put(3, 4), r"split.npy must lie in \[0, 3\]"),
    ],
)
def test_arrays_are_checked_whoever_signed_them(one, name, change, rule):
    change_array(one / "part-0" / f"{name}.npy", change)
    with pytest.raises(InputError, match=f"{name}.npy must be as graphglow shard wrote it"):
        read_shard(one, Ranks())
    sign_shards(one)
    with pytest.raises(InputError, match=rule):
        read_shard(one, Ranks())


def test_nodes_of_the_split_must_have_a_label(one):
    change_array(one / "part-0" / "y.npy", put(first_training_node(one), -1))
    sign_shards(one)
    with pytest.raises(InputError, match=r"nodes of the split in .* must have a label; got -1"):
        read_shard(one, Ranks())


def test_an_archive_is_no_array(one):
    with (one / "part-0" / "x.npy").open("wb") as file:
        np.savez(file, x=np.zeros((40, 8), dtype=np.float32))
    for _ in range(2):
        with pytest.raises(InputError, match=r"x.npy must be an array file \(.npy\); got another"):
            read_shard(one, Ranks())
        sign_shards(one)


def test_a_node_of_two_parts_is_refused(two):
    nodes = np.load(two / "part-1" / "nodes.npy")
    others = int(nodes.sum()), int((nodes * nodes).sum())
    with pytest.raises(ValueError, match="process group"):  # an exchange that nobody answers
        read_shard(two, Beside(rank=0, others=others))
    nodes[0] = 0  # of part 0 too; still ascending and in range
    others = int(nodes.sum()), int((nodes * nodes).sum())
    with pytest.raises(InputError, match="must hold each of 40 nodes once"):
        read_shard(two, Beside(rank=0, others=others))


def test_other_commands_say_what_the_folder_is(one, tmp_path):
    rule = "a graph folder must hold nodes.csv or nodes.parquet; got "
    with pytest.raises(InputError, match=f"{rule}a folder of shards, which graphglow transfer"):
        load_graph(one)
    with pytest.raises(InputError, match=f"{rule}one part of a folder of shards"):
        load_graph(one / "part-0")
    (one / "shards.json").unlink()
    with pytest.raises(InputError, match=f"{rule}shards without their shards.json"):
        load_graph(one)
    for name in ("x", "edge_index", "y"):
        np.save(tmp_path / f"{name}.npy", np.zeros(3))
    with pytest.raises(InputError, match=f"{rule}a folder of arrays, which graphglow shard cuts"):
        load_graph(tmp_path)
    (tmp_path / "nodes.csv").write_text("id,label,a\n1,u,3\n2,v,4\n3,u,5\n4,v,1\n5,u,6\n6,v,7\n")
    assert load_graph(tmp_path).num_nodes == 6


def test_a_folder_may_be_given_from_home(one, monkeypatch):
    monkeypatch.setenv("HOME", str(one.parent))
    assert is_shard_folder("~/one")
    assert read_shard("~/one", Ranks()).num_nodes == 40
    assert not is_shard_folder("a" * 5000)


def test_ranks_and_parts_are_as_many(two):
    with pytest.raises(InputError, match=r"one part per rank \(1\); got 2 parts"):
        read_shard(two, Ranks())
    with pytest.raises(InputError, match=r"shards.json of a folder of shards must exist"):
        read_shard(two / "nothing", Ranks())
