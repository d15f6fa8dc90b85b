"""What `python -m tests.cluster` needs beside remesh itself, asked for before anything imports it."""

import sys
from importlib.util import find_spec

if sys.argv[0] == "-m" and find_spec("cryptography") is None:  # so it is while Python looks for the module to run
    sys.exit("tests.cluster: cryptography is not installed; get what developing takes: pip install -e '.[dev]'")
