"""Write the table of options that the command line's help is made of; --check says if it is stale.

python benchmarks/command_options.py [--check]
"""

import argparse
import inspect
import json
import re
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import tyro

from graphglow.commands import COMMANDS, MODULES, fit, flags, results, train
from graphglow.commands.options import KINDS
from graphglow.competitors import METHODS
from graphglow.settings import PaperConfig

PAPER = {
    "transfer": train.transfer_for(PaperConfig),
    "refine": results.refine_paper,
    "pretrain": train.pretrain_paper,
}
PATH = Path(flags.__file__).with_name("options.json")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if it would change")
    text = as_text(dict(entries()))
    if parser.parse_args().check:
        return int(not PATH.is_file() or PATH.read_text() != text)
    PATH.write_text(text)
    return 0


def entries() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every command, then its other kinds and parts."""
    for name in COMMANDS:
        module = import_module(f"graphglow.commands.{MODULES.get(name, name)}")
        choose = getattr(module, "choose", lambda name, _, module=module: getattr(module, name))
        base = entry(choose(name, []))
        if name == "fit":
            base["about"] = fit.overview()
        yield name, base
        if name == "fit":
            for method, facts in METHODS.items():
                other = entry(fit.command_for(facts.config)) | {"about": fit.about(method)}
                yield f"fit --method {method}", other
        elif name == "reproduce":
            yield "reproduce open-world", entry(choose(name, ["open-world"]))
        elif name in KINDS:
            yield f"{name} {KINDS[name][0]} paper", entry(PAPER[name])


def entry(command: flags.Command) -> dict[str, Any]:
    """What tyro makes of a command's signature."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tyro would not have its parser looked at
        parser = tyro.extras.get_parser(flags.binding(command))
    headings, rows = {}, []
    for group in parser._action_groups:
        heading = re.sub(r" ?(options|positional arguments)$", "", group.title or "")
        if group.description:
            headings[heading] = " ".join(group.description.split())
        for action in group._group_actions:
            names = " ".join(action.option_strings) or str(action.metavar)
            if "--help" in names:
                continue
            value = "" if action.metavar is None or not action.option_strings else action.metavar
            text = " ".join(str(action.help).split())
            text = re.sub(r" ?\(default: (None|False|)\)$", "", text)
            rows.append([heading, names, str(value).replace("{None}|", ""), text])
    return {
        "about": inspect.cleandoc(parser.description or ""),
        "headings": headings,
        "options": rows,
    }


def as_text(found: dict[str, dict[str, Any]]) -> str:
    """JSON with a line for each option, which stands once, and a line for each command."""
    rows = list({json.dumps(row): None for one in found.values() for row in one["options"]})
    lines = [
        f"{json.dumps(words)}: "
        + json.dumps(one | {"options": [rows.index(json.dumps(row)) for row in one["options"]]})
        for words, one in found.items()
    ]
    separated = ",\n".join(rows), ",\n".join(lines)
    return f'{{"options": [\n{separated[0]}\n], "commands": {{\n{separated[1]}\n}}}}\n'


if __name__ == "__main__":
    sys.exit(main())
