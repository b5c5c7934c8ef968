"""What Alembic runs: the migrations, on the connection that it was handed."""

from __future__ import annotations

from alembic import context

from storage.migrations import VERSION_TABLE
from storage.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
    # SQLite can roll table changes back once the transaction is begun in words, as `storage.database` does
    transactional_ddl=True,
)
context.run_migrations()
