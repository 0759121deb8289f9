"""Whether the Triton kernels can run here."""

import importlib.util
import os
from functools import cache

import torch


def triton_usable(device: torch.device) -> bool:
    """True on a GPU with the package triton, or anywhere under Triton's interpreter."""
    on_gpu = device.type == "cuda" and torch.version.cuda is not None
    return _installed() and (on_gpu or os.environ.get("TRITON_INTERPRET") == "1")


@cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None
