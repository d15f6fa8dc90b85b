"""Figures that anyone can take again: `make bench`, or `python -m benchmarks NAME`. No test asserts a time."""
