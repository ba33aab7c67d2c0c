"""What tells runs apart, and the tables of their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mpidec.report import tables
from mpidec.report.labels import differing, equal, labels
from mpidec.report.run import Run
from support.runs import line, run


def runs(tmp_path: Path, *configs: dict[str, Any], **content: Any) -> list[Run]:
    return [run(tmp_path / f"run{number}", config=config, **content) for number, config in enumerate(configs)]


def test_settings_that_differ_and_those_that_do_not(tmp_path: Path) -> None:
    several = runs(tmp_path, {}, {"gamma": 0.1, "ratio": 0.5}, {"lr": 0.1, "nesterov": False})
    assert differing(several) == {
        "gamma": ["0.3", "0.1", "0.3"],
        "nesterov": ["yes", "yes", "no"],
        "ratio": ["-", "0.5", "-"],
    }
    assert equal(several)["lr"] == "0.1"
    assert equal(several)["ranks"] == "4"
    assert not differing(several).keys() & equal(several).keys()


@pytest.mark.parametrize(
    ("configs", "wanted"),
    [
        ([{}], ["choco sign ring"]),
        ([{}, {"algorithm": "dpsgd", "compressor": "identity"}], ["choco sign ring", "dpsgd ring"]),
        ([{"seed": 1}, {"seed": 2}], ["choco sign ring, seed 1", "choco sign ring, seed 2"]),
        (
            [{"gamma": 0.1, "seed": 1}, {"gamma": 0.2, "seed": 2}],
            ["choco sign ring, gamma 0.1", "choco sign ring, gamma 0.2"],
        ),
        (
            [{"gamma": 0.1, "seed": 1}, {"gamma": 0.1, "seed": 2}, {"gamma": 0.2}, {"topology": "star"}],
            [
                f"choco sign {part}"
                for part in ("ring, gamma 0.1, seed 1", "ring, gamma 0.1, seed 2", "ring, gamma 0.2", "star")
            ],
        ),
        (
            [{"seed": 1, "weight_decay": 0.1}, {"seed": 2, "weight_decay": 0.2}],
            ["choco sign ring, weight decay 0.1", "choco sign ring, weight decay 0.2"],
        ),
        (
            [{"epochs": 1}, {"epochs": 2}],
            ["choco sign ring, 1 epoch", "choco sign ring, 2 epochs"],
        ),
        (
            [{"nesterov": True}, {"nesterov": False}],
            ["choco sign ring, nesterov", "choco sign ring, no nesterov"],
        ),
        (
            [{"compressor": "c" * 61}, {"compressor": "c" * 60}],
            ["choco " + "c" * 57 + "... ring", "choco " + "c" * 60 + " ring"],
        ),
        ([{}, {}], ["choco sign ring (run0)", "choco sign ring (run1)"]),
    ],
)
def test_labels_say_what_differs(configs: list[dict[str, Any]], wanted: list[str], tmp_path: Path) -> None:
    assert labels(runs(tmp_path, *configs)) == wanted


def test_labels_of_equal_runs_in_folders_of_one_name_have_the_path(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    several = [run(tmp_path / "x" / "a"), run(tmp_path / "y" / "a")]
    made = labels(several)
    assert len(set(made)) == 2
    assert str(tmp_path / "x" / "a") in made[0]


def test_labels_count_ranks_and_leave_out_a_graph_that_is_not_used(tmp_path: Path) -> None:
    central = run(
        tmp_path / "a", config={"algorithm": "allreduce", "compressor": "identity"}, outcome={"collectives": "mpi"}
    )
    several = [central, run(tmp_path / "b"), run(tmp_path / "c", outcome={"ranks": 8})]
    assert labels(several) == ["allreduce", "choco sign ring, 4 ranks", "choco sign ring, 8 ranks"]


def found(several: list[Run]) -> dict[str, tables.Row]:
    return {row.name: row for rows in tables.final_numbers(several) for row in rows}


def test_final_numbers_have_units_and_the_best_is_marked(tmp_path: Path) -> None:
    slow = [line(epoch, bytes_sent=10 * epoch, seconds=90.0 * epoch, train_loss=0.5) for epoch in (1, 2)]
    rows = found([run(tmp_path / "a"), run(tmp_path / "b", lines=slow)])
    assert rows["test accuracy, averaged model"].cells == [("87.50%", True), ("75.00%", False)]
    assert rows["test accuracy, worst rank"].values == ["67.50%", "55.00%"]
    assert rows["training loss, last epoch"].cells == [("0.333", True), ("0.500", False)]
    assert rows["sent per rank and step"].cells == [("100 B", False), ("1 B", True)]
    assert rows["sent per rank"].values == ["3 kB", "20 B"]
    assert rows["sent by all ranks"].values == ["12 kB", "80 B"]
    assert rows["time"].cells == [("3 s", True), ("3 min", False)]
    assert rows["steps per second"].cells[0] == ("12.5", True), "30 steps in 3 s without 0.6 s of evaluation"
    assert rows["consensus distance"].best == [False, False], "all equal"
    assert rows["steps"].cells == [("30", False), ("20", False)]
    assert "test loss, averaged model" not in rows, "no run has measured it"


def test_a_run_that_did_not_complete_is_shown_and_never_best(tmp_path: Path) -> None:
    cheap = [line(1, bytes_sent=1, test_accuracy=1.0)]
    several = [run(tmp_path / "a"), run(tmp_path / "b", lines=cheap, outcome={"status": "running"})]
    several += [run(tmp_path / "c", lines=[], outcome={"status": "failed"}), run(tmp_path / "d", config={"seed": 1})]
    rows = found(several)
    assert rows["status"].values == [
        "completed",
        "unfinished after 1 of 3 epochs",
        "failed after 0 of 3 epochs",
        "completed",
    ]
    assert rows["sent per rank"].values == ["3 kB", "1 B", "-", "3 kB"]
    assert not any(any(row.best) for row in rows.values())


def test_a_run_as_good_as_the_best_is_marked_only_if_it_completed(tmp_path: Path) -> None:
    worse = [line(1, test_accuracy=0.1)]
    several = [run(tmp_path / "a"), run(tmp_path / "b", outcome={"status": "failed"}), run(tmp_path / "c", lines=worse)]
    several.append(run(tmp_path / "d", config={"seed": 1}))
    assert found(several)["test accuracy, averaged model"].best == [True, False, False, True]


def test_optional_metrics_have_rows_where_a_run_has_them(tmp_path: Path) -> None:
    more = [line(1, test_loss=0.25, train_loss_local={"mean": 1.0, "min": 0.5, "max": 1.5})]
    rows = found([run(tmp_path / "a"), run(tmp_path / "b", lines=more)])
    assert rows["test loss, averaged model"].values == ["-", "0.250"]
    assert rows["training loss, worst rank"].values == ["-", "1.50"]


def test_versions_have_rows_where_they_differ(tmp_path: Path) -> None:
    other = {"versions": {"mpidec": "0.2.0", "torch": "2.13.0"}, "horovod": "0.28.1"}
    several = [run(tmp_path / "a"), run(tmp_path / "b", outcome=other)]
    assert {row.name: row.values for row in tables.versions(several)} == {
        "mpidec": ["0.1.0", "0.2.0"],
        "horovod": ["-", "0.28.1"],
    }
    assert "mpidec" in found(several)


def test_phases_name_the_slowest_rank_where_it_is_known(tmp_path: Path) -> None:
    known = run(tmp_path / "a", lines=[line(1, phases_max={"exchange": 0.8})])
    rows = {row.name: row.values for row in tables.phases([known, run(tmp_path / "b", lines=[])])}
    assert rows == {"exchange": ["60 ms (80 ms)", "-"], "evaluate": ["20 ms", "-"], "by the clock": ["100 ms", "-"]}
    assert tables.phases([run(tmp_path / "c", lines=[])]) == []
