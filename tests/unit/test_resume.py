"""A run that is resumed ends on the same bits as one that was never interrupted, for every algorithm."""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from torch import nn

from mpidec import UserError, World, run_on_threads
from mpidec.optim import ALGORITHMS
from mpidec.train import build
from mpidec.train.checkpoint.layout import point_at
from mpidec.train.config import Config
from mpidec.train.data.dataset import Dataset
from mpidec.train.job import train
from support.problems import BUILDING

RANKS = 3
SMALL = {"epochs": 3, "batch_size": 48}  # ten steps an epoch
RUNS: dict[str, dict[str, Any]] = {
    **{name: {"algorithm": name} for name in ALGORITHMS},
    "random-k-warm-up": {"compressor": "random-k", "ratio": 0.1, "warmup_epochs": 2},
    "qsgd-unbiased": {"algorithm": "dcd", "bits": 6},
    "ef-sign-direction": {"algorithm": "ef-sign", "residual": "direction", "lr": 0.01},
    "one-peer": {"algorithm": "dpsgd", "topology": "one_peer_exponential"},
    "resync": {"resync": 7},
    "adamw-onecycle": {"optimizer": "AdamW", "schedule": "onecycle", "decay": "weights"},
    "warm-up-cosine": {"schedule": "cosine", "lr_warmup": 0.5, "scale_lr": "degree"},
    "accumulate-clip": {"accumulate": 2, "batch_size": 24, "clip_norm": 0.5},
    "bf16": {"amp": "bf16"},
    "fp16": {"amp": "fp16"},
    "sorted": {"partition": "sorted", "algorithm": "local", "period": 4},
    "float64": {"dtype": "float64", "algorithm": "deepsqueeze"},
}


@pytest.fixture(autouse=True, scope="module")
def one_model_for_all_threads() -> Iterator[None]:
    """Ranks that are threads share torch's generator: the first builds the model, and the others get copies."""
    made: dict[str, nn.Module] = {}

    def copied(config: Config, dataset: Dataset, make: Callable[..., nn.Module] = build.model) -> nn.Module:
        with BUILDING:
            if config.dtype not in made:
                made[config.dtype] = make(config, dataset)
            return copy.deepcopy(made[config.dtype])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "model", copied)
        yield


def run(**options: Any) -> None:
    """On ``RANKS`` ranks."""
    config = Config(**{**SMALL, **options})
    run_on_threads(lambda world: train(config), RANKS)


def results(folder: Path) -> tuple[str, list[dict[str, Any]]]:
    """The digest and the metrics, without what depends on the time."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timed = ("seconds", "phases", "phases_max")
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "completed"
    return summary["parameters_digest"], [{k: v for k, v in one.items() if k not in timed} for one in lines]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", RUNS)
def test_every_algorithm_goes_on_bit_for_bit(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options, folder = RUNS[name], tmp_path / "run"
    run(**options, out=folder, save_every_steps=13, keep=9)
    whole = results(folder)
    assert [one["epoch"] for one in whole[1]] == [1, 2, 3]
    checkpoints = sorted((folder / "checkpoints").glob("step-*"))
    assert len(checkpoints) == 3, "after 13, 26 and, the last one, 30 steps"
    for checkpoint in checkpoints:
        kept = tmp_path / checkpoint.name
        shutil.copytree(folder, kept)
        run(**options, resume=str(kept / "checkpoints" / checkpoint.name), save_every_steps=13, keep=9)
        assert results(kept) == whole, f"from {checkpoint.name} on"


def test_stopping_after_each_epoch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(out=tmp_path / "whole")
    for epoch in (1, 2, 3):
        run(out=tmp_path / "parts", resume="auto", stop_after=1)
        summary = json.loads((tmp_path / "parts" / "summary.json").read_text())
        assert (summary["status"], summary["epochs"]) == ("completed" if epoch == 3 else "stopped", epoch)
        assert f"go on with --resume {tmp_path / 'parts'}" in capsys.readouterr().out or epoch == 3
    assert results(tmp_path / "parts") == results(tmp_path / "whole")
    run(out=tmp_path / "parts", resume="auto", stop_after=1)
    assert results(tmp_path / "parts") == results(tmp_path / "whole"), "a finished run stays as it is"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one epoch behind it."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    run(out=folder, stop_after=1)
    return folder


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"lr": 0.2}, "the checkpoint was written with --lr 0.1, not 0.2: take the same, or start a new run from its "),
        ({"algorithm": "dpsgd"}, "the checkpoint was written with --algorithm choco, not dpsgd: "),
        ({"topology": "complete"}, "the checkpoint was written with --topology ring, not complete: "),
        ({"batch_size": 24}, "the checkpoint was written with --batch-size 48, not 24: "),
        ({"partition": "sorted"}, "the checkpoint was written with --partition iid, not sorted: "),
        ({"schedule": "cosine"}, "the checkpoint was written with --schedule constant, not cosine: "),
        ({"clip_norm": 2.0}, "the checkpoint was written with --clip-norm None, not 2.0: "),
    ],
    ids=str,
)
def test_other_options_are_refused(stopped: Path, options: dict[str, Any], sentence: str) -> None:
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    with pytest.raises(UserError) as refusal:
        run(**options, resume=str(stopped))
    assert str(refusal.value).startswith(sentence)
    assert str(refusal.value).endswith(f"--resume-as {stopped}")
    assert before == {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}


def test_another_number_of_ranks_is_refused(stopped: Path) -> None:
    config = Config(**SMALL, resume=str(stopped))
    with pytest.raises(UserError, match=f"3 ranks.*--resume-as {stopped}"):
        run_on_threads(lambda world: train(config), 2)


def test_a_run_that_ended_before_its_first_checkpoint_begins_anew(tmp_path: Path) -> None:
    run(out=tmp_path / "run", epochs=2)
    kept = results(tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()
    run(out=tmp_path / "run", epochs=2, resume="auto", save_every=1)
    assert results(tmp_path / "run") == kept
    (tmp_path / "other").mkdir()
    shutil.copy(tmp_path / "run" / "config.yaml", tmp_path / "other")
    with pytest.raises(UserError, match=r"begun with --lr 0.1, not 0.3: take the same, or another --out"):
        run(out=tmp_path / "other", epochs=2, resume="auto", save_every=1, lr=0.3)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match="foreign is not empty"):
        run(out=tmp_path / "foreign", resume="auto", save_every=1)


def test_who_goes_on_from_an_older_checkpoint_stays_there(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(out=folder, epochs=2, save_every=1)
    older = folder / "checkpoints" / "step-00000010"
    run(resume=str(older), epochs=2, stop_after=1)
    assert (folder / "checkpoints" / "latest").read_text() == "step-00000020\n"
    point_at(older)
    run(resume=str(folder), epochs=2, stop_after=1)
    assert [one["epoch"] for one in results(folder)[1]] == [1, 2]


def test_a_schedule_has_its_length(stopped: Path, tmp_path: Path) -> None:
    run(out=tmp_path / "run", stop_after=1, schedule="cosine")
    with pytest.raises(UserError, match="the checkpoint was written with --epochs 3, not 4: "):
        run(resume=str(tmp_path / "run"), schedule="cosine", epochs=4)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("graph", "another", "written with a graph of other edges or weights: take the same"),
        ("collectives", "horovod", "written with sums by horovod, not none: take the same"),
        ("samples", [100, 20], r"written with \[100, 20\] training and test samples, not \[1438, 359\]: take the same"),
        (
            "config",
            None,
            "does not fit this run .*: take the --model that it was written with, or an earlier checkpoint",
        ),
    ],
)
def test_another_manifest_is_refused(stopped: Path, tmp_path: Path, name: str, value: Any, sentence: str) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    (path,) = (tmp_path / "run").glob("checkpoints/*/manifest.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    with pytest.raises(UserError, match=sentence):
        run(resume=str(tmp_path / "run"))


def test_a_run_cannot_end_before_its_checkpoint(tmp_path: Path) -> None:
    run(out=tmp_path / "run", epochs=2, save_every=1)
    with pytest.raises(UserError, match="has 2 epochs behind it: --epochs is the length of the whole run"):
        run(resume=str(tmp_path / "run"), epochs=1)


def test_the_end_of_an_epoch_is_kept_once(tmp_path: Path) -> None:
    run(out=tmp_path, epochs=1, save_every_steps=5)
    kept = sorted(path.name for path in (tmp_path / "checkpoints" / "step-00000010").iterdir())
    assert kept == ["manifest.json", "rank-0000.pt", "rank-0001.pt", "rank-0002.pt"]
    about = json.loads((tmp_path / "checkpoints" / "step-00000010" / "manifest.json").read_text())
    assert (about["epoch"], about["batch"]) == (1, 0)


def test_a_new_run_goes_on_in_its_schedule(stopped: Path, tmp_path: Path) -> None:
    config = Config(**SMALL, schedule="multistep", milestones="0.2,0.9", resume_as=stopped, out=tmp_path / "as")
    run_on_threads(lambda world: train(config), 2)
    _, lines = results(tmp_path / "as")
    assert [one["lr"] for one in lines] == pytest.approx([0.01, 0.001])


def test_a_constant_rate_may_run_longer(stopped: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    run(resume=str(folder), epochs=4)
    run(out=tmp_path / "whole", epochs=4)
    assert results(folder) == results(tmp_path / "whole")


@pytest.mark.parametrize("ranks", [1, 4])
def test_another_run_starts_from_the_averaged_model(stopped: Path, tmp_path: Path, ranks: int) -> None:
    def work(world: World) -> None:
        still = {"algorithm": "allreduce", "lr": 1e-30, "weight_decay": 0}
        train(Config(**SMALL, **still, resume_as=stopped, out=tmp_path / "as"))

    run_on_threads(work, ranks)
    _, lines = results(tmp_path / "as")
    (before,) = [json.loads(line) for line in (stopped / "metrics.jsonl").read_text().splitlines()]
    assert [one["epoch"] for one in lines] == [2, 3], "the epoch behind it counts"
    assert lines[0]["test_accuracy"] == before["test_accuracy"], "with a rate of nothing it stays the averaged model"
    assert lines[0]["step"] > 0
    saved = yaml.safe_load((tmp_path / "as" / "config.yaml").read_text())
    assert "resume_as" not in saved


def test_nothing_left_to_do_is_said(stopped: Path, tmp_path: Path) -> None:
    config = Config(**{**SMALL, "epochs": 1}, resume_as=stopped, out=tmp_path / "as")
    with pytest.raises(UserError, match=r"has 1 epoch behind it.*--epochs"):
        run_on_threads(lambda world: train(config), 2)
    assert not (tmp_path / "as").exists()


def test_dataclass_options_of_one_start_are_not_kept() -> None:
    config = Config(out=Path("x"), resume="auto", stop_after=3, data="mnist", download=True)
    assert not {"out", "resume", "resume_as", "stop_after", "download", "config"} & config.resolved().keys()
    assert dataclasses.asdict(config)["stop_after"] == 3
