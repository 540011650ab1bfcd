"""The law on virtual time: replay of recorded events (and, later, simulation and tuning)."""
