"""Settings for the tests of the pure modules."""

from hypothesis import settings

# No deadline: how long one example takes on a busy machine says nothing.
settings.register_profile("unit", deadline=None)
settings.load_profile("unit")
