"""The main job: ``mpirun -np 16 python -m mpidec.train``."""
