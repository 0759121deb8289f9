"""The product of two tiles, at the precision asked for."""

import triton
import triton.language as tl


@triton.jit
def multiply(a, b, acc, PRECISION: tl.constexpr):
    """Add a b to acc: [M, K], [K, N] -> [M, N].

    PRECISION of float32 tiles is "ieee", "tf32", "tf32x3", "bf16" (both are rounded), or "bf16x3":
    each is split into two bfloat16 numbers, 16 bits in all, and three of the four products of the
    parts are added. The tensor cores take bfloat16 from any layout and at twice the rate of tf32.
    """
    if PRECISION == "bf16":
        acc = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), acc)
    elif PRECISION == "bf16x3":
        a_high, b_high = a.to(tl.bfloat16), b.to(tl.bfloat16)
        a_low = (a - a_high.to(tl.float32)).to(tl.bfloat16)
        b_low = (b - b_high.to(tl.float32)).to(tl.bfloat16)
        acc = tl.dot(a_low, b_high, acc)
        acc = tl.dot(a_high, b_low, acc)
        acc = tl.dot(a_high, b_high, acc)
    else:
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    return acc
