"""The search for gamma as a command: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mpidec import UserError
from mpidec.simulate import options, tune


def test_it_shows_what_was_tried_and_what_to_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tune.simulate(options.Tune(ranks=4, compressor="qsgd", bits=2, sizes=(300, 5), out=tmp_path / "out"))
    shown = capsys.readouterr().out
    records = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert [record["gamma"] for record in records][:3] == pytest.approx([1, 0.5**0.5, 0.5])
    assert not records[0]["stable"], "1 is too much for two bits"
    largest = next(record["gamma"] for record in records if record["stable"])
    assert records[0]["chosen_gamma"] == pytest.approx(0.5 * largest)
    assert records[0]["chosen_gamma"] > 10 * records[0]["guaranteed_gamma"]
    assert f"gamma {0.5 * largest:.3g} = 0.5 x {largest:.4g}" in shown
    assert (tmp_path / "out" / "tune.png").read_bytes().startswith(b"\x89PNG")


def test_the_margin_scales_the_answer(tmp_path: Path) -> None:
    chosen = []
    for margin in (1.0, 0.25):
        out = tmp_path / str(margin)
        tune.simulate(options.Tune(ranks=4, sizes=(50,), margin=margin, out=out))
        chosen.append(json.loads((out / "results.jsonl").read_text().splitlines()[0])["chosen_gamma"])
    assert chosen[0] == pytest.approx(4 * chosen[1])


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"margin": 0.0}, "--margin is a share of the largest stable value, 0.001 to 1: got 0.0"),
        ({"sizes": ()}, "--sizes are the entries of each layer"),
        ({"sizes": (4, 0)}, "--sizes are the entries of each layer"),
        ({"algorithm": "naive"}, "but naive stalls at every gamma"),
        ({"algorithm": "dpsgd"}, "does not work with the compressor sign"),
        ({"ratio": 0.1}, "--ratio belongs to the compressors top-k, random-k"),
        ({"topology": "social"}, "32 ranks"),
        ({"ranks": 0}, "--ranks must be at least 1 and at most 65,536: got 0"),
    ],
)
def test_wrong_options(wrong: dict[str, object], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        tune.simulate(options.Tune(out=tmp_path / "out", **wrong))
    assert not (tmp_path / "out").exists()
