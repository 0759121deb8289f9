"""Triton kernels of Eq. 11 and of its gradient: tiles of Gamma are recomputed, never stored.

Every kernel holds one block of rows ("near") and streams the blocks of the other side ("far") past
it: pivots near and nodes far in :func:`to_pivots_kernel` and :func:`grad_k_kernel`, nodes near and
pivots far in :func:`to_nodes_kernel` and :func:`grad_q_kernel`. A tile of Gamma is therefore
[near, far] and enters the second product from the left, out of registers.

Matrices are contiguous, batch first. Offsets of rows are int64 (N W passes 2^31), offsets inside a
tile int32. Rows and columns that are not there are read as zeros and add nothing to any product;
only the sums of a phi with phi(0) != 0 need a mask. What several programs add up is written once
per program and summed by a second kernel: no atomics, so results are reproducible.

Names: n nodes, p pivots, F features, W = HEADS * HEAD_WIDTH the width of the factors (HEADS = 1
for the identity). A head wider than BLOCK_W is read in chunks of BLOCK_W, features in chunks of
BLOCK_F. c, m, r, ds and dm are the letters of ``chunked.py``.
"""

import triton
import triton.language as tl

from graphglow.ops.triton_product import multiply

EPS = tl.constexpr(1e-12)  # as in similarity.py

# ---------------------------------------------------------------------------------- tiles


@triton.jit
def row_pointer(matrix, row, WIDTH: tl.constexpr):
    return matrix + tl.cast(row, tl.int64) * WIDTH


@triton.jit
def load_tile(
    rows, rows_left, first, last,
    WIDTH: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """[ROWS, COLUMNS] of the matrix at pointer ``rows``, from column ``first`` on.

    Zeros after ``rows_left`` rows and from column ``last`` on; EVEN: no such column is asked for.
    """
    row, column = tl.arange(0, ROWS)[:, None], first + tl.arange(0, COLUMNS)[None, :]
    mask = row < rows_left
    if not EVEN:
        mask = mask & (column < last)
    return tl.load(rows + row * WIDTH + column, mask=mask, other=0.0)


@triton.jit
def store_tile(
    rows, tile, rows_left, first, last,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row, column = tl.arange(0, ROWS)[:, None], first + tl.arange(0, COLUMNS)[None, :]
    mask = (row < rows_left) & (column < last)
    tl.store(rows + row * WIDTH + column, tile.to(rows.dtype.element_ty), mask=mask)


@triton.jit
def product(
    acc, near_tile, far_tile, near, far, near_left, far_left, first,
    WIDTH: tl.constexpr, SPAN: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
    NEAR: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """Return acc + near far^T over SPAN columns from ``first`` on: the tiles', if one BLOCK does.

    Shapes:
        near_tile [NEAR, BLOCK], far_tile [FAR, BLOCK], acc -> [NEAR, FAR]
    """
    if SPAN <= BLOCK:
        tl.static_assert(near_tile.shape[1] == BLOCK)
        acc = multiply(near_tile, tl.trans(far_tile), acc, PRECISION)
    else:
        EVEN: tl.constexpr = SPAN % BLOCK == 0
        for column in tl.range(0, SPAN, BLOCK):
            start, end = first + column, first + SPAN
            a = load_tile(near, near_left, start, end, WIDTH, EVEN, NEAR, BLOCK)
            b = load_tile(far, far_left, start, end, WIDTH, EVEN, FAR, BLOCK)
            acc = multiply(a, tl.trans(b), acc, PRECISION)
    return acc


@triton.jit
def phi(score, KERNEL: tl.constexpr):
    if KERNEL == "exp":
        score = tl.exp(score)
    if KERNEL == "sigmoid":
        score = 1.0 / (1.0 + tl.exp(-score))
    return score


@triton.jit
def phi_slope(value, KERNEL: tl.constexpr):
    """The slope phi' where phi has this value."""
    if KERNEL == "identity":
        value = tl.full(value.shape, 1.0, tl.float32)
    if KERNEL == "sigmoid":
        value = value * (1.0 - value)
    return value


@triton.jit
def gamma_tile(
    near_tile, far_tile, near, far, near_left, far_left, threshold, own_head,
    KERNEL: tl.constexpr, HEADS: tl.constexpr, HEAD_WIDTH: tl.constexpr, CUT: tl.constexpr,
    PRECISION: tl.constexpr, NEAR: tl.constexpr, FAR: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Gamma = delta(mean_h phi(near_h far_h^T)), and its slope in the product of ``own_head``.

    Shapes:
        near_tile [NEAR, BLOCK_W], far_tile [FAR, BLOCK_W] (used where they hold the whole width)
        -> gamma [NEAR, FAR], slope [NEAR, FAR]
    """
    WIDTH: tl.constexpr = HEADS * HEAD_WIDTH
    EVEN: tl.constexpr = HEAD_WIDTH % BLOCK_W == 0
    zero = tl.full((NEAR, FAR), 0.0, tl.float32)
    if HEADS == 1:
        score = product(zero, near_tile, far_tile, near, far, near_left, far_left, 0,
                        WIDTH, HEAD_WIDTH, BLOCK_W, PRECISION, NEAR, FAR)  # fmt: skip
        gamma = phi(score, KERNEL)
        slope = phi_slope(gamma, KERNEL)
    else:
        gamma, slope = zero, zero
        for head in tl.range(HEADS):
            first, last = head * HEAD_WIDTH, (head + 1) * HEAD_WIDTH
            a = load_tile(near, near_left, first, last, WIDTH, EVEN, NEAR, BLOCK_W)
            b = load_tile(far, far_left, first, last, WIDTH, EVEN, FAR, BLOCK_W)
            score = product(zero, a, b, near, far, near_left, far_left, first,
                            WIDTH, HEAD_WIDTH, BLOCK_W, PRECISION, NEAR, FAR)  # fmt: skip
            value = phi(score, KERNEL)
            gamma += value / HEADS
            slope = tl.where(head == own_head, phi_slope(value, KERNEL) / HEADS, slope)
    if KERNEL != "identity":
        there = (tl.arange(0, NEAR) < near_left)[:, None] & (tl.arange(0, FAR) < far_left)[None, :]
        gamma = tl.where(there, gamma, 0.0)
    if CUT:
        gamma = tl.where(gamma > threshold, gamma, 0.0)
    return gamma, slope


@triton.jit
def d_score(d_gamma, gamma, slope, KERNEL: tl.constexpr, CUT: tl.constexpr):
    """Gradient in the product of one head; what is cut passes none (kept entries are above 0)."""
    if CUT:
        d_gamma = tl.where(gamma > 0.0, d_gamma, 0.0)
    if KERNEL != "identity":
        d_gamma = d_gamma * slope
    return d_gamma


# ---------------------------------------------------------------------- messages, both ways


@triton.jit(do_not_specialize=["n", "p", "rows_per_split"])
def to_pivots_kernel(
    q, k, x, row_sum, partial, partial_sum, threshold, n, p, rows_per_split,
    BACKWARD: tl.constexpr, F: tl.constexpr,
    KERNEL: tl.constexpr, HEADS: tl.constexpr, HEAD_WIDTH: tl.constexpr, CUT: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_P: tl.constexpr,
    BLOCK_W: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """Gamma^T v and the column sums of Gamma; BACKWARD: (Gamma / r)^T g.

    Grid (pivot blocks, splits of the nodes, batch * feature chunks).

    Shapes:
        x [B, N, F], row_sum [B, N] (read if BACKWARD)
        -> partial [S, B, P, F], partial_sum [S, B, P] (written unless BACKWARD)
    """
    W: tl.constexpr = HEADS * HEAD_WIDTH
    EVEN_W: tl.constexpr = HEAD_WIDTH % BLOCK_W == 0
    CHUNKS: tl.constexpr = (F + BLOCK_F - 1) // BLOCK_F
    pivot, split = tl.program_id(0) * BLOCK_P, tl.program_id(1)
    batch, feature = tl.program_id(2) // CHUNKS, tl.program_id(2) % CHUNKS * BLOCK_F
    batches = tl.num_programs(2) // CHUNKS
    first_node = tl.cast(batch, tl.int64) * n
    pivots_left = p - pivot
    k_rows = row_pointer(k, batch * p + pivot, W)
    k_tile = load_tile(k_rows, pivots_left, 0, HEAD_WIDTH, W, EVEN_W, BLOCK_P, BLOCK_W)

    total = tl.full((BLOCK_P, BLOCK_F), 0.0, tl.float32)
    column_sum = tl.full((BLOCK_P,), 0.0, tl.float32)
    start = split * rows_per_split
    for node in tl.range(start, tl.minimum(n, start + rows_per_split), BLOCK_N):
        left = n - node
        q_rows = row_pointer(q, first_node + node, W)
        q_tile = load_tile(q_rows, left, 0, HEAD_WIDTH, W, EVEN_W, BLOCK_N, BLOCK_W)
        x_rows = row_pointer(x, first_node + node, F)
        x_tile = load_tile(x_rows, left, feature, F, F, F % BLOCK_F == 0, BLOCK_N, BLOCK_F)
        gamma, _ = gamma_tile(k_tile, q_tile, k_rows, q_rows, pivots_left, left, threshold, 0,
                              KERNEL, HEADS, HEAD_WIDTH, CUT, PRECISION,
                              BLOCK_P, BLOCK_N, BLOCK_W)  # fmt: skip
        if BACKWARD:
            offset = tl.arange(0, BLOCK_N)
            r = tl.load(row_sum + first_node + node + offset, mask=offset < left, other=1.0)
            gamma = gamma * (1.0 / tl.maximum(r, EPS))[None, :]
        else:
            column_sum += tl.sum(gamma, 1)
        total = multiply(gamma.to(x_tile.dtype), x_tile, total, PRECISION)

    row = (split * batches + batch) * p + pivot
    store_tile(row_pointer(partial, row, F), total, pivots_left, feature, F, F, BLOCK_P, BLOCK_F)
    if not BACKWARD:
        if feature == 0:
            offset = tl.arange(0, BLOCK_P)
            tl.store(partial_sum + row + offset, column_sum, mask=offset < pivots_left)


@triton.jit(do_not_specialize=["rows", "splits"])
def finish_pivots_kernel(
    partial, partial_sum, c, m, ds, dm, rows, splits,
    BACKWARD: tl.constexpr, F: tl.constexpr,
    BLOCK_S: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """Sum the splits and normalise: c and m; BACKWARD: ds = dc / m and dm = -(ds . c).

    Grid (blocks of the rows B P).

    Shapes:
        partial [S, B P, F], partial_sum [S, B P] -> c [B P, F], m [B P], or ds, dm of these shapes
    """
    first = tl.program_id(0) * BLOCK_R
    row = first + tl.arange(0, BLOCK_R)
    split = tl.arange(0, BLOCK_S)
    if BACKWARD:
        column_sum = tl.load(m + row, mask=row < rows, other=1.0)
    else:
        column_sum = tl.full((BLOCK_R,), 0.0, tl.float32)
        for s in tl.range(0, splits, BLOCK_S):
            there = (s + split < splits)[:, None] & (row < rows)[None, :]
            sums = partial_sum + (s + split)[:, None] * rows + row[None, :]
            column_sum += tl.sum(tl.load(sums, mask=there, other=0.0), 0)
        tl.store(m + row, column_sum, mask=row < rows)

    d_column_sum = tl.full((BLOCK_R,), 0.0, tl.float32)
    for feature in tl.range(0, F, BLOCK_F):
        column = feature + tl.arange(0, BLOCK_F)
        inside = (row < rows)[:, None] & (column < F)[None, :]
        entry = row[:, None] * F + column[None, :]
        total = tl.full((BLOCK_R, BLOCK_F), 0.0, tl.float32)
        for s in tl.range(0, splits, BLOCK_S):
            from_split = tl.cast(s + split, tl.int64)[:, None, None] * rows * F
            there = (s + split < splits)[:, None, None] & inside[None, :, :]
            parts = tl.load(partial + from_split + entry[None, :, :], mask=there, other=0.0)
            total += tl.sum(parts, 0)
        total = total / tl.maximum(column_sum, EPS)[:, None]
        if BACKWARD:
            to_pivots = tl.load(c + entry, mask=inside, other=0.0).to(tl.float32)
            d_column_sum -= tl.sum(total * to_pivots, 1)
            tl.store(ds + entry, total.to(ds.dtype.element_ty), mask=inside)
        else:
            tl.store(c + entry, total.to(c.dtype.element_ty), mask=inside)
    if BACKWARD:
        d_column_sum = tl.where(column_sum >= EPS, d_column_sum, 0.0)
        tl.store(dm + row, d_column_sum, mask=row < rows)


@triton.jit(do_not_specialize=["n", "p"])
def to_nodes_kernel(
    q, k, x, out, row_sum, threshold, n, p,
    NORMALISE: tl.constexpr, F: tl.constexpr,
    KERNEL: tl.constexpr, HEADS: tl.constexpr, HEAD_WIDTH: tl.constexpr, CUT: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_P: tl.constexpr,
    BLOCK_W: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """Gamma x, and NORMALISE: over the row sums, which are written too.

    Grid (node blocks, batch * feature chunks).

    Shapes:
        x [B, P, F] -> out [B, N, F], row_sum [B, N]
    """
    W: tl.constexpr = HEADS * HEAD_WIDTH
    EVEN_W: tl.constexpr = HEAD_WIDTH % BLOCK_W == 0
    CHUNKS: tl.constexpr = (F + BLOCK_F - 1) // BLOCK_F
    node = tl.program_id(0) * BLOCK_N
    batch, feature = tl.program_id(1) // CHUNKS, tl.program_id(1) % CHUNKS * BLOCK_F
    first_node = tl.cast(batch, tl.int64) * n + node
    nodes_left = n - node
    q_rows = row_pointer(q, first_node, W)
    q_tile = load_tile(q_rows, nodes_left, 0, HEAD_WIDTH, W, EVEN_W, BLOCK_N, BLOCK_W)

    total = tl.full((BLOCK_N, BLOCK_F), 0.0, tl.float32)
    sums = tl.full((BLOCK_N,), 0.0, tl.float32)
    for pivot in tl.range(0, p, BLOCK_P):
        left = p - pivot
        k_rows = row_pointer(k, batch * p + pivot, W)
        k_tile = load_tile(k_rows, left, 0, HEAD_WIDTH, W, EVEN_W, BLOCK_P, BLOCK_W)
        x_rows = row_pointer(x, batch * p + pivot, F)
        x_tile = load_tile(x_rows, left, feature, F, F, F % BLOCK_F == 0, BLOCK_P, BLOCK_F)
        gamma, _ = gamma_tile(q_tile, k_tile, q_rows, k_rows, nodes_left, left, threshold, 0,
                              KERNEL, HEADS, HEAD_WIDTH, CUT, PRECISION,
                              BLOCK_N, BLOCK_P, BLOCK_W)  # fmt: skip
        total = multiply(gamma.to(x_tile.dtype), x_tile, total, PRECISION)
        if NORMALISE:
            sums += tl.sum(gamma, 1)

    if NORMALISE:
        total = total / tl.maximum(sums, EPS)[:, None]
        if feature == 0:
            offset = tl.arange(0, BLOCK_N)
            tl.store(row_sum + first_node + offset, sums, mask=offset < nodes_left)
    out_rows = row_pointer(out, first_node, F)
    store_tile(out_rows, total, nodes_left, feature, F, F, BLOCK_N, BLOCK_F)


# ---------------------------------------------------------------------- gradients of q and k


@triton.jit
def row_terms(
    g, out, row_sum, first_node, nodes_left,
    F: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """1 / r and dr = -(g . out) / r of a block of nodes (dr = 0 where r is clamped)."""
    offset = tl.arange(0, BLOCK_N)
    r = tl.load(row_sum + first_node + offset, mask=offset < nodes_left, other=1.0)
    EVEN: tl.constexpr = F % BLOCK_F == 0
    g_rows, out_rows = row_pointer(g, first_node, F), row_pointer(out, first_node, F)
    inner = tl.full((BLOCK_N,), 0.0, tl.float32)
    for feature in tl.range(0, F, BLOCK_F):
        g_tile = load_tile(g_rows, nodes_left, feature, F, F, EVEN, BLOCK_N, BLOCK_F)
        out_tile = load_tile(out_rows, nodes_left, feature, F, F, EVEN, BLOCK_N, BLOCK_F)
        inner += tl.sum(g_tile.to(tl.float32) * out_tile.to(tl.float32), 1)
    inverse = 1.0 / tl.maximum(r, EPS)
    return inverse, tl.where(r >= EPS, -inner * inverse, 0.0)


@triton.jit(do_not_specialize=["n", "p"])
def grad_q_kernel(
    q, k, v, g, out, row_sum, c, ds, dm, dq, dv, dr, threshold, n, p,
    NEED_V: tl.constexpr, F: tl.constexpr,
    KERNEL: tl.constexpr, HEADS: tl.constexpr, HEAD_WIDTH: tl.constexpr, CUT: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_P: tl.constexpr,
    BLOCK_W: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """dGamma, from it dq, and dr for :func:`grad_k_kernel`; NEED_V: dv = Gamma ds as well.

    Grid (node blocks, width chunks, batch). NEED_V only where one chunk holds F.

    Shapes:
        v, g, out, dv [B, N, F], row_sum, dr [B, N], c, ds [B, P, F], dm [B, P], dq [B, N, W]
    """
    W: tl.constexpr = HEADS * HEAD_WIDTH
    EVEN_G: tl.constexpr = HEAD_WIDTH % BLOCK_G == 0
    EVEN_F: tl.constexpr = F % BLOCK_F == 0
    CHUNKS: tl.constexpr = (HEAD_WIDTH + BLOCK_G - 1) // BLOCK_G
    node, batch = tl.program_id(0) * BLOCK_N, tl.program_id(2)
    head = tl.program_id(1) // CHUNKS
    first, last = head * HEAD_WIDTH + tl.program_id(1) % CHUNKS * BLOCK_G, (head + 1) * HEAD_WIDTH
    first_node = tl.cast(batch, tl.int64) * n + node
    nodes_left = n - node
    q_rows, dq_rows = row_pointer(q, first_node, W), row_pointer(dq, first_node, W)
    v_rows, g_rows = row_pointer(v, first_node, F), row_pointer(g, first_node, F)
    q_tile = load_tile(q_rows, nodes_left, first, last, W, EVEN_G, BLOCK_N, BLOCK_G)
    v_tile = load_tile(v_rows, nodes_left, 0, F, F, EVEN_F, BLOCK_N, BLOCK_F)
    g_tile = load_tile(g_rows, nodes_left, 0, F, F, EVEN_F, BLOCK_N, BLOCK_F)
    inverse_r, dr_tile = row_terms(g, out, row_sum, first_node, nodes_left, F, BLOCK_N, BLOCK_F)

    dq_tile = tl.full((BLOCK_N, BLOCK_G), 0.0, tl.float32)
    dv_tile = tl.full((BLOCK_N, BLOCK_F), 0.0, tl.float32)
    zero = tl.full((BLOCK_N, BLOCK_P), 0.0, tl.float32)
    for pivot in tl.range(0, p, BLOCK_P):
        left = p - pivot
        row = batch * p + pivot
        k_rows = row_pointer(k, row, W)
        c_rows, ds_rows = row_pointer(c, row, F), row_pointer(ds, row, F)
        k_tile = load_tile(k_rows, left, first, last, W, EVEN_G, BLOCK_P, BLOCK_G)
        c_tile = load_tile(c_rows, left, 0, F, F, EVEN_F, BLOCK_P, BLOCK_F)
        ds_tile = load_tile(ds_rows, left, 0, F, F, EVEN_F, BLOCK_P, BLOCK_F)
        offset = tl.arange(0, BLOCK_P)
        dm_tile = tl.load(dm + row + offset, mask=offset < left, other=0.0)
        d_gamma = product(zero, g_tile, c_tile, g_rows, c_rows, nodes_left, left, 0,
                          F, F, BLOCK_F, PRECISION, BLOCK_N, BLOCK_P)  # fmt: skip
        d_gamma = d_gamma * inverse_r[:, None] + (dr_tile[:, None] + dm_tile[None, :])
        d_gamma = product(d_gamma, v_tile, ds_tile, v_rows, ds_rows, nodes_left, left, 0,
                          F, F, BLOCK_F, PRECISION, BLOCK_N, BLOCK_P)  # fmt: skip
        gamma, slope = gamma_tile(q_tile, k_tile, q_rows, k_rows, nodes_left, left, threshold, head,
                                  KERNEL, HEADS, HEAD_WIDTH, CUT, PRECISION,
                                  BLOCK_N, BLOCK_P, BLOCK_W)  # fmt: skip
        if NEED_V:
            dv_tile = multiply(gamma.to(ds_tile.dtype), ds_tile, dv_tile, PRECISION)
        d_gamma = d_score(d_gamma, gamma, slope, KERNEL, CUT)
        dq_tile = multiply(d_gamma.to(k_tile.dtype), k_tile, dq_tile, PRECISION)

    store_tile(dq_rows, dq_tile, nodes_left, first, last, W, BLOCK_N, BLOCK_G)
    if tl.program_id(1) == 0:
        offset = tl.arange(0, BLOCK_N)
        tl.store(dr + first_node + offset, dr_tile, mask=offset < nodes_left)
    if NEED_V:
        dv_rows = row_pointer(dv, first_node, F)
        store_tile(dv_rows, dv_tile, nodes_left, 0, F, F, BLOCK_N, BLOCK_F)


@triton.jit(do_not_specialize=["n", "p", "rows_per_split", "splits"])
def grad_k_kernel(
    q, k, v, g, row_sum, dr, c, ds, dm, partial, threshold, n, p, rows_per_split, splits,
    F: tl.constexpr,
    KERNEL: tl.constexpr, HEADS: tl.constexpr, HEAD_WIDTH: tl.constexpr, CUT: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_P: tl.constexpr,
    BLOCK_W: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """dGamma^T, and from it the parts of dk.

    Grid (pivot blocks, splits of the nodes * width chunks, batch).

    Shapes:
        v, g [B, N, F], row_sum, dr [B, N], c, ds [B, P, F], dm [B, P] -> partial [S, B, P, W]
    """
    W: tl.constexpr = HEADS * HEAD_WIDTH
    EVEN_G: tl.constexpr = HEAD_WIDTH % BLOCK_G == 0
    EVEN_F: tl.constexpr = F % BLOCK_F == 0
    CHUNKS: tl.constexpr = (HEAD_WIDTH + BLOCK_G - 1) // BLOCK_G
    pivot, batch = tl.program_id(0) * BLOCK_P, tl.program_id(2)
    split, chunk = tl.program_id(1) % splits, tl.program_id(1) // splits
    head = chunk // CHUNKS
    first, last = head * HEAD_WIDTH + chunk % CHUNKS * BLOCK_G, (head + 1) * HEAD_WIDTH
    first_node = tl.cast(batch, tl.int64) * n
    pivots_left = p - pivot
    row = batch * p + pivot
    k_rows = row_pointer(k, row, W)
    c_rows, ds_rows = row_pointer(c, row, F), row_pointer(ds, row, F)
    k_tile = load_tile(k_rows, pivots_left, first, last, W, EVEN_G, BLOCK_P, BLOCK_G)
    c_tile = load_tile(c_rows, pivots_left, 0, F, F, EVEN_F, BLOCK_P, BLOCK_F)
    ds_tile = load_tile(ds_rows, pivots_left, 0, F, F, EVEN_F, BLOCK_P, BLOCK_F)
    pivots, nodes = tl.arange(0, BLOCK_P), tl.arange(0, BLOCK_N)
    dm_tile = tl.load(dm + row + pivots, mask=pivots < pivots_left, other=0.0)

    dk_tile = tl.full((BLOCK_P, BLOCK_G), 0.0, tl.float32)
    zero = tl.full((BLOCK_P, BLOCK_N), 0.0, tl.float32)
    start = split * rows_per_split
    for node in tl.range(start, tl.minimum(n, start + rows_per_split), BLOCK_N):
        left = n - node
        here = first_node + node
        q_rows = row_pointer(q, here, W)
        v_rows, g_rows = row_pointer(v, here, F), row_pointer(g, here, F)
        q_tile = load_tile(q_rows, left, first, last, W, EVEN_G, BLOCK_N, BLOCK_G)
        v_tile = load_tile(v_rows, left, 0, F, F, EVEN_F, BLOCK_N, BLOCK_F)
        g_tile = load_tile(g_rows, left, 0, F, F, EVEN_F, BLOCK_N, BLOCK_F)
        r = tl.load(row_sum + here + nodes, mask=nodes < left, other=1.0)
        dr_tile = tl.load(dr + here + nodes, mask=nodes < left, other=0.0)
        d_gamma = product(zero, c_tile, g_tile, c_rows, g_rows, pivots_left, left, 0,
                          F, F, BLOCK_F, PRECISION, BLOCK_P, BLOCK_N)  # fmt: skip
        inverse_r = 1.0 / tl.maximum(r, EPS)
        d_gamma = d_gamma * inverse_r[None, :] + (dr_tile[None, :] + dm_tile[:, None])
        d_gamma = product(d_gamma, ds_tile, v_tile, ds_rows, v_rows, pivots_left, left, 0,
                          F, F, BLOCK_F, PRECISION, BLOCK_P, BLOCK_N)  # fmt: skip
        gamma, slope = gamma_tile(k_tile, q_tile, k_rows, q_rows, pivots_left, left, threshold,
                                  head, KERNEL, HEADS, HEAD_WIDTH, CUT, PRECISION,
                                  BLOCK_P, BLOCK_N, BLOCK_W)  # fmt: skip
        d_gamma = d_score(d_gamma, gamma, slope, KERNEL, CUT)
        dk_tile = multiply(d_gamma.to(q_tile.dtype), q_tile, dk_tile, PRECISION)

    row = (split * tl.num_programs(2) + batch) * p + pivot
    store_tile(row_pointer(partial, row, W), dk_tile, pivots_left, first, last, W, BLOCK_P, BLOCK_G)


@triton.jit(do_not_specialize=["entries", "splits"])
def sum_splits_kernel(partial, out, entries, splits, BLOCK_S: tl.constexpr, BLOCK_E: tl.constexpr):
    """Sum over the first axis: partial [S, E] -> out [E]. Grid (blocks of E)."""
    entry = tl.program_id(0) * BLOCK_E + tl.arange(0, BLOCK_E)
    split = tl.arange(0, BLOCK_S)
    total = tl.full((BLOCK_E,), 0.0, tl.float32)
    for s in tl.range(0, splits, BLOCK_S):
        there = (s + split < splits)[:, None] & (entry < entries)[None, :]
        from_split = tl.cast(s + split, tl.int64)[:, None] * entries
        total += tl.sum(tl.load(partial + from_split + entry[None, :], mask=there, other=0.0), 0)
    tl.store(out + entry, total.to(out.dtype.element_ty), mask=entry < entries)
