"""Repeat a step; on a GPU, record it as a CUDA graph and replay the record."""

import warnings
from collections.abc import Callable, Sequence

import torch


class Replay:
    """Do a step again and again; on a GPU, record it after the first time and replay the record.

    The step works in place on tensors that stay where they are, draws only from ``generators`` and
    never waits for the GPU; the numbers are then the same with and without recording. Where
    recording fails, steps go on without it, with a warning. The step is given with each call and
    not kept, since its owner holds this object: a circle of references would keep a GPU's memory.

    Args:
        generators: All random generators that the step draws from.
        device: The device that it works on.
        enabled: Whether to record.
    """

    def __init__(
        self, generators: Sequence[torch.Generator], device: torch.device, *, enabled: bool
    ) -> None:
        self.generators, self.device = generators, device
        self.enabled, self.warm = enabled and device.type == "cuda", False
        self.graph: torch.cuda.CUDAGraph | None = None
        if self.enabled:
            self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __call__(self, step: Callable[[], None]) -> None:
        """Do ``step``, the same in every call."""
        if self.enabled and self.warm and self.graph is None:
            self._record(step)
        if self.graph is not None:
            self.graph.replay()
        elif self.enabled:  # where it will be recorded: same workspaces
            self.stream.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(self.stream):
                step()
            torch.cuda.current_stream(self.device).wait_stream(self.stream)
        else:
            step()
        self.warm = True

    def _record(self, step: Callable[[], None]) -> None:
        graph = torch.cuda.CUDAGraph()
        before = [generator.clone_state() for generator in self.generators]
        for generator in self.generators:
            graph.register_generator_state(generator)
        try:
            with torch.cuda.graph(graph, stream=self.stream):
                step()
        except RuntimeError as error:
            self.enabled = False
            for generator, state in zip(self.generators, before, strict=True):
                generator.graphsafe_set_state(state)  # the old one takes itself for recorded
            warnings.warn(f"training without a CUDA graph: {error}", stacklevel=2)
        else:
            self.graph = graph
            # Recording resets the generators' offsets on its stream; a replay must come after.
            torch.cuda.current_stream(self.device).wait_stream(self.stream)
