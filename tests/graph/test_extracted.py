"""Graphs that other programs write: GraphRAG's folders, Splink's pairs; duplicates among names."""

import numpy as np
import pandas as pd
import pytest

import graphglow
from graphglow.errors import InputError, InputWarning


@pytest.fixture
def graphrag(tmp_path):
    """Entities of two subjects with relations within them, and one entity under two names."""
    draw = np.random.default_rng(0)
    words = ["song guitar concert melody band", "protein cell enzyme gene virus"]
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = ["".join(draw.choice([*letters], 9)) for _ in range(58)]
    names += ["Acme Corporation", "ACME Corp."]
    entities = pd.DataFrame(
        {
            "id": [f"uuid {i}" for i in range(60)],
            "title": names,
            "type": draw.choice(["person", "event"], 60),
            "description": [" ".join(draw.permutation(words[i // 30].split())) for i in range(60)],
            "text_unit_ids": [["a"]] * 60,
            "x": 0.0,
            "y": 0.0,
        }
    )
    ends = [
        (i, j) for i in range(60) for j in draw.integers(30 * (i // 30), 30 * (i // 30) + 30, 3)
    ]
    relations = pd.DataFrame({"source": [names[i] for i, _ in ends]})
    relations["target"] = [names[j] for _, j in ends]
    relations["weight"] = 2.0
    entities.to_csv(tmp_path / "entities.csv", index=False)
    relations.to_csv(tmp_path / "relationships.csv", index=False)
    return tmp_path


def test_a_folder_of_graphrag_is_read_as_it_is(graphrag):
    data = graphglow.load_graph(graphrag, need_labels=False)
    assert data.node_id[-1] == "ACME Corp."
    assert [facts["name"] for facts in data.feature_columns["columns"]] == ["type", "description"]
    assert data.x.shape == (60, 2 + 10)
    assert (data.edge_weight == 2).all()
    labelled = graphglow.load_graph(graphrag, columns={"label": "type"})
    assert labelled.class_names == ["event", "person"]


def test_duplicates_are_pairs_of_like_names(graphrag):
    found = graphglow.audit(graphrag, missing=False).duplicates
    assert set(found.loc[0, ["first", "second"]]) == {"Acme Corporation", "ACME Corp."}
    assert found.feature_similarity[0] > 0.5
    pairs = pd.read_csv(graphrag / "relationships.csv")
    with pytest.warns(InputWarning, match="no features"):
        bare = graphglow.audit(pairs, missing=False).duplicates
    assert (bare.feature_similarity == 1).all()
    with pytest.raises(InputError, match="ids must be text"):
        _ = graphglow.audit("wine", missing=False).duplicates


def test_pairs_of_splink_are_weighted_edges():
    pairs = pd.DataFrame({"unique_id_l": ["a", "b"], "unique_id_r": ["b", "c"]})
    pairs["match_weight"], pairs["match_probability"] = [3.0, -2.0], [0.9, 0.2]
    with pytest.warns(InputWarning, match="no features"):
        data = graphglow.load_graph(pairs, need_labels=False)
    assert data.node_id == ["a", "b", "c"]
    assert sorted(set(np.round(data.edge_weight.tolist(), 3))) == [0.2, 0.9]
