"""Configuration, the admin pages, metrics and the log of state changes. Nothing here can delay a cycle."""
