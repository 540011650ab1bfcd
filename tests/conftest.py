"""For all tests: hypothesis measures no time here (machines are noisy) and leaves no database behind."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "sipguard",
    deadline=None,
    database=None,
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
)
settings.load_profile("sipguard")
