"""Tests of remesh."""
