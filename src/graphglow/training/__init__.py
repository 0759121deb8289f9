"""Results of a transfer."""
