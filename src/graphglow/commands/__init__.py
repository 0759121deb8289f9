"""The subcommands, one module and one function each; flags come from the function's signature."""

COMMANDS: dict[str, str] = {
    "demo": "Show the main job in about a minute, on graphs that come with the package.",
    "datasets": "List the graphs that are known by name.",
    "pretrain": "Train the shared structure learner on the source graphs (Algorithm 2).",
    "transfer": "Train a GNN on a new graph under a frozen structure learner (Algorithm 3).",
    "fit": "Train a competitor on a graph, under the same protocol as transfer.",
    "refine": "Transfer, then write the learned graph to a file.",
    "bench": "Measure time and memory on this machine.",
}
"""Name and first docstring line of each command, here so that help need not import torch."""
