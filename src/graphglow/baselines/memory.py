"""Whether a method fits, said before it starts: from sizes, never from a crash."""

import os
from pathlib import Path

import torch

from graphglow.errors import InputError

CGROUP = Path("/sys/fs/cgroup")


def check_fits(
    name: str, needed: int, graph: str, device: torch.device, lighter: str | None
) -> None:
    """Raise unless ``needed`` bytes are free on ``device``, with what would fit instead."""
    free = free_bytes(device)
    if free is not None and needed > free:
        advice = f"; {lighter} needs far less" if lighter else ""
        raise InputError(
            f"{name} must fit in memory; on {graph}, with these settings, it would need about "
            f"{needed / 1e9:.3g} GB, and {free / 1e9:.3g} GB are free on {device.type}{advice}"
        )


def free_bytes(device: torch.device) -> int | None:
    """Memory that can still be had on ``device``; None where the system does not say."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(device)[0])
    return min(
        (size for size in (_available(), _left_in_group()) if size is not None), default=None
    )


def _available() -> int | None:
    """What the kernel says can be had without swapping, or else all there is."""
    try:
        facts = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return int(facts["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _left_in_group() -> int | None:
    """What a container's limit leaves; cached files can be dropped, so they do not count."""
    try:
        limit = int((CGROUP / "memory.max").read_text())
        used = int((CGROUP / "memory.current").read_text())
        facts = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        return limit - used + int(facts.get("inactive_file", 0))
    except (OSError, ValueError):  # no such limit
        return None
