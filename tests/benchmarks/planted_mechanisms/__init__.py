"""A second examination of `check`: runs of a small policy that is really trained.

`python -m tests.benchmarks.planted_mechanisms --seed 1` trains softmax policies by policy gradient
on problems of several reasoning steps, breaks the runs by mechanisms that occur in practice, writes
each run with the keys of a framework and counts how often the first line of `check` names the
mechanism. All quantities are computed from the responses, the log-probabilities and the gradients
of the run, so they agree with each other by construction.
"""
