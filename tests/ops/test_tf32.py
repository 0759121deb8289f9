"""The switch for tensor-core products is back where it was, whatever happens in between."""

import pytest
import torch

from graphglow.ops.tf32 import tf32_products

SWITCH = torch.backends.cuda.matmul


@pytest.mark.parametrize("wanted", [False, True])
def test_is_on_inside_where_wanted_or_where_it_was(tf32_before, wanted):
    with tf32_products(wanted):
        assert SWITCH.allow_tf32 == (wanted or tf32_before)
        with tf32_products(not wanted):
            assert SWITCH.allow_tf32
        assert SWITCH.allow_tf32 == (wanted or tf32_before)
    assert SWITCH.allow_tf32 == tf32_before


def test_is_restored_after_an_error(tf32_before):
    with pytest.raises(ZeroDivisionError), tf32_products(True):
        raise ZeroDivisionError
    assert SWITCH.allow_tf32 == tf32_before


@pytest.mark.skipif(not hasattr(SWITCH, "fp32_precision"), reason="an older PyTorch")
def test_a_precision_set_by_the_newer_interface_is_left_alone():
    before = SWITCH.fp32_precision
    SWITCH.fp32_precision = "tf32"
    try:
        with tf32_products(False):
            pass
        assert SWITCH.fp32_precision == "tf32"
    finally:
        SWITCH.fp32_precision = before


def test_a_precision_of_medium_is_left_alone():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with tf32_products(False):
            pass
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
