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
    names = {"graphglow": graphglow, "data": small_data()}
    exec(recipe, names)
    written = events.EventAccumulator(str(tmp_path / "logs"))
    written.Reload()
    runs = [written.Scalars(f"val_loss/small-0/run{run}") for run in range(3)]  # by lambda
    assert all([one.step for one in run] == [*range(1, 11)] for run in runs)
    history = names["result"].history  # of the lambda that was chosen
    losses = [pytest.approx(epoch.val_loss) for epoch in history]
    assert losses in [[one.value for one in run] for run in runs]
