"""Matrix products of float32 on the tensor cores, for the time of a block."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def tf32_products(wanted: bool) -> Iterator[None]:
    """Let a GPU round the factors of float32 products to 10 bits, and undo it at the end."""
    switch = torch.backends.cuda.matmul
    before = switch.allow_tf32
    switch.allow_tf32 = wanted or before
    try:
        yield
    finally:
        switch.allow_tf32 = before
