"""What a run goes on from: tensors by name, checked before the first of them is put back."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.storage import within


class Part(Protocol):
    """Something that changes while a run goes on, and says so by named tensors."""

    def state(self) -> dict[str, Tensor]: ...

    def load_state(self, state: dict[str, Tensor]) -> None: ...


@runtime_checkable
class Checked(Protocol):
    """A part that knows more of its tensors than their names, shapes and types."""

    def check_state(self, state: dict[str, Tensor]) -> None:
        """Raise :class:`InputError` unless :meth:`Part.load_state` can go on from them."""
        ...


class Saved(NamedTuple):
    """What a checkpoint holds."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]

    def restore(self, parts: Mapping[str, Part]) -> None:
        """Let the parts go on from here; raise, with all of them as they were, if they cannot."""
        for name, part in parts.items():
            _check(name, part, within(name, self.tensors))
        for name, part in parts.items():
            part.load_state(within(name, self.tensors))


def _check(name: str, part: Part, saved: dict[str, Tensor]) -> None:
    """Raise unless ``saved`` is what ``part`` has: what is empty in a new one may have grown."""
    expected = part.state()
    if expected.keys() != saved.keys():
        odd = ", ".join(sorted(expected.keys() ^ saved.keys()))
        raise InputError(f"{name} of a checkpoint must be whole; got {odd} missing or too many")
    for each, tensor in saved.items():
        own = expected[each]
        grows = own.ndim > 0 and own.shape[0] == 0
        same = tensor.ndim == own.ndim and tensor.shape[grows:] == own.shape[grows:]
        if tensor.dtype != own.dtype or not same:
            raise InputError(
                f"{name}.{each} of a checkpoint must be {_kind(own)}; got {_kind(tensor)}"
            )
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise InputError(f"{name}.{each} of a checkpoint must be finite; got NaN or infinity")
    if isinstance(part, Checked):
        part.check_state(saved)


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
