"""Work in this process, in several, or on a Ray cluster, to the same result."""
