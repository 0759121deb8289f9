"""A connection to a Ray cluster: quiet, and ended with the block that it is for."""

import importlib
import io
import logging
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

from graphglow.errors import InputError

RETRIES = 3
"""How often Ray gives the job of a worker that died to another one."""
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_task_oom_retries": str(RETRIES)}
"""Environment that Ray reads as it is imported; by itself it retries for ever where a node runs
out of memory."""

PATIENCE = 10
"""Seconds until somebody must answer at an address."""


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """The module, connected; one that was connected before stays so afterwards."""
    ray = _imported()
    if ray.is_initialized():
        yield ray
        return
    on_terminate = signal.getsignal(signal.SIGTERM)  # Ray sets its own
    with redirect_stdout(_WithoutRay(sys.stdout)):
        try:
            _connect(ray, address)
            yield ray
        finally:
            ray.shutdown()
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, on_terminate)


def _imported() -> Any:
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        raise InputError(
            'the executor ray needs Ray; got a Python without it (pip install "graphglow[ray]")'
        ) from error


def _connect(ray: Any, address: str) -> None:
    try:
        _knock(address)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(
                address or None,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.CRITICAL,
            )
    except (ImportError, OSError, OverflowError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"the executor must be a Ray cluster that can be reached; "
            f"got {'ray:' + address if address else 'ray'} ({reason:.200})"
        ) from error


def _knock(address: str) -> None:
    """Raise ``OSError`` where nobody listens: Ray itself tries for minutes, and not silently."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()


class _WithoutRay(io.TextIOBase):
    """A stream less what Ray's own threads print: pages about a worker that died."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if threading.current_thread().name.startswith("ray_"):
            return len(text)
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()
