"""Which cells are meant: by experiment, and of those by method, target and sources."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from graphglow.errors import InputError
from graphglow.experiments.cell import Cell
from graphglow.experiments.cells import EXPERIMENTS
from graphglow.experiments.lines import PRETRAINED


class Selection(NamedTuple):
    """The cells that are meant, and those that the choice of sources leaves without any."""

    cells: list[Cell]
    left_out: list[Cell]


def select_cells(
    experiments: Sequence[str],
    methods: Sequence[str] = (),
    targets: Sequence[str] = (),
    sources: Sequence[str] = (),
) -> Selection:
    """The cells of some experiments, or those of them with these methods and targets.

    With ``sources``, learners are pre-trained on these only, of the graphs that a cell names; cells
    that name none of them are left out. That is not the paper's setting, and their keys say so.
    """
    cells = [cell for name in experiments for cell in EXPERIMENTS[name]()]
    _check_known("methods", methods, [cell.method for cell in cells])
    _check_known("targets", targets, [cell.target for cell in cells])
    _check_known("sources", sources, [name for cell in cells for name in cell.sources])
    chosen = [
        cell
        for cell in cells
        if (not methods or cell.method in methods) and (not targets or cell.target in targets)
    ]
    if sources:
        chosen = [_from_only(cell, sources) for cell in chosen]
    left_out = [cell for cell in chosen if cell.method in PRETRAINED and not cell.sources]
    chosen = [cell for cell in chosen if cell.method not in PRETRAINED or cell.sources]
    if not chosen:
        raise InputError(
            f"{', '.join(experiments)} must have cells of the methods, targets and sources named; "
            "got none together"
        )
    return Selection(chosen, left_out)


def _from_only(cell: Cell, sources: Sequence[str]) -> Cell:
    kept = tuple(name for name in cell.sources if name in sources)
    if kept == cell.sources:
        return cell
    return replace(cell, sources=kept, key=f"{cell.key} < {'+'.join(kept)}")


def _check_known(what: str, given: Sequence[str], known: Iterable[str]) -> None:
    names = dict.fromkeys(known)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=3)
            hint = f" (did you mean {' or '.join(near)}?)" if near else ""
            raise InputError(f"{what} must be among {', '.join(names)}; got {name!r}{hint}")
