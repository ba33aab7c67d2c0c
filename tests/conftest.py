"""The whole suite runs with the plugin that knows about ranks."""

pytest_plugins = ["support.ranks"]
