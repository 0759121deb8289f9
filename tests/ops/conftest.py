"""What the tests of the operations share."""

import pytest
import torch


@pytest.fixture
def nan_filled_memory():
    """Make ``torch.empty`` give NaN, so that an entry never written shows."""
    before = torch.are_deterministic_algorithms_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    assert torch.empty(3).isnan().all()
    yield
    torch.utils.deterministic.fill_uninitialized_memory = fill
    torch.use_deterministic_algorithms(before)
