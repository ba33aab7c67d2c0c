"""A trace of all ranks: their clocks aligned, their spans as events, and the file."""
