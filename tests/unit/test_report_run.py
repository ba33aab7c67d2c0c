"""Reading the folder of a run, whole, cut off, or odd."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from mpidec.errors import UserError
from mpidec.report.run import Run, refuse_repeated
from support.runs import line, run, write_run


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = run(tmp_path / "a")
    assert (found.status, found.completed, found.remarks) == ("completed", True, [])
    assert found.column("epoch") == [1, 2, 3]
    assert found.column("bytes_sent") == [1000, 2000, 3000]
    mean, least, most = found.spread("test_accuracy_local") or ([], [], [])
    assert (mean[-1], least[-1], most[-1]) == pytest.approx((0.775, 0.675, 0.825))
    assert found.spread("train_loss_local") is None
    assert found.last("train_loss") == pytest.approx(1 / 3)
    assert math.isnan(found.last("test_loss"))


def test_options_without_effect_are_no_settings(tmp_path: Path) -> None:
    gossip = run(tmp_path / "a").settings
    assert gossip["topology"] == "ring"
    assert gossip["ranks"] == 4
    assert "collectives" not in gossip
    central = run(tmp_path / "b", config={"algorithm": "allreduce"}, outcome={"collectives": "mpi"}).settings
    assert central["collectives"] == "mpi", "what was really used"
    assert "topology" not in central


def test_seconds_a_step_leave_the_first_epoch_out(tmp_path: Path) -> None:
    slow_start = [line(1, phases={"exchange": 5.0, "evaluate": 0.2}, seconds=9.0), line(2, seconds=10.5)]
    slow_start[1]["phases"] = {"exchange": 5.5, "evaluate": 0.4, "algorithm": 0.1}
    clock, phases = run(tmp_path / "a", lines=slow_start).per_step("phases")
    assert clock == pytest.approx(0.15)
    assert phases == pytest.approx({"exchange": 0.05, "evaluate": 0.02, "algorithm": 0.01})


def test_seconds_a_step_of_a_single_epoch_are_all_there_are(tmp_path: Path) -> None:
    found = run(tmp_path / "a", lines=[line(1, phases_max={"exchange": 0.8})])
    assert found.per_step("phases") == (pytest.approx(0.1), pytest.approx({"exchange": 0.06, "evaluate": 0.02}))
    assert found.per_step("phases_max")[1] == pytest.approx({"exchange": 0.08})


def test_phases_of_no_epoch_are_none(tmp_path: Path) -> None:
    clock, phases = run(tmp_path / "a", lines=[]).per_step("phases")
    assert math.isnan(clock)
    assert phases == {}


@pytest.mark.parametrize(
    ("outcome", "changes", "status"),
    [
        ({"status": "running"}, {}, "unfinished after 2 of 3 epochs"),
        ({"status": "failed"}, {}, "failed after 2 of 3 epochs"),
        ({"status": "interrupted"}, {}, "interrupted after 2 of 3 epochs"),
        ({"status": "completed"}, {"train_loss": math.nan}, "diverged after 2 of 3 epochs"),
        ({"status": "failed"}, {"consensus_distance": math.inf}, "diverged after 2 of 3 epochs"),
    ],
)
def test_what_did_not_complete_says_so(
    outcome: dict[str, str], changes: dict[str, float], status: str, tmp_path: Path
) -> None:
    found = run(tmp_path / "a", lines=[line(1), line(2, **changes)], outcome=outcome)
    assert found.status == status
    assert not found.completed


@pytest.mark.parametrize("present", [True, False], ids=["empty", "missing"])
def test_a_run_without_metrics_is_a_run(present: bool, tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", lines=[], outcome={"status": "failed"})
    if not present:
        (path / "metrics.jsonl").unlink()
    found = Run.read(path)
    assert found.status == "failed after 0 of 3 epochs"
    assert found.remarks == ["no epoch was finished, so there is nothing to plot"]


def test_a_run_without_a_summary_is_of_unknown_status(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a")
    (path / "summary.json").unlink()
    found = Run.read(path)
    assert found.status == "of unknown status after 3 of 3 epochs"
    assert any("no summary.json" in remark for remark in found.remarks)


@pytest.mark.parametrize("tail", ['{"epoch": 4, "st', "{", "\u00e9".encode()[:1]], ids=["cut", "begun", "letter"])
def test_a_half_written_last_line_is_left_out_and_told(tail: str | bytes, tmp_path: Path) -> None:
    path = write_run(tmp_path / "a")
    with open(path / "metrics.jsonl", "ab") as file:
        file.write(tail if isinstance(tail, bytes) else tail.encode())
    found = Run.read(path)
    assert found.column("epoch") == [1, 2, 3]
    assert found.remarks == ["the last line of metrics.jsonl was only half written, and is left out"]


def test_of_an_epoch_that_was_run_again_the_last_time_counts(tmp_path: Path) -> None:
    again = [line(1), line(2), line(3), line(2, train_loss=7.0), line(3, train_loss=8.0)]
    found = run(tmp_path / "a", lines=again)
    assert found.column("epoch") == [1, 2, 3]
    assert found.column("train_loss") == [1, 7, 8]
    assert found.remarks == ["epochs 2 to 3 were run more than once, and the last time counts"]


BROKEN = [
    ("metrics.jsonl", '{"epoch": 1,\n{}\n', "metrics.jsonl, line 1 is no valid JSON"),
    ("metrics.jsonl", '{"epoch": 1, "step": 5}\nnonsense\n', "metrics.jsonl, line 2 is no valid JSON"),
    ("metrics.jsonl", '{"epoch": 1}', "line 1: step must be a number: got None"),
    ("metrics.jsonl", '{"epoch": NaN, "step": 5}\n', "line 1: epoch must be a number: got nan"),
    ("metrics.jsonl", '{"epoch": 1, "step": true}\n', "line 1: step must be a number: got True"),
    ("metrics.jsonl", '{"epoch": 1, "step": 1' + "0" * 400 + "}\n", "line 1: step must be a number: got 10"),
    ("metrics.jsonl", "[1]\n", "line 1 must be the metrics of an epoch, a JSON object: got list"),
    ("metrics.jsonl", '{"epoch": "one", "step": 5}\n', "line 1: epoch must be a number: got 'one'"),
    ("metrics.jsonl", '{"epoch": 1}\n', "line 1: step must be a number: got None"),
    ("metrics.jsonl", '{"epoch": 1, "step": 5, "train_loss": "low"}\n', "train_loss must be a number: got 'low'"),
    ("metrics.jsonl", '{"epoch": 1, "step": 5, "phases": [1]}\n', "phases must be numbers by name: got [1]"),
    ("metrics.jsonl", '{"epoch": 1, "step": 5, "phases": {"data": "x"}}\n', "phases must be numbers by name"),
    ("config.yaml", "a: [1\n", "config.yaml is no valid YAML"),
    ("config.yaml", "- 1\n", "config.yaml must hold the options of a run, one a line: got list"),
    ("summary.json", '{"status"', "summary.json is no valid JSON"),
    ("summary.json", "[]", "summary.json must hold the summary of a run, a JSON object: got list"),
    ("summary.json", b"\xff", "summary.json cannot be read: it is no UTF-8 text"),
    ("metrics.jsonl", b"\xff\n{}\n", "metrics.jsonl cannot be read: it is no UTF-8 text"),
]


@pytest.mark.parametrize(("name", "content", "sentence"), BROKEN, ids=range(len(BROKEN)))
def test_what_is_broken_is_named(name: str, content: str | bytes, sentence: str, tmp_path: Path) -> None:
    path = write_run(tmp_path / "a")
    (path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as caught:
        Run.read(path)
    assert sentence in str(caught.value)
    assert str(path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text("a: 1\n")
    for name, sentence in (
        ("nowhere", "there is no folder"),
        ("file", "is a file: give the folder of a run"),
        ("empty", "holds no run"),
        ("config", "holds no run"),
    ):
        with pytest.raises(UserError, match=sentence):
            Run.read(tmp_path / name)


def test_a_run_is_named_once(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    refuse_repeated([tmp_path / "a", tmp_path / "b"])
    for other in (tmp_path / "a", tmp_path / "link", tmp_path / "b" / ".." / "a"):
        with pytest.raises(UserError, match="is given twice"):
            refuse_repeated([tmp_path / "a", other])
