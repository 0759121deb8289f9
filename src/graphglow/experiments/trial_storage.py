"""Where trials are kept: a file or a database that several processes may share."""

import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import optuna
import sqlalchemy
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage

from graphglow.errors import InputError
from graphglow.experiments.settings import locked

HEARTBEAT = 60
"""Seconds between signs of life of a trial; after twice as many without, it is void."""
SQLITE_PATIENCE = 120
"""Seconds to wait for other workers that write to the same file."""


@contextmanager
def opened(storage: str | Path | None) -> Iterator[BaseStorage]:
    """Open a file or an Optuna URL, with Optuna silent meanwhile; None keeps trials in memory."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            warnings.filterwarnings("ignore", "Heartbeat of storage", UserWarning)  # see alive()
            if storage is None:
                yield InMemoryStorage()
                return
            database = _database(storage)
            try:
                yield database
            finally:
                database.remove_session()
                database.engine.dispose()
    finally:
        optuna.logging.set_verbosity(before)


@contextmanager
def alive(storage: BaseStorage, trials: Sequence[optuna.Trial]) -> Iterator[None]:
    """Give signs of life of some trials, as ``Study.optimize`` does for the one that it makes."""
    if not isinstance(storage, RDBStorage):
        yield
        return
    over = threading.Event()

    def beat() -> None:
        while True:
            for trial in trials:
                storage.record_heartbeat(trial._trial_id)
            if over.wait(HEARTBEAT):
                return

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def void_stale(storage: BaseStorage, study: optuna.Study) -> None:
    """Void the trials, of whatever machine, that have given no sign of life for long."""
    if isinstance(storage, RDBStorage):
        optuna.storages.fail_stale_trials(study)


def _database(storage: str | Path) -> RDBStorage:
    try:
        if "://" in str(storage):
            return RDBStorage(str(storage), heartbeat_interval=HEARTBEAT)
        path = Path(storage).expanduser().absolute()
        if path.is_dir() or (path.exists() and not path.is_file()):
            raise InputError(f"the storage must be a file or an Optuna URL; got {path}")
        url = sqlalchemy.URL.create("sqlite", database=str(path)).render_as_string()
        with locked(path):  # or two workers make the same tables
            return RDBStorage(
                url.replace("{", "{{").replace("}", "}}"),  # Optuna fills in what is in braces
                engine_kwargs={"connect_args": {"timeout": SQLITE_PATIENCE}},
                heartbeat_interval=HEARTBEAT,
            )
    except (sqlalchemy.exc.SQLAlchemyError, ImportError, RuntimeError, UnicodeError) as error:
        reason = str(error).splitlines()[0]
        shown = hidden_password(str(storage))
        raise InputError(
            f"the storage must be a file or a database that Optuna can open; got {shown} ({reason})"
        ) from error


def hidden_password(storage: str) -> str:
    """The storage as it may be shown."""
    with suppress(sqlalchemy.exc.ArgumentError):
        if "://" in storage:
            return sqlalchemy.make_url(storage).render_as_string(hide_password=True)
    return storage.split("://")[0] + "://..." if "://" in storage else storage
