"""remesh repairs what a sidecar injector's outage left broken.

The core used by every process. Start reading in `remesh.decide`.
"""

__version__ = "0.1.0"
