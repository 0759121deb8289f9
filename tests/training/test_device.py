"""Where to compute, and what is said when memory ends."""

import pytest
import torch

from graphglow.device import peak_memory_bytes, resolve_device
from graphglow.errors import InputError
from graphglow.paper import StructureLearner
from graphglow.settings import LearnerConfig, PaperConfig


@pytest.mark.parametrize(("present", "expected"), [(True, "cuda"), (False, "cpu")])
def test_auto_takes_the_gpu_if_there_is_one(monkeypatch, present, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: present)
    assert resolve_device("auto").type == expected
    assert resolve_device("cpu").type == "cpu"


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="device cuda must be present; got"):
        resolve_device("cuda")


def test_the_peak_is_in_bytes():
    assert 10**7 < peak_memory_bytes(torch.device("cpu")) < 10**12


def allocate_too_much():
    torch.empty(2**60, dtype=torch.float32)


def raise_memory_error():
    raise MemoryError


def raise_out_of_memory():
    raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize("failing", [allocate_too_much, raise_memory_error, raise_out_of_memory])
def test_running_out_of_memory_becomes_advice(failing):
    with (
        pytest.raises(InputError, match=r"7 nodes with 3 pivots .* 8 runs .* and runs") as caught,
        memory_advice(7, PaperConfig(num_pivots=3), runs=8),
    ):
        failing()
    assert "\n" not in str(caught.value)


def test_other_errors_pass_through():
    with pytest.raises(RuntimeError, match=r"^other$"), memory_advice(7, PaperConfig()):
        raise RuntimeError("other")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "tf32"}, "precision tf32 must go with a GPU; got device cpu"),
        ({"backend": "triton"}, "backend must be auto or one that runs on cpu"),
        ({"backend": "linear"}, "backend linear must go with a learner whose delta is affine"),
    ],
)
def test_what_cannot_run_here_is_refused_before_training(changes, message):
    with pytest.raises(InputError, match=message):
        check_runnable(PaperConfig(**changes), StructureLearner(), torch.device("cpu"))


def test_what_can_run_here_passes():
    affine = StructureLearner(LearnerConfig(delta="affine"))
    cpu = torch.device("cpu")
    check_runnable(PaperConfig(backend="linear"), affine, cpu)
    for backend in ("auto", "eager", "dense", "chunked"):
        check_runnable(PaperConfig(backend=backend), StructureLearner(), cpu)
    check_runnable(PaperConfig(backend="linear"), None, cpu)  # a plain GNN asks for none
