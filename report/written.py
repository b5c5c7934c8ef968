"""Writing the morning report: the page and its Markdown twin beside it."""

from __future__ import annotations

import os
from pathlib import Path

import optuna

from report.html_report import as_html
from report.markdown_report import as_markdown
from report.morning import morning
from report.study_record import ReportError, read_study
from storage import Store


def write_report(study: optuna.Study, store: Store, output: Path) -> Path:
    """Write the page to ``output`` (a file, or a folder that gets ``report.html``), and ``.md`` beside it.

    Returns the page's path. Raises ReportError where it cannot be written, StorageError where nothing can be read.
    """
    page = output / "report.html" if output.is_dir() or not output.suffix else output
    found = morning(read_study(study, store), store)
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        for path, text in ((page, as_html(found)), (page.with_suffix(".md"), as_markdown(found))):
            # Whole or not at all: somebody may be reading the one before.
            unfinished = path.with_name(f".{path.name}.{os.getpid()}")
            unfinished.write_text(text, encoding="utf-8")
            unfinished.replace(path)
    except OSError as error:
        raise ReportError(
            f"the report cannot be written to {page} ({error.strerror}): choose another place with --output"
        ) from error
    return page
