"""Many ranks as the rows of one matrix, in one process: ``python -m mpidec.simulate``."""
