"""The morning report of a real study and of a made one."""

from __future__ import annotations

import time
from html.parser import HTMLParser
from pathlib import Path

import optuna
import pytest
from report_made_study import make_study

from report import write_report
from report.html_report import as_html
from report.markdown_report import as_markdown
from report.morning import Morning, morning
from report.study_record import ReportError, StudyRecord, read_study
from storage import Store


@pytest.fixture(scope="module")
def made_morning(made: StudyRecord, made_store: Store) -> Morning:
    return morning(made, made_store)


@pytest.fixture(scope="module")
def page(made_morning: Morning) -> str:
    return as_html(made_morning)


class Outline(HTMLParser):
    """What a browser would load, and whether every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.headings: list[str] = []
        self.ids: list[str] = []
        self.unnamed: list[str] = []
        self.feed_done = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.loads += [str(values[name]) for name in ("src", "href") if values.get(name)]
        if values.get("id"):
            self.ids.append(str(values["id"]))
        if tag == "svg" and values.get("role") == "img" and not values.get("aria-label"):
            self.unnamed.append(tag)
        if tag not in ("meta", "link", "br", "rect", "line") and not self.get_starttag_text().endswith("/>"):  # type: ignore[union-attr]
            self.open.append(tag)
        if tag in ("h1", "h2", "h3"):
            self.headings.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()


def outline(page: str) -> Outline:
    found = Outline()
    found.feed(page)
    return found


def test_the_verdict_is_one_sentence_with_its_interval_over_launches(made_morning: Morning) -> None:
    assert made_morning.verdict.startswith("Trial 1 (speculation=nextn steps=3) is 14.7 % faster than the baseline")
    assert "95 % interval" in made_morning.verdict
    assert "within one launch" not in made_morning.verdict


def test_the_score_weighs_levels_as_the_space_does(made: StudyRecord) -> None:
    assert made.weights == {"c1": 1.0, "c8": 3.0}


def test_a_baseline_that_wins_is_said_to_win(real: StudyRecord, real_store: Store) -> None:
    found = morning(real, real_store)
    assert found.verdict == "Keep the baseline: none of the 5 other configurations that were measured beat it."
    assert found.challenger is not None
    assert found.challenger.number == 1
    assert "The baseline against its closest rival" in as_html(found)


def test_the_page_closes_what_it_opens_and_loads_nothing(page: str) -> None:
    found = outline(page)
    assert found.open == []
    assert all(one.startswith(("#", "data:")) for one in found.loads)
    assert "default-src 'none'" in page
    assert "@import" not in page
    assert "url(" not in page


def test_the_page_can_be_heard(page: str) -> None:
    found = outline(page)
    assert found.headings[0] == "h1"
    assert found.headings.count("h1") == 1
    assert found.unnamed == []
    assert len(found.ids) == len(set(found.ids))
    assert '<html lang="en">' in page
    assert 'scope="col"' in page
    assert 'scope="row"' in page


def test_the_page_follows_dark_and_light_and_prints(page: str) -> None:
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_names_from_the_study_are_escaped(page: str) -> None:
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize(
    "text",
    [
        "Baseline against winner at every level", "What mattered most", "What failed and why",
        "How the hours were spent",
        "How far the figures can be trusted", "What to try next", "--speculative-steps 3", "130.0", "2.5 MB", "2.40",
        "lower --mem-fraction-static", "RTX PRO 6000", "sglang 0.5.23",
    ],
)  # fmt: skip
def test_every_question_of_the_morning_is_answered_on_page_and_twin(
    page: str, made_morning: Morning, text: str
) -> None:
    assert text in page
    assert text.replace("Baseline against winner at every level", "Baseline against winner") in as_markdown(
        made_morning
    )


def test_only_a_rehearsal_carries_the_banner(page: str, made_store: Store) -> None:
    study = optuna.load_study(study_name="made-rehearsal", storage=made_store.optuna_storage())
    rehearsed = morning(read_study(study, made_store), made_store)
    assert 'class="banner"' in as_html(rehearsed)
    assert "REHEARSAL" in as_markdown(rehearsed)
    assert 'class="banner"' not in page


def test_a_confirmed_verdict_comes_first(made_store: Store) -> None:
    study = make_study(made_store, "confirmed")
    study.set_user_attr("confirmed", "trial 1 is faster than the baseline by 14.8 %")
    found = morning(read_study(study, made_store), made_store)
    assert '<p class="verdict">trial 1 is faster than the baseline by 14.8 %</p>' in as_html(found)


def test_a_study_without_any_trial_still_gets_a_page(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'empty.db'}") as store:
        study = optuna.create_study(study_name="empty", storage=store.optuna_storage(), direction="maximize")
        page = write_report(study, store, tmp_path / "out")
    assert page == tmp_path / "out" / "report.html"
    assert "There is no verdict" in page.read_text()
    assert "There is no verdict" in page.with_suffix(".md").read_text()


@pytest.mark.slow
def test_two_hundred_trials_take_seconds_and_stay_small(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'many.db'}") as store:
        study = make_study(store, "many", trials=193)
        began = time.process_time()
        page = write_report(study, store, tmp_path / "many.html")
        assert time.process_time() - began < 5
    assert page.stat().st_size < 3_000_000
    assert outline(page.read_text()).open == []


def test_a_place_that_cannot_be_written_is_named(made_store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    study = optuna.load_study(study_name="made", storage=made_store.optuna_storage())
    with pytest.raises(ReportError, match=r"file/x\.html .*choose another place with --output"):
        write_report(study, made_store, tmp_path / "file" / "x.html")
