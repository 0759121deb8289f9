"""Pack Cora as the package has it: the raw files of Planetoid in, plain arrays out.

python benchmarks/pack_cora.py --data-root data
"""

import argparse
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from graphglow.graph.check import MASKS, SPLITS
from graphglow.graph.datasets import CORA, read_raw
from graphglow.storage import atomic_path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    data = read_raw("cora", "citation", parser.parse_args().data_root)
    ones = np.ones(data.edge_index.shape[1], np.uint8)
    nodes = data.num_nodes
    matrices = {
        "adj": csr_array((ones, tuple(data.edge_index.numpy())), shape=(nodes, nodes)),
        "attr": csr_array(data.x.numpy().astype(np.uint8)),  # 0 or 1
    }
    arrays = {"labels": data.y.numpy().astype(np.uint8)}
    for name, matrix in matrices.items():
        assert (matrix.data == 1).all()
        arrays |= {
            f"{name}_data": matrix.data,
            f"{name}_indices": matrix.indices.astype(np.uint16),
            f"{name}_indptr": matrix.indptr.astype(np.uint16),
            f"{name}_shape": np.array(matrix.shape),
        }
    for mask, name in zip(MASKS, SPLITS, strict=True):
        arrays[name] = data[mask].nonzero()[:, 0].numpy().astype(np.uint16)
    with atomic_path(CORA) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)
    print(f"{CORA}: {CORA.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
