"""What the public functions say of six small graphs: ``python tests/golden/doors.py``."""

import json
import warnings
from pathlib import Path

import torch

with warnings.catch_warnings():  # PyG scripts a class at import, which newer torch deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import graphglow

FILE = Path(__file__).parent / "doors.json"
SMALL = {"num_nodes": 150, "num_classes": 3, "average_degree": 6.0, "seed": 7}


def labelled(data, share=0.3):
    """About so many nodes are training nodes, by position; the rest are test nodes."""
    every = round(1 / share)
    data.train_mask = torch.arange(len(data.y)) % every == 0
    data.val_mask = torch.arange(len(data.y)) % every == 1
    data.test_mask = ~(data.train_mask | data.val_mask)
    return data


def without_features():
    data = graphglow.synthetic_graph(**SMALL, homophily=0.8)
    data.x = None
    return labelled(data)


def without_edges():
    data = graphglow.load_graph("wine")
    data.edge_index = torch.empty(2, 0, dtype=torch.long)
    return labelled(data)


GRAPHS = {
    "wine": lambda: labelled(graphglow.load_graph("wine")),
    "similar": lambda: labelled(graphglow.synthetic_graph(**SMALL, homophily=0.8)),
    "opposite": lambda: labelled(graphglow.synthetic_graph(**SMALL, homophily=0.1)),
    "few labels": lambda: labelled(graphglow.synthetic_graph(**SMALL, homophily=0.7), 0.05),
    "no features": without_features,
    "no edges": without_edges,
}


def numbers(values, most=24):
    """A few values and the mean of all, to five digits."""
    values = torch.as_tensor(values, dtype=torch.float64).flatten()
    step = max(1, len(values) // most)
    return [round(float(v), 5) for v in (values.mean(), *values[::step][:most])]


def answers(name):
    """What every door says of one graph."""
    data = GRAPHS[name]()
    nodes = len(data.y)
    prediction = graphglow.predict(data)
    refined = graphglow.refine(data)
    told = {
        "probabilities": numbers(prediction.probabilities),
        "accuracy": numbers([prediction.accuracy.value]),
        "node": numbers(
            [part["contribution"] for part in prediction.explain(5).contributions[:-2]]
        ),
        "refined edges": numbers([refined.edge_index.shape[1]]),
        "refined probability": numbers(refined.edge_probability),
        "pair": numbers([graphglow.explain_pair(data, 3, 17).score]),
    }
    x = torch.empty(1, 0) if data.x is None else data.x[9:10] + 0.01
    new = prediction.predict_new(x, torch.tensor([[nodes, nodes], [2, 9]]))
    told["new node"] = numbers(new)
    if data.edge_index.shape[1]:
        audit = graphglow.audit(data)
        told["real"] = numbers(audit.probability_real)
        told["missing"] = numbers(audit.missing["probability_real"].to_numpy()[:20])
    trained = graphglow.transfer(data, epochs=10)
    told["transfer"] = numbers([epoch.loss for epoch in trained.history])
    return told


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    FILE.write_text(json.dumps({name: answers(name) for name in GRAPHS}, indent=1) + "\n")
