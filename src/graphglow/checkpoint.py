"""One file from which a stopped training goes on, and ends as if it had not been stopped."""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from graphglow.checks import number
from graphglow.errors import InputError, warn
from graphglow.storage import load_tensors, prefixed, save_tensors, within
from graphglow.version import __version__

KIND = "checkpoint"


class Part(Protocol):
    """A part of a training that changes, and names the tensors that do."""

    def state(self) -> dict[str, Tensor]: ...

    def load_state(self, state: dict[str, Tensor]) -> None: ...


class Checkpoint:
    """The file of one training, written now and then, and whole at all times.

    Given to :func:`graphglow.pretrain` or ``transfer`` under the paper's learner. A training that
    was stopped goes on from it, on a CPU to the same bits. The file of another training (other
    settings, graphs or versions) is refused. If the file cannot be written, a warning says so and
    the training goes on.

    Args:
        path: The file.
        resume: False ignores what is in the file and starts over.
        every_seconds: Time between two writes: the most work that can be lost.
    """

    def __init__(
        self, path: str | Path, *, resume: bool = True, every_seconds: float = 10.0
    ) -> None:
        if not number("every_seconds", every_seconds) >= 0:
            raise InputError(f"every_seconds must be >= 0; got {every_seconds}")
        self.path, self.resume, self.every_seconds = Path(path).expanduser(), resume, every_seconds
        self.resumed = False
        """Whether the training went on from the file."""
        self.seconds_before = 0.0
        """Training time of earlier processes."""

    def begin(self, training: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Start the clock; return the tensors and facts on file, if there are any.

        ``training`` is what the result depends on, in types that JSON can hold.
        """
        versions = {"graphglow": __version__, "torch": str(torch.__version__)}
        self._training = json.loads(json.dumps(training | versions))
        self._began = self._last = time.monotonic()
        if not self.resume or not self.path.exists():
            return None
        tensors, meta = load_tensors(self.path, KIND)
        differing = [n for n, v in self._training.items() if meta["training"].get(n) != v]
        if differing:
            raise InputError(
                f"{self.path} is the checkpoint of another training: {', '.join(differing)} "
                "differ (remove it, or start without --resume)"
            )
        self.resumed, self.seconds_before = True, float(meta["seconds"])
        return tensors, meta["facts"]

    def offer(self, parts: Mapping[str, Part], facts: dict[str, Any] | None = None) -> None:
        """Write the parts, and facts that JSON can hold, if it is time to."""
        now = time.monotonic()
        if now - self._last < self.every_seconds:
            return
        self._last = now
        tensors: dict[str, Tensor] = {}
        for name, part in parts.items():
            tensors |= prefixed(name, part.state())
        seconds = self.seconds_before + now - self._began
        meta = {"training": self._training, "facts": facts or {}, "seconds": seconds}
        try:
            save_tensors(self.path, KIND, tensors, meta)
        except (InputError, MemoryError) as error:
            warn(f"the checkpoint could not be written, the training goes on: {error}")

    def remove(self) -> None:
        """Remove the file, once the result is safe."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def restore(parts: Mapping[str, Part], tensors: dict[str, Tensor]) -> None:
    """Load the state of each part, in place."""
    for name, part in parts.items():
        part.load_state(within(name, tensors))


def adam_state(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Moments and step counts of every weight; empty before the first step."""
    state = optimizer.state_dict()["state"]
    return {f"{i}.{name}": tensor for i in state for name, tensor in state[i].items()}


def load_adam_state(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        place, name = key.split(".")
        state.setdefault(int(place), {})[name] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
