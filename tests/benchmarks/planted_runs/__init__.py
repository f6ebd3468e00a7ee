"""An examination of `check`: simulated training runs with planted causes, in every log format.

`python -m tests.benchmarks.planted_runs --seed 1` simulates runs at the level of groups and
responses, writes each with the keys of a framework, examines it and counts how often the first line
names the planted cause. Every seed is another examination.
"""
