"""Where a process, or a thread, stands in its job: launcher, device, and what may be handed to MPI."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch

from mpidec import UserError, World, init, world
from mpidec.launcher import Launch, launched
from mpidec.transport.mpi import gpu_aware
from mpidec.transport.solo import Solo
from mpidec.world import run_on_threads


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


def test_init_gives_each_thread_its_own_world(monkeypatch) -> None:
    process = World(Solo(), 0, 1, torch.device("cpu"))
    monkeypatch.setattr(world, "_joined", process)

    def work(here: World) -> World:
        assert init() is init(device="cpu") is init() is here
        assert (here.rank, here.local_rank) == (here.transport.rank, here.transport.rank)
        assert here.size == here.local_size == 3
        assert here.device == torch.device("cpu")
        return here

    assert [here.rank for here in run_on_threads(work, 3)] == [0, 1, 2]
    assert init() is process, "the world of the process is untouched"


def test_results_come_by_rank_from_threads_that_are_gone(monkeypatch) -> None:
    def run_and_linger(thread: threading.Thread, run=threading.Thread.run) -> None:
        run(thread)
        time.sleep(0.05)

    def work(here: World) -> tuple[int, str, int]:
        time.sleep(0.02 * (3 - here.rank))
        return here.rank, threading.current_thread().name, torch.get_num_threads()

    before, cores = threading.enumerate(), torch.get_num_threads()
    monkeypatch.setattr(threading.Thread, "run", run_and_linger)
    torch.set_num_threads(6)
    assert run_on_threads(work, 3) == [(0, "rank 0", 2), (1, "rank 1", 2), (2, "rank 2", 2)]
    assert set(threading.enumerate()) <= set(before)
    assert torch.get_num_threads() == 6
    torch.set_num_threads(cores)


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (lambda here: init(communicator=object()), r"a rank that is a thread has no MPI communicator: call init\(\)"),
        (lambda here: init(device="cuda"), "this rank has joined with the device cpu: it cannot change to 'cuda'"),
        (lambda here: run_on_threads(lambda other: None, 2), "a rank that is a thread cannot start others"),
        (lambda here: here.collectives("horovod"), "horovod cannot be used: it knows processes, and these ranks are"),
        (lambda here: here.collectives("gloo"), "gloo"),
    ],
)
def test_mistakes_inside(mistake: Any, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        run_on_threads(mistake, 2)


@pytest.mark.parametrize("size", [0, -1])
def test_no_ranks_at_all_are_refused(size: int) -> None:
    with pytest.raises(UserError, match=f"run_on_threads needs at least one rank: got {size}"):
        run_on_threads(lambda here: None, size)


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(UserError, match="unknown device 'abacus'"):
        run_on_threads(lambda here: None, 2, device="abacus")


def test_threads_sum_with_their_own_collectives() -> None:
    def work(here: World) -> bool:
        return here.collectives() is here.collectives("mpi") is here.transport

    assert run_on_threads(work, 2) == [True, True]


def test_a_run_may_follow_another_and_one_that_failed() -> None:
    def fail(here: World) -> None:
        raise OSError("disk full")

    for _ in range(3):
        with pytest.raises(OSError, match="disk full"):
            run_on_threads(fail, 2)
        assert run_on_threads(lambda here: here.rank, 2) == [0, 1]
