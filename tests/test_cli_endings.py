"""How a process ends: by SIGTERM, without room to print, with an output that cannot be."""

import errno
import io
import os
import signal
import sys
import warnings

import pytest

from graphglow import cli
from graphglow.cli import main
from graphglow.errors import InputWarning

FIT = ["fit", "--method", "mlp", "--target", "wine", "--device", "cpu", "--epochs"]


@pytest.mark.parametrize(("ranks", "before"), [("2", signal.SIG_DFL), ("1", signal.SIG_IGN)])
def test_sigterm_stays_what_it_is_for_ranks_and_where_it_is_ignored(monkeypatch, ranks, before):
    monkeypatch.setenv("WORLD_SIZE", ranks)
    heard = []
    monkeypatch.setattr(cli, "_run", lambda _: heard.append(signal.getsignal(signal.SIGTERM)))
    kept = signal.signal(signal.SIGTERM, before)
    try:
        assert main([]) == 0
    finally:
        signal.signal(signal.SIGTERM, kept)
    assert heard == [before]


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("json", [["--json"], []])
def test_standard_output_without_room_is_one_line_and_files_are_there(
    tmp_path, monkeypatch, capsys, buffered, json
):
    with open("/dev/full", "wb", buffering=0) as raw, monkeypatch.context() as patch:
        full = io.TextIOWrapper(io.BufferedWriter(raw) if buffered else raw)
        patch.setattr(sys, "stdout", full)
        assert main([*FIT, "2", "--predictions", str(tmp_path / "p.csv"), *json]) == 1
    assert capsys.readouterr().err == (
        "graphglow: standard output must be writable; got No space left on device\n"
    )
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 179


class Full(io.StringIO):
    def write(self, text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_note_without_room_stops_nothing(monkeypatch, capsys):
    def run(arguments):
        warnings.warn(InputWarning("not all of it"), stacklevel=1)
        print("done")

    monkeypatch.setattr(cli, "_run", run)
    monkeypatch.setattr(sys, "stderr", Full())
    assert main([]) == 0
    assert capsys.readouterr().out == "done\n"


def test_a_circle_of_links_is_refused_before_any_work(tmp_path, capsys):
    (tmp_path / "loop").symlink_to("loop")
    for out in (tmp_path / "loop" / "p.csv", tmp_path / "loop" / "more" / "p.csv"):
        assert main([*FIT, "1000000", "--predictions", str(out)]) == 2
        assert capsys.readouterr().err == (
            f"graphglow: the output path must be writable; got {out} "
            "(Too many levels of symbolic links)\n"
        )
