"""Bytes between ranks."""

COLLECTIVES = ("auto", "horovod", "mpi")  # what a user may choose; importable without torch
