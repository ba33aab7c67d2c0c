"""Where a process stands in its job: launcher, device, and what may be handed to MPI."""

from __future__ import annotations

import pytest
import torch

from mpidec import UserError, world
from mpidec.launcher import Launch, launched
from mpidec.transport.mpi import gpu_aware
from mpidec.transport.solo import Solo


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"SLURM_PROCID": "0"}, None),
        (
            {
                "OMPI_COMM_WORLD_RANK": "3",
                "OMPI_COMM_WORLD_SIZE": "4",
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            },
            Launch("Open MPI's mpirun", 3, 4, 1, 2),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, Launch("a PMI launcher (MPICH, Intel MPI)", 1, 2, 1, 2)),
        (
            {
                "SLURM_PROCID": "9",
                "SLURM_STEP_NUM_TASKS": "16",
                "SLURM_LOCALID": "1",
                "SLURM_STEP_TASKS_PER_NODE": "8(x2)",
            },
            Launch("Slurm's srun", 9, 16, 1, 8),
        ),
    ],
)
def test_launchers(environ: dict[str, str], expected: Launch | None) -> None:
    assert launched(environ) == expected


@pytest.mark.parametrize(("value", "expected"), [(None, False), ("auto", False), ("0", False), ("1", True)])
def test_device_buffers_go_to_mpi_only_where_asked(monkeypatch, value: str | None, expected: bool) -> None:
    monkeypatch.delenv("MPIDEC_GPU_AWARE", raising=False)
    if value is not None:
        monkeypatch.setenv("MPIDEC_GPU_AWARE", value)
    assert gpu_aware() is expected


def test_another_word_for_it_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("MPIDEC_GPU_AWARE", "yes")
    with pytest.raises(UserError, match="MPIDEC_GPU_AWARE is auto, 0 or 1: got 'yes'"):
        gpu_aware()


class TwoOfThem(Solo):
    """Two ranks that see the same GPU."""

    def all_gather_objects(self, value: object) -> list[object]:
        return [value, value]


@pytest.mark.parametrize(
    ("local_rank", "name", "index"), [(0, "auto", 0), (1, "auto", 1), (2, "auto", 0), (3, "cuda", 1), (3, "cuda:0", 0)]
)
def test_the_gpu_of_a_local_rank(monkeypatch, local_rank: int, name: str, index: int) -> None:
    """The choice alone, on two imagined GPUs."""
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: type("Properties", (), {"uuid": "one"}))
    launch = Launch("a test", local_rank, 4, local_rank, 4)
    assert world._device(name, launch, Solo()) == torch.device("cuda", index)
    assert chosen == [torch.device("cuda", index)]
    with pytest.warns(UserWarning, match="up to 2 ranks share one GPU"):
        world._device(name, launch, TwoOfThem())
    with pytest.raises(UserError, match="device 'cuda:2' is not here: torch sees 2 GPUs"):
        world._device("cuda:2", launch, Solo())


def test_devices_that_are_not_there(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    launch = Launch("a test", 0, 1, 0, 1)
    assert world._device("auto", launch, Solo()) == torch.device("cpu")
    for name in ("cuda", "cuda:0", "meta"):
        with pytest.raises(UserError, match="is not here: torch"):
            world._device(name, launch, Solo())
