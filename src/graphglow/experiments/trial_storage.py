"""Where trials are kept: a file or a database that several processes may share."""

import sqlite3
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path

import optuna
import sqlalchemy
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage
from optuna.trial import TrialState

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
            except (StorageInternalError, sqlalchemy.exc.SQLAlchemyError) as error:
                raise _unusable(storage, error) from error
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


def begun(storage: BaseStorage, study: optuna.Study, attributes: dict[str, str]) -> optuna.Trial:
    """A new trial, as ``Study.ask`` makes it, which has its attributes from the first moment.

    No kill can come between, and leave one that nobody knows the process of.
    """
    study._thread_local.cached_all_trials = None  # as ask does
    template = optuna.trial.create_trial(state=TrialState.RUNNING, user_attrs=attributes)
    number = study._storage.create_new_trial(study._study_id, template_trial=template)
    if isinstance(storage, RDBStorage):
        storage.record_heartbeat(number)
    return optuna.Trial(study, number)


def void_stale(storage: BaseStorage, study: optuna.Study) -> None:
    """Void the trials, of whatever machine, that have given no sign of life for long, or ever."""
    if not isinstance(storage, RDBStorage):
        return
    optuna.storages.fail_stale_trials(study)  # overlooks those that never gave one
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    long_ago = datetime.now() - timedelta(seconds=2 * HEARTBEAT)
    old = [t for t in running if t.datetime_start is not None and t.datetime_start < long_ago]
    if not old:
        return
    heartbeats = sqlalchemy.table("trial_heartbeats", sqlalchemy.column("trial_id"))
    with storage.engine.connect() as connection:
        heard = set(connection.execute(sqlalchemy.select(heartbeats.c.trial_id)).scalars())
    for trial in old:
        if trial._trial_id not in heard:
            with suppress(UpdateFinishedTrialError):  # another worker was faster
                study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)


def _database(storage: str | Path) -> RDBStorage:
    try:
        if "://" in str(storage):
            return RDBStorage(str(storage), heartbeat_interval=HEARTBEAT)
        path = Path(storage).expanduser().absolute()
        if path.is_dir() or (path.exists() and not path.is_file()):
            raise InputError(f"the storage must be a file or an Optuna URL; got {path}")
        url = sqlalchemy.URL.create("sqlite", database=str(path)).render_as_string()
        with locked(path):  # or two workers make the same tables
            _check_whole(path)
            return RDBStorage(
                url.replace("{", "{{").replace("}", "}}"),  # Optuna fills in what is in braces
                engine_kwargs={"connect_args": {"timeout": SQLITE_PATIENCE}},
                heartbeat_interval=HEARTBEAT,
            )
    except (
        sqlalchemy.exc.SQLAlchemyError,
        StorageInternalError,
        sqlite3.Error,
        ImportError,
        RuntimeError,
        UnicodeError,
    ) as error:
        raise _unusable(storage, error) from error


def _check_whole(path: Path) -> None:
    """Raise for a file with damaged pages, which Optuna would stumble over later or never."""
    with closing(sqlite3.connect(path, timeout=SQLITE_PATIENCE)) as connection:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError("it is damaged")


def _unusable(storage: str | Path, error: BaseException) -> InputError:
    while error.__cause__ is not None:  # the database's own words
        error = error.__cause__
    reason = (str(error) or type(error).__name__).splitlines()[0]
    shown = hidden_password(str(storage))
    return InputError(
        f"the storage must be a file or a database that Optuna can open; got {shown} ({reason})"
    )


def hidden_password(storage: str) -> str:
    """The storage as it may be shown."""
    with suppress(sqlalchemy.exc.ArgumentError):
        if "://" in storage:
            return sqlalchemy.make_url(storage).render_as_string(hide_password=True)
    return storage.split("://")[0] + "://..." if "://" in storage else storage
