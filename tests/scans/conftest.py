"""What tests of the scans share: they run with the compiled loops and with the torch form beside them."""

import pytest

from ssmbook.scans import _engine, _ops


@pytest.fixture(
    params=[True, False] if _engine.AVAILABLE else [False], ids=lambda on: "loops" if on else "torch"
)
def engine(request, monkeypatch):
    if not request.param:
        monkeypatch.setattr(_engine, "_loops", lambda: None)
        monkeypatch.setattr(_ops, "PIECE", 48)  # so that sequences of a few hundred steps have several
