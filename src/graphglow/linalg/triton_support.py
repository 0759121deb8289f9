"""Whether the Triton kernels can run here. They are imported on demand: triton is optional."""

import importlib
import importlib.util
import os
from contextlib import AbstractContextManager
from functools import cache
from types import ModuleType
from typing import cast

import torch
from torch import Tensor


def triton_usable(device: torch.device) -> bool:
    """True on a GPU that can, with the package triton, or anywhere under Triton's interpreter."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return _installed() and (interpreted or _has_tensor_cores(device))


def kernels_for(tensor: Tensor, module: str, package: str = "linalg") -> ModuleType | None:
    """This module of kernels, which take float32; or None where they cannot run."""
    if tensor.dtype != torch.float32 or not triton_usable(tensor.device):
        return None
    return importlib.import_module(f"graphglow.{package}.{module}")


def launching_on(tensor: Tensor) -> AbstractContextManager[None]:
    """Make the tensor's GPU the current one, where Triton launches; nothing for a CPU."""
    return cast(AbstractContextManager[None], torch.cuda.device_of(tensor))  # type: ignore[no-untyped-call]


@cache
def _has_tensor_cores(device: torch.device) -> bool:
    """For bfloat16 and tf32: NVIDIA's from Ampere on."""
    on_gpu = device.type == "cuda" and torch.version.cuda is not None
    return on_gpu and torch.cuda.get_device_capability(device) >= (8, 0)


@cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None
