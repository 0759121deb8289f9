"""Matrix products of float32 on the tensor cores, for the time of a block."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def tf32_products(wanted: bool) -> Iterator[None]:
    """Let a GPU round the factors of float32 products to 10 bits, and undo it at the end.

    PyTorch has an older and a newer switch for it, and refuses to read the older one once the newer
    has been set. Where nothing is wanted, neither is touched.
    """
    if not wanted:
        yield
        return
    switch = torch.backends.cuda.matmul
    on: bool | str
    try:
        name, on, before = "allow_tf32", True, switch.allow_tf32
    except RuntimeError:  # the caller uses the newer one
        name, on, before = "fp32_precision", "tf32", switch.fp32_precision
    setattr(switch, name, on)
    try:
        yield
    finally:
        setattr(switch, name, before)
