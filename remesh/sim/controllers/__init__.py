"""The controllers of the simulated cluster: each watches the store, and reconciles one object at a time."""
