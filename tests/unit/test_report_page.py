"""The page and its plots: complete, escaped, by themselves, and all of them or none."""

from __future__ import annotations

import base64
import math
import os
import re
import warnings
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from mpidec.errors import UserError
from mpidec.report import bars, build, curves
from mpidec.report.labels import labels
from mpidec.report.run import Run
from support.runs import line, run, write_run

pytest.importorskip("matplotlib")
SPREAD = {"train_loss_local": {"mean": 0.5, "min": 0.4, "max": 0.6}}


class Page(HTMLParser):
    """The tags of a page with their attributes, its words, and what its links and pictures point at."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.words = ""
        self.bold: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.words += data
        if self.tags[-1:] == ["strong"]:
            self.bold.append(data)


def page_of(tmp_path: Path, paths: Sequence[Path]) -> Page:
    return Page(build.report(paths, tmp_path / "out"))


def test_a_page_of_two_runs_has_figures_tables_and_settings(tmp_path: Path) -> None:
    paths = [
        write_run(tmp_path / "a", config={"gamma": 0.1}),
        write_run(tmp_path / "b", lines=[line(epoch, test_accuracy=0.1, **SPREAD) for epoch in (1, 2)]),
    ]
    page = page_of(tmp_path, paths)
    names = ["consensus", "learning", "phases", "spread-test-accuracy", "spread-train-loss"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        [*(f"{name}.png" for name in names), "report.html"]
    )
    for name in names:
        assert (tmp_path / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert page.tags.count("img") == len(names)
    for words in (
        "Comparison of 2 runs",
        "choco sign ring, gamma 0.1",
        "choco sign ring, gamma 0.3",
        "87.50%",
        "10.00%",
    ):
        assert words in page.words
    assert "87.50%" in page.bold
    assert re.search(r"Equal for all: ranks\s4", page.words)


def test_a_page_is_by_itself(tmp_path: Path) -> None:
    page = page_of(tmp_path, [write_run(tmp_path / "a")])
    assert page.links
    for link in page.links:
        kind, _, content = link.partition(",")
        assert kind == "data:image/svg+xml;base64"
        assert base64.b64decode(content).lstrip().startswith(b"<?xml")
    text = (tmp_path / "out" / "report.html").read_text()
    assert not re.search(r"https?://|url\(|@import|<script|<link", text)


def test_a_single_run_reads_as_its_own_report(tmp_path: Path) -> None:
    page = page_of(tmp_path, [write_run(tmp_path / "a")])
    assert "Run: choco sign ring" in page.words
    for strange in ("Comparison", "Equal for all", "differs", "bold"):
        assert strange not in page.words
    assert not page.bold


NASTY = "<script>alert(1)</script>&\"'{{ 7 * 7 }}$\\frac{$"


def test_what_comes_from_folders_is_escaped(tmp_path: Path) -> None:
    nasty = [line(1, phases={NASTY: 1.0})]
    outcome = {"status": NASTY, "mpi": NASTY, "versions": {NASTY: NASTY}}
    strange = tmp_path / "<b>$x^"
    paths = [
        write_run(strange, config={"compressor": NASTY, NASTY: NASTY}, lines=nasty, outcome=outcome),
        write_run(tmp_path / "b", config={"compressor": NASTY}),
    ]
    page = page_of(tmp_path, paths)
    assert "script" not in page.tags
    assert page.words.count("<script>alert(1)</script>") > 5
    assert "{{ 7 * 7 }}" in page.words, "no template of its own"
    assert "<b>$x^" in page.words


def test_names_that_no_font_and_no_encoding_has(tmp_path: Path) -> None:
    strange = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\n\xe4\xb8\xad"))
    paths = [write_run(strange, config={"compressor": "\u4e2d\u6587"}), write_run(tmp_path / "b")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # which a user would see among the output
        page = page_of(tmp_path, paths)
    assert "\u4e2d\u6587" in page.words


@pytest.mark.parametrize("number", [2, 6, 12])
def test_many_runs_with_long_names_and_all_kinds_of_ends(number: int, tmp_path: Path) -> None:
    long = "a-very-long-name-of-a-compressor-" * 4
    ends: list[dict[str, Any]] = [
        {"lines": [], "outcome": {"status": "failed"}},
        {"outcome": {"status": "running"}},
        {"lines": [line(1, bytes_sent=0, consensus_distance=0.0), line(2, train_loss=math.nan, bytes_sent=0)]},
        {"lines": [line(1, seconds=1000.0, bytes_sent=10**9, test_loss=math.inf, phases={"data": math.nan})]},
        {"lines": [{"epoch": 1, "step": 0}]},
    ]
    paths = [
        write_run(tmp_path / str(n), config={"compressor": f"{long}{n}", "seed": n}, **(ends[n] if n < 5 else {}))
        for n in range(number)
    ]
    page = page_of(tmp_path, paths)
    assert f"Comparison of {number} runs" in page.words
    assert "failed after 0 of 3 epochs" in page.words
    assert "unfinished after 3 of 3 epochs" in page.words
    for n in range(number):
        assert str(tmp_path / str(n)) in page.words


def test_runs_without_any_epoch_have_a_page_without_figures(tmp_path: Path) -> None:
    page = page_of(tmp_path, [write_run(tmp_path / "a", lines=[], outcome={"status": "failed"})])
    assert "img" not in page.tags
    assert "no epoch was finished, so there is nothing to plot" in page.words
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.html"]


def drawn(figure: Any) -> list[Any]:
    return [axes for axes in figure.axes if axes.get_visible()]


def test_axes_of_bytes_are_logarithmic_where_runs_are_far_apart(tmp_path: Path) -> None:
    many = [line(epoch, bytes_sent=11_000 * epoch, seconds=2.0 * epoch) for epoch in (1, 2, 3)]
    several = [run(tmp_path / "a"), run(tmp_path / "b", lines=many)]
    axes = drawn(curves.learning(several, ["a", "b"]))
    assert [one.get_xscale() for one in axes] == ["linear", "log", "linear"] * 2
    alone = drawn(curves.learning(several[:1], ["a"]))
    assert [one.get_xscale() for one in alone] == ["linear"] * 6
    assert alone[4].get_xlabel() == "sent per rank (kB)"


def test_a_run_has_one_colour_throughout_and_the_data_are_those_of_the_run(tmp_path: Path) -> None:
    several = [run(tmp_path / str(n), config={"seed": n}) for n in range(3)]
    names = labels(several)
    figures = [curves.learning(several, names), curves.consensus(several, names)]
    for one in (axes for figure in figures for axes in drawn(figure)):
        assert [drawn_line.get_color() for drawn_line in one.get_lines()] == ["#0072b2", "#d55e00", "#009e73"]
    by_bytes = drawn(figures[0])[4].get_lines()[0]
    assert list(by_bytes.get_xdata()) == [1000, 2000, 3000]
    assert list(by_bytes.get_ydata()) == several[0].column("test_accuracy")
    panels = drawn(curves.spread(several, names, "test_accuracy"))
    assert [panel.get_lines()[0].get_color() for panel in panels] == ["#0072b2", "#d55e00", "#009e73"]
    legend = figures[0].legends[0]
    assert [text.get_text() for text in legend.get_texts()] == names


def test_a_panel_of_the_spread_for_each_run_that_has_measured_it(tmp_path: Path) -> None:
    losses = {"lines": [line(1, **SPREAD), line(2, **SPREAD)], "outcome": {"status": "running"}}
    several = [run(tmp_path / "a"), run(tmp_path / "b", **losses)]
    (panel,) = drawn(curves.spread(several, ["a", "b"], "train_loss"))
    assert panel.get_title(loc="left") == "b (unfinished after 2 of 3 epochs)"
    assert panel.get_lines()[0].get_color() == "#d55e00", "as everywhere"
    least, most = (extreme(panel.collections[0].get_paths()[0].vertices[:, 1]) for extreme in (min, max))
    assert (least, most) == pytest.approx((0.4, 0.6))
    (section,) = [part for part in build.sections(several, ["a", "b"]) if part.title == "Spread over the ranks"]
    assert section.figures[1].caption.endswith("Not measured in a.")


def test_bars_are_the_milliseconds_of_a_step(tmp_path: Path) -> None:
    several = [run(tmp_path / "a"), run(tmp_path / "b", lines=[], outcome={"status": "failed"})]
    (axes,) = drawn(bars.phases(several, ["a", "b"]))
    assert [patch.get_width() for patch in axes.patches] == pytest.approx([60, 20, 0, 0])
    assert [patch.get_x() for patch in axes.patches[:2]] == pytest.approx([0, 60])
    assert axes.get_xlabel() == "time per step (ms)"
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a", "b (failed after 0 of 3 epochs)"]
    assert "  nothing measured: failed after 0 of 3 epochs" in [text.get_text() for text in axes.texts]


def test_what_a_logarithmic_axis_cannot_show_is_said(tmp_path: Path) -> None:
    silent = run(tmp_path / "a", lines=[line(1, bytes_sent=0)])
    several: list[Run] = [silent, run(tmp_path / "b"), run(tmp_path / "c", lines=[line(1, bytes_sent=10**6)])]
    said = curves.unseen(several, ["a", "b", "c"], "bytes_sent")
    assert said == " The number of bytes is 0 in a, which a logarithmic axis cannot show."
    assert curves.unseen(several[:2], ["a", "b"], "bytes_sent") == "", "the axis is linear"


def test_a_page_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    contents = {"report.html": b"page", "no/such/folder.png": b"plot"}
    with pytest.raises(UserError, match="cannot be written: No such file"):
        build.write(tmp_path / "out", contents)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there").mkdir()
    with pytest.raises(UserError, match="cannot be written"):
        build.write(tmp_path / "there", contents)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
