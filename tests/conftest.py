"""The whole suite runs with the plugin that knows about ranks."""

from hypothesis import settings

pytest_plugins = ["support.ranks"]

# A crowded machine, or four ranks at once, is no reason to call an example slow.
settings.register_profile("mpidec", deadline=None)
settings.load_profile("mpidec")
