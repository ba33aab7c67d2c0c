"""Speed, measured against a yardstick of the same run: a copy of the memory, raw mpi4py, Horovod."""
