"""What a page says about the experiments that are known."""

EXPERIMENTS: dict[str, tuple[str, ...]] = {
    "table1": (
        "Table 1: transfer within a domain",
        "The learner is pre-trained on the other graphs of the target's own domain.",
    ),
    "table2": (
        "Table 2: transfer across domains",
        "The learner is pre-trained on graphs of the other domain only.",
    ),
    "time": (
        "Accuracy and training time",
        "Structure learners that are trained on the target from scratch, beside a transferred one.",
    ),
    "ablation": ("Ablations", "The same model with one part taken away or replaced at a time."),
    "edges": (
        "Damaged graphs",
        "Edges are deleted or added at random, or features shuffled, before anything is trained.",
    ),
    "homophily": (
        "Homophily of the learned graph",
        "How much the learned graph joins nodes of one class while the GNN is trained, beside the "
        "input graph. Two learned graphs are measured, for the paper does not say which it means: "
        "the one from nodes to pivots, which the learner infers, and the one of two steps, node to "
        "pivots to node, which messages travel where lambda < 1.",
        "Class-insensitive homophily (Lim et al., 2021) is the paper's measure: how much more a "
        "class hears of itself than its share of the nodes. The two-step graph joins nearly every "
        "pair of nodes, so that there it may stay near 0, and below that of the input graph, even "
        "where the learner tells classes apart. Edge homophily is the share of all weight that "
        "lies within classes; it depends on their sizes, and is 0.5 by chance where two are equal.",
    ),
    "sensitivity": (
        "Sensitivity",
        "One setting is varied on the target; all others stay as tuned, and so does the learner.",
    ),
    "degree": (
        "Lambda by degree",
        "Ours: a node with d neighbours gives the input graph the weight d / (d + c), as if the "
        "learned graph were c more of them. c is varied; all else stays as tuned for one lambda.",
    ),
    "encoder": (
        "Encoder",
        "What makes the first embeddings, an MLP or a GCN layer, on sources and target alike; "
        "GraphGLOW of Table 2 has the GCN layer.",
    ),
    "competitors": (
        "Competitors",
        "Every method tuned on validation accuracy, with the same splits and early stopping.",
    ),
    "transfer_accuracy": (
        "Transfer and its controls",
        "Rows of benchmarks/transfer_accuracy.py; settings are part of each name.",
    ),
}
"""Title and paragraphs for experiments that are known; others go by their name."""
