"""The same scenarios on every test bed: what they pin down, remesh is built on."""
