"""`python -m tests.manifests`: write the chart's schema and the plain manifests anew."""

from tests.manifests import generate
from tests.manifests.tools import ROOT

for path in generate.write():
    print(path.relative_to(ROOT))
