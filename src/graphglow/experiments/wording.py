"""Numbers and lists as people say them."""

from collections.abc import Iterable


def counted(number: int, what: str, many: str | None = None) -> str:
    """``1 run``, ``2 runs``; ``many`` where an s is not enough."""
    return f"{number:,} {what if number == 1 else many or what + 's'}"


def shortened(items: Iterable[str], most: int = 5) -> str:
    """Items with commas between; of many, the first and how many more there are."""
    every = list(items)
    more = len(every) - most
    return ", ".join(every[:most]) + (f" and {more:,} more" if more > 0 else "")


def by_degree(latent_degree: float) -> str:
    """Lambda that goes by degree."""
    return f"d / (d + {latent_degree:g}), d neighbours"
