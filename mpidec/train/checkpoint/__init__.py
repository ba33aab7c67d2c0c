"""Checkpoints of a job: one file for each rank, a manifest, and a pointer to the latest; and commands to look at them.

A run folder holds::

    checkpoints/latest                          the name of the newest checkpoint, written last
    checkpoints/step-00000330/manifest.json     what it is of, and the sizes and digests of its files
    checkpoints/step-00000330/rank-0003.pt      the state of one rank, by that rank alone

A checkpoint without a manifest was never finished. Where the ranks share no file system each of them keeps its file on
its own host, and rank 0 the manifest and the pointer.
"""
