"""Storms on virtual time: clients as populations, servers that drown, the law between them, the loop closed.

`engine.Simulation` runs one scenario once; `compare` runs it under several policies; `scenario_file` reads scenarios.
"""
