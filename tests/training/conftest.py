"""What the tests of training share."""

import pytest


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are still written whole and renamed; ``tests/test_storage.py`` has the rest."""
    monkeypatch.setattr("os.fsync", lambda handle: None)
