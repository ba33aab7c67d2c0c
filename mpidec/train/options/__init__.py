"""The options of a training run by theme: the rule, the work, the local step, and what is kept."""
