"""The recipe of docs/ecosystem.md: epochs as curves, read back by TensorBoard's own reader."""

import re
from pathlib import Path

import pytest

import graphglow
from tiny_graphs import small_data

PAGE = Path(__file__).parents[2] / "docs" / "ecosystem.md"


def test_the_recipe_for_tensorboard_logs_every_epoch(tmp_path, monkeypatch):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    (recipe,) = re.findall(r"```python\n([^`]*SummaryWriter[^`]*)```", PAGE.read_text())
    monkeypatch.chdir(tmp_path)
    config = graphglow.TransferConfig(epochs=3, hidden=8, device="cpu")
    names = {"graphglow": graphglow, "data": small_data(), "config": config}
    exec(recipe, names)
    written = events.EventAccumulator(str(tmp_path / "logs"))
    written.Reload()
    found = [(one.step, one.value) for one in written.Scalars("val_loss/small-0/run0")]
    history = names["result"].history  # of the GNN that counts most; others were heard too
    assert [step for step, _ in found[:3]] == [1, 2, 3]
    for epoch in history:
        assert (epoch.epoch, pytest.approx(epoch.val_loss)) in found
