"""The lines of the tables: what each is called, what it is, and whose settings it takes."""

NAMES = {
    "gcn": "GCN",
    "sage": "SAGE",
    "gat": "GAT",
    "gpr": "GPR",
    "appnp": "APPNP",
    "h2gcn": "H2GCN",
    "cpgnn": "CPGNN",
    "graphglow-dot": "GraphGLOW, dot products",
    "graphglow-knn": "GraphGLOW, kNN",
    "graphglow-cosine": "GraphGLOW, plain cosine",
    "graphglow-attention": "GraphGLOW, attention",
    "graphglow": "GraphGLOW",
    "graphglow-star": "GraphGLOW*",
    "random-theta": "random theta",
    "mlp": "MLP",
    "link": "LINK",
    "link-features": "LINK + features",
    "linkx": "LINKX",
    "lds": "LDS",
    "idgl": "IDGL",
    "idgl-anchor": "IDGL, anchors",
    "vgcn": "VGCN",
}
"""What people call the methods; those of the tables in the paper's order, then the controls."""
WIDER = {
    "graphglow-backbone": ("graphglow", "GraphGLOW, best backbone"),
    "random-backbone": ("random-theta", "random theta, best backbone"),
}
"""Ours: a method whose GNN is chosen too, by validation accuracy; what it is, and its label."""
LEARNED_ON = {
    "graphglow-on": ("graphglow", "GraphGLOW, lambda < 1"),
    "random-on": ("random-theta", "random theta, lambda < 1"),
}
"""Ours: a method with the best settings in which the learned graph takes part, as it always does in
the paper; what it is, and its label. Elsewhere validation may switch it off (lambda = 1)."""
TUNED_AS = {
    "graphglow-dot": "random-on",
    "graphglow-knn": "random-on",
    "graphglow-cosine": "random-on",
    "graphglow-attention": "graphglow-on",
    "graphglow-star": "random-on",
}
"""Whose settings a variant takes: it is the same model, and differs in what compares nodes only."""
OWN_LINES = {**LEARNED_ON, **WIDER}
"""All that share their method with another line of the tables."""
ON = {base: name for name, (base, _) in LEARNED_ON.items()}
"""Whose settings figures take: what they show is the learned graph at work."""
PRETRAINED = ("graphglow", "graphglow-attention")
"""Methods whose structure learner is trained on source graphs."""
CONTROLS = ("random-theta", "mlp", "link", "link-features", "linkx")
"""What the paper's tables lack; GCN they have."""
OURS = ("graphglow", "graphglow*", "graphglow-star")
"""The methods that a page is about; all others are competitors or controls."""
