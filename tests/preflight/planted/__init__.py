"""Inputs of runs with a planted fault, and healthy ones, made on the spot.

They are written to disk in the layouts of real data sets and examined with the whole of
`run_preflight`. `make planted-preflight` prints which faults are named.
"""
