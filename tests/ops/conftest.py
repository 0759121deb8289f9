"""What the tests of the operations share."""

import pytest
import torch


@pytest.fixture(params=[False, True], ids=["tf32 off before", "tf32 on before"])
def tf32_before(request):
    """The state of PyTorch's switch for tf32 that a test finds."""
    switch = torch.backends.cuda.matmul
    before = switch.allow_tf32
    switch.allow_tf32 = request.param
    yield request.param
    switch.allow_tf32 = before
