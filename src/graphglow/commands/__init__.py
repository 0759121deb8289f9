"""The subcommands, one module and one function each; flags come from the function's signature."""

COMMANDS: dict[str, str] = {
    "demo": "Show the main job in about a minute, on graphs that come with the package.",
    "datasets": "List the graphs that are known by name.",
    "pretrain": "Train the shared structure learner on the source graphs (Algorithm 2).",
    "transfer": "Train a GNN on a new graph under a frozen structure learner (Algorithm 3).",
    "fit": "Train a competitor on a graph, under the same protocol as transfer.",
    "refine": "Transfer, then write the learned graph to a file.",
    "predict": "Predict the classes of nodes added after training, without training again.",
    "explain": "Show which nodes carried a decision, over your edges or over learned ones.",
    "shard": "Cut a graph into parts on disk, for a transfer on several processes.",
    "reproduce": "Run the tables and figures of the paper, as far as they are missing.",
    "search": "Search the settings of methods by validation accuracy, with one budget for all.",
    "report": "Show results as one page that opens offline: tables, charts, learned structures.",
    "bench": "Measure time and memory on this machine.",
}
"""Name and first docstring line of each command, here so that help need not import torch."""
