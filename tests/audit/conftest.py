import pytest
import torch
from small_audits import with_false_edges

import graphglow


@pytest.fixture(scope="session")
def damaged_audit():
    """The shipped auditor on a graph of which three edges in ten are false; and which are real."""
    torch.set_num_threads(1)
    data, real = with_false_edges()
    return graphglow.audit(data), real
