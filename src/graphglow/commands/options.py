"""What every command can be asked, from a table of them: help and mistyped flags without torch.

``options.json`` is made of the commands themselves by ``benchmarks/command_options.py``; a test
fails when it is stale. A command of two kinds (``--learner``, ``--kind``, ``--method``) or of
parts (``bench op``) has an entry for each.
"""

import argparse
import difflib
import json
import re
import shutil
import sys
import textwrap
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from graphglow.errors import InputError

KINDS = {
    "transfer": ("--learner", "universal", ("untrained",)),
    "refine": ("--learner", "universal", ("untrained",)),
    "pretrain": ("--kind", "evidence", ()),
    "fit": ("--method", "", ()),
}
"""Command -> the flag that says which kind it is, what it is by default, and the same by others."""
USUAL = {
    "transfer": "target learner columns split-seed out predictions epochs seed overwrite json",
    "refine": "target result columns out predictions top-k no-add no-drop overwrite json",
    "refine --learner paper": "target learner columns out top-k epochs seed device overwrite json",
    "pretrain": "sources out kind columns max-nodes steps seed device overwrite json",
    "pretrain --kind paper": "sources out kind episodes epochs resume seed device overwrite json",
    "fit": "method target columns predictions epochs hidden seed device overwrite json",
    "predict": "target columns labels coverage out result nodes edges overwrite json",
    "audit": "target columns suspects missing out top seed device overwrite json",
    "compare": "target columns methods learner seeds seed device json",
    "explain": "target result node pair columns out top-k label overwrite json",
    "reproduce": "EXPERIMENT methods targets seeds epochs out settings dry-run processes json",
}
"""What --help shows; of a command that is not here, what stands under no heading."""

ELSEWHERE = {
    "--lr": "--learning-rate",
    "--wd --l2": "--weight-decay",
    "--n-epochs --num-epochs --max-epochs": "--epochs",
    "--hidden-dim --hidden-size --hidden-channels": "--hidden",
    "--layers --n-layers": "--num-layers",
    "--early-stopping": "--patience",
    "--random-state --random-seed": "--seed",
    "--gpu --cuda --cpu": "--device",
    "--model --gnn": "--backbone --method --methods",
    "--data --dataset --graph --input": "--target --targets --sources",
    "--output --output-file --save": "--out",
    "--force --replace": "--overwrite",
    "--n-jobs --jobs --num-workers": "--workers --processes",
    "--label --label-column --id --id-column --features": "--columns",
    "--k": "--top-k",
}
"""What options are called elsewhere, and here: the first of these that a command has."""


class Option(NamedTuple):
    """One flag, or one argument without one."""

    heading: str
    names: str
    """``--capture --no-capture``, or what an argument is called."""
    value: str
    text: str

    @property
    def usual_name(self) -> str:
        return self.names.split()[0].removeprefix("--")


class Entry(NamedTuple):
    """A command, as its help shows it."""

    about: str
    headings: dict[str, str]
    options: list[Option]

    @property
    def flags(self) -> list[str]:
        return [name for one in self.options for name in one.names.split() if name[:2] == "--"]


@cache
def table() -> dict[str, Entry]:
    """Every command and kind of it by what is typed: ``transfer --learner paper``, ``bench op``."""
    whole = json.loads((files("graphglow.commands") / "options.json").read_text())
    options = [Option(*row) for row in whole["options"]]
    return {
        words: Entry(one["about"], one["headings"], [options[i] for i in one["options"]])
        for words, one in whole["commands"].items()
    }


def asked(flag: str, arguments: list[str]) -> str | None:
    """What the last ``flag`` is followed by, before anything else is read; None without it."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument(flag, dest="value")
    try:
        found: str | None = parser.parse_known_args(arguments)[0].value
    except argparse.ArgumentError:
        raise InputError(f"{flag} must be followed by a name") from None
    return found


def entry_of(name: str, arguments: list[str]) -> str | None:
    """The entry that a command line means; None where a file must be read to know it."""
    if arguments and f"{name} {arguments[0]}" in table():
        return f"{name} {arguments[0]}"
    if name not in KINDS:
        return name if name in table() else None
    flag, usual, others = KINDS[name]
    helping = {"-h", "--help", "--help-all"} & {*arguments}
    value = (asked(flag, [w for w in arguments if w not in helping]) or usual).lower()
    if f"{name} {flag} {value}" in table():
        return f"{name} {flag} {value}"
    return name if value in (usual, *others) else None


def answer(words: str, arguments: list[str]) -> None:
    """Print the help and raise ``SystemExit``, if it is asked for; refuse flags there are not."""
    given = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if {"-h", "--help", "--help-all"} & {*given}:
        sys.stdout.write(help_of(words, whole="--help-all" in given))
        raise SystemExit(0)
    entry = table()[words]
    known = [re.sub("_", "-", one.partition("=")[0]) for one in given if one[:2] == "--"]
    missing = [
        f"{one.names} {one.value}"
        for one in entry.options
        if one.names[:2] == "--" and one.text.endswith("(required)") and one.names not in known
    ]
    said = [f"required options are missing: {', '.join(missing)}"] if missing else []
    said += [_unknown(flag, words) for flag in dict.fromkeys(known) if flag not in entry.flags]
    if said:
        raise InputError(f"{'; '.join(said)}; see graphglow {words} --help-all")


def _unknown(flag: str, words: str) -> str:
    """Whose a flag is that is not of ``words``, or which it may have been meant for."""
    name = words.split()[0]
    owners = [w for w, entry in table().items() if flag in entry.flags]
    here = table()[words].flags
    meant = [ours for theirs, ours in ELSEWHERE.items() if flag in theirs.split()]
    if same := [one for ours in meant for one in ours.split() if one in here]:
        return f"unknown option {flag}: here it is {same[0]}"
    if kinds := [w for w in owners if w.split()[0] == name]:
        kind, usual, _ = KINDS.get(name, ("", "", ()))
        itself = f"{kind} {usual}".strip() or f"graphglow {name}"
        where = [w.removeprefix(name).strip() or itself for w in kinds]
        more = f" and {len(where) - 3} others" if len(where) > 3 else ""
        return f"{flag} has no effect here: it belongs to {', '.join(where[:3])}{more}"
    if owners:
        names = list(dict.fromkeys(w.split()[0] for w in owners))
        return f"{flag} has no effect here: it belongs to graphglow {', '.join(names[:4])}"
    near = difflib.get_close_matches(flag, [*here, "--help"], 1, 0.7)
    return f"unknown option {flag}" + (f": perhaps {near[0]}" if near else "")


def help_of(words: str, *, whole: bool) -> str:
    """The options that people use, or all of them under their headings, as the terminal is wide."""
    entry, width = table()[words], terminal_width()
    usual = USUAL.get(words, USUAL.get(words.split()[0], "")).split()
    first = [o for o in entry.options if (o.usual_name in usual if usual else o.heading == "")]
    first.sort(key=lambda one: usual.index(one.usual_name) if usual else 0)
    rest = [one for one in entry.options if one not in first]
    said = words.split()
    bare = " ".join(o.names for o in entry.options if o.names[:2] != "--" and o.names not in said)
    parts = [f"usage: graphglow {words} {f'{bare} ' if bare else ''}[OPTIONS]"]
    parts += [wrapped(entry.about, width)]
    parts += [_listed("options:", first, width)] if first else []
    if whole:
        for heading in dict.fromkeys(one.heading for one in rest):
            title = heading or "more options"
            title += f" ({entry.headings[title].rstrip('.')})" if title in entry.headings else ""
            members = [one for one in rest if one.heading == heading]
            parts.append(_listed(f"{title}:", members, width))
    elif rest:
        about = [heading for heading in dict.fromkeys(one.heading for one in rest) if heading]
        of = f", of {', '.join(about)}" if about else ""
        parts.append(wrapped(f"graphglow {words} --help-all shows {len(rest)} more{of}.", width))
    return "\n\n".join(parts) + "\n"


def _listed(title: str, options: list[Option], width: int) -> str:
    lines = [*textwrap.wrap(title, width, break_on_hyphens=False)]
    for one in options:
        left = f"  {one.names.replace(' --', ', --')} {one.value}".rstrip()
        text = textwrap.wrap(one.text, width - 24, break_on_hyphens=False)
        if len(left) <= 22 and text:
            left, text = f"{left:<24}{text[0]}", text[1:]
        lines += [left, *(f"{'':24}{line}" for line in text)]
    return "\n".join(lines)


def terminal_width() -> int:
    return max(50, min(100, shutil.get_terminal_size((80, 24)).columns))


def wrapped(text: str, width: int) -> str:
    """Paragraphs as wide as the terminal; a list keeps its lines, an example can be copied."""
    parts = []
    for part in text.strip().split("\n\n"):
        if part.startswith("Example: "):
            words = " ".join(part.removeprefix("Example: ").split())
            words = re.sub(r"(--\S+) (?!--)", r"\1~", words)  # a flag stays with its value
            lines = textwrap.wrap(words, width - 8, break_on_hyphens=False, break_long_words=False)
            parts.append("example:\n  " + " \\\n      ".join(lines).replace("~", " "))
        elif "\n  " in part:
            parts.append("\n".join(_list_line(line, width) for line in part.split("\n")))
        else:
            parts.append(textwrap.fill(" ".join(part.split()), width, break_on_hyphens=False))
    return "\n\n".join(parts)


def _list_line(line: str, width: int) -> str:
    """``  name   what it is``, of which the second part is folded under itself."""
    start = re.match(r"  \S+ +", line)
    indent = " " * len(start[0]) if start else ""
    return textwrap.fill(line, width, subsequent_indent=indent, break_on_hyphens=False)
