"""The search for parameters: candidates tried on recorded or simulated load, the front, one recommended and why."""
