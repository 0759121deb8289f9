"""Triton kernels on the CPU: its interpreter, mended, for tests without a GPU.

Three things stand in the way with Triton 3.6 to 3.9. PyG has imported triton before any test
module, so that ``tl.sum`` and its like were not made for the interpreter; loop bounds are read in a
way that NumPy 2.4 refuses; and bfloat16, kept as 16-bit integers, is truncated when made and
multiplied as integers.
"""

import importlib
import os
from contextlib import contextmanager
from functools import cache
from unittest import mock

import numpy as np
import pytest
import torch

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
KERNEL_TEST = [pytest.mark.gpu] if ON_GPU else [pytest.mark.usefixtures("interpreter_allowed")]
"""The marks of a module that tests kernels."""


def on_a_gpu(*cases):
    """Cases for :func:`pytest.mark.parametrize` that the interpreter, being slow, leaves out."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else [case]), marks=pytest.mark.gpu)
        for case in cases
    ]


def kernels(module):
    """The module of kernels: compiled where there is a GPU, else run by the interpreter."""
    if ON_GPU:
        return importlib.import_module(module)
    with interpreted_kernels():
        return importlib.import_module(module)


@contextmanager
def interpreted_kernels():
    """Kernels whose module is imported inside run in the interpreter, inside and afterwards."""
    _mend_interpreter()
    with mock.patch.dict(os.environ, TRITON_INTERPRET="1"):
        yield


@cache
def _mend_interpreter() -> None:
    from triton import language as tl
    from triton.runtime import interpreter

    _mend_library(interpreter, tl)
    _mend_loop_bounds(interpreter)
    _mend_bfloat16(interpreter, tl)


def _mend_library(interpreter, tl) -> None:
    for module in (tl.standard, tl):
        for name, member in list(vars(module).items()):
            if type(member).__name__ == "JITFunction":
                setattr(module, name, interpreter.InterpretedFunction(member.fn))


def _mend_loop_bounds(interpreter) -> None:
    patch = interpreter._patch_lang_tensor

    def patch_and_mend(tensor, scope):
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_and_mend


def _mend_bfloat16(interpreter, tl) -> None:
    convert, dot = interpreter._convert_float, interpreter.InterpreterBuilder.create_dot

    def to_float32(data):
        return (data.astype(np.uint32) << 16).view(np.float32)

    def convert_rounding(data, given, wanted, rounding):
        if given == tl.bfloat16 and wanted == tl.float32:
            return to_float32(data)
        if given == tl.float32 and wanted == tl.bfloat16:
            rounded = torch.from_numpy(np.ascontiguousarray(data)).bfloat16()
            return rounded.view(torch.int16).numpy().view(np.uint16)
        return convert(data, given, wanted, rounding)

    def dot_of_floats(self, a, b, *rest):
        if a.dtype.scalar == tl.bfloat16:
            a, b = (interpreter.TensorHandle(to_float32(t.data), tl.float32) for t in (a, b))
        return dot(self, a, b, *rest)

    interpreter._convert_float = convert_rounding
    interpreter.InterpreterBuilder.create_dot = dot_of_floats
