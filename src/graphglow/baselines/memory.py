"""Whether a method fits, said before it starts: from sizes, never from a crash."""

from pathlib import Path

import torch

from graphglow.errors import InputError

MEMINFO, CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def check_fits(name: str, needed: int, graph: str, device: torch.device, advice: str) -> None:
    """Raise unless ``needed`` bytes are free on ``device``, with ``advice`` at the end."""
    free = free_bytes(device)
    if free is not None and needed > free:
        raise InputError(
            f"{name} must fit in memory; on {graph}, with these settings, it would need about "
            f"{needed / 1e9:.3g} GB, and {free / 1e9:.3g} GB are free on {device.type}{advice}"
        )


def free_bytes(device: torch.device) -> int | None:
    """Memory that can still be had on ``device``; None where the system does not say.

    On a CPU: what the kernel says can be had without swapping, and what a container's limit leaves;
    cached files can be dropped, so they do not count.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        free = _facts(MEMINFO)["MemAvailable:"] * 1024
    except (OSError, KeyError):  # not on Linux
        return None
    try:
        used = int((CGROUP / "memory.current").read_text())
        cached = _facts(CGROUP / "memory.stat").get("inactive_file", 0)
        return min(free, int((CGROUP / "memory.max").read_text()) - used + cached)
    except (OSError, ValueError):  # no such limit
        return free


def _facts(file: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    lines = (line.split() for line in file.read_text().splitlines())
    return {name: int(number) for name, number, *_ in lines}
