"""Linear algebra on plain tensors: sparse matrices, nearest rows, pairs of rows, low rank."""
