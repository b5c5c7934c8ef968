"""What a person reads: the leaderboard, the verdict, the morning report, and every trial by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import optuna

    from storage import Store


def write_report(study: optuna.Study, store: Store, output: Path) -> Path:
    """Write the morning report of a study, as `report.written.write_report` says, and return the page's path."""
    from report.written import write_report as write  # noqa: PLC0415 - scipy and SQLAlchemy are slow to import

    return write(study, store, output)
