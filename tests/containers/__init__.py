"""The image and compose.yaml with a real Docker engine, which the tests start for themselves and end again."""
