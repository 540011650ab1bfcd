"""A study's result as plain values: for conditions, for machines (JSON), for the what-if table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sipguard.core.levels import State
from sipguard.lab.course import Course
from sipguard.lab.incidents import Incident
from sipguard.lab.study import Study

#: Of a result; each is 0 or more. refused_percent, dropped_percent: of the requests.
METRICS = (
    "requests",
    "allowed",
    "refused",
    "dropped",
    "refused_percent",
    "dropped_percent",
    "lcps_refused",
    "incidents",
    "peak_rps",
    "around_s",
    "critical_s",
    "damaged",
)

_NS_PER_MS = 1_000_000


def metrics_of(course: Course, damaged: int = 0) -> dict[str, float]:
    """A course's values by METRICS; in shadow mode what would have been. damaged: files or lines not wholly read."""
    allowed, refused, dropped = course.verdicts
    requests = allowed + refused + dropped
    return {
        "requests": requests,
        "allowed": allowed,
        "refused": refused,
        "dropped": dropped,
        "refused_percent": 100 * refused / requests if requests else 0.0,
        "dropped_percent": 100 * dropped / requests if requests else 0.0,
        "lcps_refused": course.lcps_refused,
        "incidents": course.incidents.total,
        "peak_rps": course.peak_rps,
        "around_s": course.state_ns[State.AROUND] / 1e9,
        "critical_s": course.state_ns[State.CRITICAL] / 1e9,
        "damaged": damaged,
    }


def document(
    study: Study, about: Mapping[str, Any], damages: Sequence[str] = (), warnings: Sequence[str] = ()
) -> dict[str, Any]:
    """The whole result for machines. about: of the input, put in front. Times in ms since the origin."""
    return {
        "format": "sipguard-replay/1",
        **about,
        "origin_unix_ns": study.origin_ns or None,
        "end_ms": study.last_ns / _NS_PER_MS,
        "before_origin": study.early,
        "times_back": {"requests": study.back, "most_ms": study.back_ns / _NS_PER_MS},
        "damages": list(damages),
        "warnings": list(warnings),
        "sets": [_set(course, len(damages), detailed=not i) for i, course in enumerate(study.courses)],
    }


def varied(courses: Sequence[Course]) -> list[str]:
    """The names of the settings in which courses differ: parameters, then shed."""
    names = [
        name
        for name in courses[0].parameters.as_dict()
        if len({course.parameters.as_dict()[name] for course in courses}) > 1
    ]
    return names + (["shed"] if len({course.policy.shed for course in courses}) > 1 else [])


def setting(course: Course, name: str) -> int | str:
    """A setting by its name as in `varied`."""
    return course.policy.shed if name == "shed" else course.parameters.as_dict()[name]


def _set(course: Course, damaged: int, *, detailed: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "parameters": course.parameters.as_dict(),
        "shed": course.policy.shed,
        "shadow": not course.policy.enforce,
        "state": course.state.value,
        **metrics_of(course, damaged),
        "normal_s": course.state_ns[State.NORMAL] / 1e9,
        "methods": [share._asdict() for share in course.methods.top()],
        "incident_list": [_incident(incident) for incident in course.incidents.all()],
    }
    if detailed:
        sources = course.sources
        assert sources is not None
        found["sources"] = [share._asdict() for share in sources.top()]
        found["sources_exact"] = sources.exact
        found["timeline"] = _timeline(course)
    return found


def _timeline(course: Course) -> dict[str, Any]:
    timeline = course.timeline
    return {
        "bucket_ms": timeline.width_ns / _NS_PER_MS,
        "columns": ["start_ms", "allow", "reject", "drop", "peak_rps", "state_after"],
        "rows": [
            [b.start_ns / _NS_PER_MS, b.allow, b.reject, b.drop, b.peak_rps, b.state.value]
            for b in timeline.buckets()
            if b.allow or b.reject or b.drop or b.state is not State.NORMAL
        ],
    }


def _incident(incident: Incident) -> dict[str, Any]:
    return {
        "from_ms": incident.start_ns / _NS_PER_MS,
        "to_ms": None if incident.end_ns is None else incident.end_ns / _NS_PER_MS,
        "peak_rps": incident.peak_rps,
        "refused": incident.refused,
        "dropped": incident.dropped,
        "worst": incident.worst.value,
    }
