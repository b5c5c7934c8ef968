"""The page in Debian's chromium: it renders, its script runs without a complaint, and it prints."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from report.html_report import as_html
from report.morning import morning
from report.study_record import StudyRecord
from storage import Store

CHROMIUM = shutil.which("chromium")


def _browse(tmp_path: Path, page: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM, "the test is skipped without it"
    return subprocess.run(
        [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
            f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", *flags, page.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed on this machine")
def test_a_browser_shows_and_prints_the_page_without_a_complaint(
    real: StudyRecord, real_store: Store, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    page.write_text(as_html(morning(real, real_store)))
    shown = _browse(tmp_path, page, "--dump-dom")
    assert "CONSOLE" not in shown.stderr
    assert re.search(r'<button type="button" data-copies="command">', shown.stdout), "the script showed the button"
    assert "Keep the baseline" in shown.stdout
    pdf = tmp_path / "report.pdf"
    _browse(tmp_path, page, f"--print-to-pdf={pdf}", "--no-pdf-header-footer")
    assert pdf.read_bytes().startswith(b"%PDF")
