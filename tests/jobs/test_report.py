"""``python -m mpidec.report`` as users start it, on runs of real ranks, and the mistakes that it answers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.jobs import alone, assert_one_sentence, environment, mpirun
from support.runs import write_run

REPORT, TRAIN = ("-m", "mpidec.report"), ("-m", "mpidec.train")


def test_two_runs_of_four_ranks_on_one_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    short = ("--epochs", "2", "--batch-size", "32")
    for name, options in (("a", ()), ("b", ("--algorithm", "allreduce", "--collectives", "mpi"))):
        done = mpirun(4, *TRAIN, *short, *options, "--out", name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    done = alone(*REPORT, "a", "b", "--out", "page", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "report in page/report.html\n"
    assert sorted(path.name for path in (tmp_path / "page").iterdir()) == [
        "consensus.png",
        "learning.png",
        "phases.png",
        "report.html",
        "spread-test-accuracy.png",
        "spread-test-loss.png",
        "spread-train-loss.png",
    ]
    text = (tmp_path / "page" / "report.html").read_text()
    sources = re.findall(r"""(?:src|href)\s*=\s*["']?([^"'\s>]*)""", text)
    assert len(sources) == 6
    assert all(source.startswith("data:image/") for source in sources)
    assert not re.search(r"(https?|file)://|@import|url\(", text)
    summaries = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("a", "b")]
    for summary in summaries:
        assert f"{summary['test_accuracy']:.2%}" in text
    for words in ("choco sign ring", "allreduce", "completed", "Equal for all: ranks&nbsp;<b>4</b>"):
        assert words in text


def test_the_folder_has_a_name_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_run(tmp_path / "a", lines=[])
    done = alone(*REPORT, "a", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"report in runs/[-\d]+-report/report\.html\n", done.stdout)


WRONG = [
    ([], "name the folder of one run at least, such as runs/"),
    (["nowhere"], "there is no folder nowhere: give the folder of a run of mpidec.train"),
    (["used"], "the folder used holds no run: give one that mpidec.train or mpidec.simulate network has written"),
    (["used/file"], "used/file is a file: give the folder of a run"),
    (["a", "broken"], "broken/metrics.jsonl, line 2 is no valid JSON: "),
    (["yaml"], "yaml/config.yaml is no valid YAML: "),
    (["a", "a"], "the run a is given twice: name each run once"),
    (["a", "./a/../a"], "the run a/../a is given twice (also as a): name each run once"),
    (["a", "--out", "used"], "the output folder used is not empty: choose another --out"),
    (["a", "--out", "used/file"], "the output folder used/file is a file: choose another --out"),
    (["a", "--out", "used/file/new"], "the output folder used/file/new cannot be written: Not a directory"),
    (["a", "--out", "/proc/new"], "the output folder /proc/new cannot be written: "),
    (["a", "--output", "b"], "Unrecognized options: --output, b (python -m mpidec.report --help lists all options)"),
    (["a", "--out"], "--out"),
]


@pytest.mark.parametrize(("options", "sentence"), WRONG, ids=[" ".join(options) for options, _ in WRONG])
def test_mistakes(options: list[str], sentence: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("keep me")
    write_run(tmp_path / "a", lines=[])
    broken = write_run(tmp_path / "broken")
    (broken / "metrics.jsonl").write_text('{"epoch": 1, "step": 1}\n{"epoch": 2,\n{"epoch": 3, "step": 3}\n')
    (write_run(tmp_path / "yaml") / "config.yaml").write_text("algorithm: [choco\n")
    before = sorted(tmp_path.rglob("*"))
    done = alone(*REPORT, *options, cwd=tmp_path)
    assert_one_sentence(done.stderr, sentence)
    assert done.returncode == 2
    assert done.stdout == ""
    assert sorted(tmp_path.rglob("*")) == before, "nothing is left behind"
    assert (tmp_path / "used" / "file").read_text() == "keep me"


@pytest.mark.parametrize("library", ["matplotlib", "jinja2"])
def test_a_missing_library_is_named(library: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_run(tmp_path / "a")
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / f"{library}.py").write_text("raise ImportError('not installed')\n")
    places = f"{tmp_path / 'hidden'}:{environment()['PYTHONPATH']}"
    done = alone(*REPORT, "a", "--out", "out", cwd=tmp_path, PYTHONPATH=places)
    assert_one_sentence(done.stderr, f"need {library}: pip install {library}, or mpidec with its extra plot")
    assert done.returncode == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [["--help"], ["nowhere"], ["--out"], ["--version"]], ids=" ".join)
def test_help_and_mistakes_come_without_heavy_libraries(options: list[str], tmp_path: Path) -> None:
    heavy = {"torch", "matplotlib", "jinja2", "mpi4py", "numpy"}
    program = (
        f"import sys; sys.argv[1:] = {options!r}\n"
        "from mpidec.report.__main__ import main\n"
        f"try:\n    main()\nfinally:\n    print(sorted({heavy!r} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr
    if options == ["--help"]:
        for words in ("RUN [RUN ...]", "--out PATH", "runs/<time>-report"):
            assert words in done.stdout


def test_the_launcher_is_refused_once(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    done = mpirun(2, *REPORT, "a", cwd=tmp_path, timeout=60)
    assert done.returncode != 0
    assert done.stderr.count("error: ") == 1, done.stderr
    assert "a report is written by one process: start it without the launcher" in done.stderr
