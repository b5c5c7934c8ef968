"""The schema's history. Alembic runs it on a connection that is already open, under a version table of our own.

Optuna keeps its own history of its own tables in the table ``alembic_version``; the two never touch each other.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from storage.errors import StorageError

VERSION_TABLE = "quietlane_alembic_version"
# Any number that nobody else uses: it keeps two hosts from migrating one PostgreSQL at a time.
_LOCK = 0x71_6C_61_6E


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def head() -> str:
    """The newest version this program knows."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def current(connection: Connection) -> str | None:
    """The version that the database is at; ``None`` for one without our tables."""
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()


def upgrade(connection: Connection, where: str) -> None:
    """Bring the tables to `head()`, in the transaction of the connection. Raises StorageError for a newer schema."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    at = current(connection)
    scripts = ScriptDirectory.from_config(_config())
    known = {script.revision for script in scripts.walk_revisions()}
    if at == scripts.get_current_head():
        return
    if at is not None and at not in known:
        raise StorageError(
            f"The database {where} was written by a newer quietlane (schema {at}, this one knows {head()}): "
            "upgrade quietlane, or name another database with --storage."
        )
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
