"""Settings from a TOML file and from flags: SPEC §1 P1 and issue "all problems of a file listed at once with their key"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sipguard import Parameters, Policy
from sipguard.manage.config import (
    KEYS,
    Endpoint,
    Problem,
    RetryAfter,
    Settings,
    SettingsError,
    UpstreamAddress,
    load_settings,
)
from sipguard.manage.settings import default_state_dir


def written(path: Path, text: str) -> Path:
    file = path / "sipguard.toml"
    file.write_text(text, encoding="utf-8")
    return file


def problems_of(toml: Path | None = None, **flags: object) -> list[tuple[str, object]]:
    with pytest.raises(SettingsError) as caught:
        load_settings(toml, flags)
    return [(problem.key, problem.value) for problem in caught.value.problems]


def test_no_file_and_no_flag_give_the_documented_defaults() -> None:
    """SPEC P2 and the flags' documented defaults."""
    settings = load_settings()
    assert settings == Settings()
    assert settings.parameters == Parameters(LC=1000, LCDM="denial_to_drop", LCPS=500, LRC=15, PC=50, TR=200)
    assert settings.policy == Policy()
    assert settings.listen == (Endpoint("udp", "127.0.0.1", 5060), Endpoint("tcp", "127.0.0.1", 5060))
    assert (settings.upstream, settings.inside, settings.admin) == ((), (), None)
    assert settings.retry_after == RetryAfter(10, 30)
    assert settings.retry_after_methods == ("REGISTER", "SUBSCRIBE")
    assert (settings.record_route, settings.path, settings.reply_budget, settings.kernel_drop) == (
        True,
        True,
        False,
        True,
    )
    assert (settings.server, settings.source_header) == ("sipguard", "X-Guard-Source")
    assert (settings.max_connections, settings.max_body, settings.receive_buffer) == (10_000, 65_536, 4_194_304)
    assert (settings.idle_timeout_s, settings.partial_timeout_s, settings.uas_ring_ms) == (600, 10, 200)


WHOLE = """
lc = 100
lcdm = "drop_only"
lcps = 50
lrc = 3
pc = 4
tr = 100
shed = "excess"
shadow = true
refuse_methods = ["INVITE"]
drop_methods = ["REGISTER", "INVITE"]
listen = ["udp:192.0.2.1:5060,advertise=198.51.100.1", "tcp:[2001:db8::1]:5060"]
upstream = ["udp:192.0.2.10:5060,weight=3", "tcp:192.0.2.10:5060"]
inside = ["udp:192.0.2.1:5070", "tcp:192.0.2.1:5070"]
admin = "127.0.0.1:8060"
transactions = "one_verdict"
exempt_uris = ["urn:service:sos", "sip:112@"]
server = ""
source_header = ""
record_route = false
path = false
retry_after = ""
retry_after_methods = []
reply_budget = true
kernel_drop = false
receive_buffer = 65536
stream_drop = "reject"
max_connections = 5
max_body = 1000
idle_timeout_s = 30
partial_timeout_s = 0.5
state_dir = "/var/tmp/guard"
uas_ring_ms = 0
"""


def test_every_key_of_a_file_is_read(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path, WHOLE))
    assert settings.parameters.as_dict() == {"LC": 100, "LCDM": "drop_only", "LCPS": 50, "LRC": 3, "PC": 4, "TR": 100}
    assert settings.policy == Policy("excess", False, ["INVITE"], ["REGISTER", "INVITE"])
    assert settings.listen[0].advertise_host == "198.51.100.1"
    assert settings.upstream == (
        UpstreamAddress("udp", "192.0.2.10", 5060, 3),
        UpstreamAddress("tcp", "192.0.2.10", 5060),
    )
    assert settings.inside == (Endpoint("udp", "192.0.2.1", 5070), Endpoint("tcp", "192.0.2.1", 5070))
    assert str(settings.admin) == "127.0.0.1:8060"
    assert settings.exempt_uris == ("urn:service:sos", "sip:112@")
    assert (settings.server, settings.source_header, settings.retry_after) == ("", "", None)
    assert settings.retry_after_methods == ()
    assert settings.transactions == "one_verdict"
    assert (settings.record_route, settings.path, settings.reply_budget, settings.kernel_drop) == (
        False,
        False,
        True,
        False,
    )
    assert (settings.stream_drop, settings.partial_timeout_s) == ("reject", 0.5)
    assert settings.state_path == Path("/var/tmp/guard")
    assert {line.split(" = ")[0] for line in WHOLE.split("\n") if line} == set(KEYS)


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        load_settings().max_body = 1


def test_flags_win_over_the_file_and_none_is_not_given(tmp_path: Path) -> None:
    file = written(tmp_path, 'lc = 100\nlrc = 3\nlisten = ["udp:127.0.0.1:1", "udp:127.0.0.1:2"]\nshadow = true\n')
    settings = load_settings(file, {"lc": 200, "lrc": None, "listen": ["udp:127.0.0.1:9"], "shadow": False})
    assert (settings.parameters.LC, settings.parameters.LRC) == (200, 3)
    assert settings.listen == (Endpoint("udp", "127.0.0.1", 9),)
    assert settings.policy.enforce


def test_a_flag_repairs_a_wrong_value_of_the_file(tmp_path: Path) -> None:
    assert load_settings(written(tmp_path, "lc = 0\n"), {"lc": 5}).parameters.LC == 5


def test_parameter_names_come_in_upper_and_lower_case_but_once(tmp_path: Path) -> None:
    """SPEC P1."""
    assert load_settings(written(tmp_path, "LC = 100\ntr = 250\n")).parameters.LC == 100
    assert problems_of(written(tmp_path, "LC = 100\nlc = 100\n")) == [("lc", 100)]
    assert problems_of(written(tmp_path, "Lc = 100\n")) == [("Lc", 100)]
    assert load_settings(written(tmp_path, "LC = 100\n"), {"lc": 200}).parameters.LC == 200


WRONG = [
    ("lc", 0),
    ("lc", 10001),
    ("lc", "100"),
    ("lc", 1.0),
    ("lc", True),
    ("lcps", 0),
    ("lrc", 101),
    ("pc", 10001),
    ("tr", 99),
    ("tr", 1001),
    ("lcdm", "denial"),
    ("shed", "some"),
    ("shed", ["all"]),
    ("shadow", "yes"),
    ("transactions", "one"),
    ("transactions", True),
    ("shadow", 1),
    ("refuse_methods", "INVITE"),
    ("refuse_methods", 5),
    ("record_route", "true"),
    ("record_route", 1),
    ("server", "a\r\nX: y"),
    ("server", " sipguard"),
    ("server", "sipgüard"),
    ("server", "x" * 65),
    ("server", 5),
    ("source_header", "Via"),
    ("source_header", "call-id"),
    ("source_header", "v"),
    ("source_header", "X Guard"),
    ("source_header", "X-Guard:"),
    ("source_header", "X-Guard\r\nEvil: 1"),
    ("retry_after", "0"),
    ("retry_after", 0),
    ("retry_after", "0-30"),
    ("retry_after", "30-10"),
    ("retry_after", "10-3601"),
    ("retry_after", "10-20-30"),
    ("retry_after", "-5"),
    ("retry_after", "ten"),
    ("retry_after", True),
    ("retry_after_methods", "REGISTER"),
    ("receive_buffer", 0),
    ("receive_buffer", "4M"),
    ("stream_drop", "close"),
    ("max_connections", 0),
    ("max_body", -1),
    ("max_body", True),
    ("idle_timeout_s", 0),
    ("idle_timeout_s", "600"),
    ("idle_timeout_s", float("inf")),
    ("partial_timeout_s", float("nan")),
    ("state_dir", ""),
    ("state_dir", 3),
    ("uas_ring_ms", 60001),
    ("listen", []),
    ("listen", "udp:127.0.0.1:5060"),
    ("upstream", "udp:127.0.0.1:5080"),
    ("admin", "8060"),
    ("exempt_uris", "sip:"),
]


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_a_wrong_value_is_named_with_what_is_allowed(key: str, value: object) -> None:
    """SPEC P1: the error names the setting, the value and the range; nothing is clamped."""
    with pytest.raises(SettingsError) as caught:
        load_settings(None, {key: value})
    (problem,) = caught.value.problems
    assert problem.key == key
    assert problem.value is value
    assert str(problem).startswith(f"--{key.replace('_', '-')} = {value!r}: allowed is ")
    assert len(problem.allowed) > 5


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("refuse_methods", "IN VITE"),
        ("drop_methods", ""),
        ("drop_methods", 5),
        ("retry_after_methods", "REGISTER,"),
        ("exempt_uris", ""),
        ("exempt_uris", "sip: 112"),
        ("exempt_uris", "sip:112\r\n"),
        ("exempt_uris", "sip:ü"),
        ("exempt_uris", "x" * 129),
        ("listen", "udp:localhost:5060"),
        ("upstream", "udp:127.0.0.1:5080,weight=0"),
        ("inside", "udp:127.0.0.1"),
    ],
)
def test_the_wrong_item_of_a_list_is_named(key: str, value: object) -> None:
    good: dict[str, Any] = {
        "listen": ["udp:127.0.0.1:1"],
        "upstream": ["udp:127.0.0.1:2"],
        "inside": ["udp:127.0.0.1:3"],
    }
    items = [*good.get(key, ["INVITE"]), value]
    assert problems_of(**{**good, key: items}) == [(key, value)]


def test_all_problems_of_a_file_and_of_the_flags_come_at_once(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        'lc = 0\ntr = 5\nshed = "x"\nretry_aftr = "5"\nserver = "\\n"\nadmin = "x"\nmax_body = -1\n'
        'listen = ["udp:127.0.0.1:5060", "sctp:127.0.0.1:5060"]\nupstream = ["udp:127.0.0.1:5060"]\n[guard]\nx = 1\n',
    )
    found = problems_of(file, lcps=0, drop_methods=["A B"])
    assert sorted(key for key, _ in found) == sorted(
        [
            "retry_aftr",
            "guard",
            "lc",
            "lcps",
            "tr",
            "shed",
            "drop_methods",
            "server",
            "admin",
            "max_body",
            "listen",
            "upstream",
        ]
    )


def test_an_unknown_key_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(written(tmp_path, "retry_aftr = 5\n"))
    (problem,) = caught.value.problems
    assert "nearest: retry_after" in problem.allowed
    assert str(problem).startswith("retry_aftr = 5: allowed is one of the keys lc, ")


@pytest.mark.parametrize("key", ["parameters", "policy", "config", "enforce"])
def test_inner_names_are_no_keys(tmp_path: Path, key: str) -> None:
    assert problems_of(written(tmp_path, f"{key} = true\n")) == [(key, True)]


def test_a_file_that_cannot_be_read_or_is_no_toml_is_a_problem(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    assert problems_of(missing, lc=0) == [("config", str(missing)), ("lc", 0)]
    broken = written(tmp_path, "lc = \n")
    assert problems_of(broken) == [("config", str(broken))]
    broken.write_bytes(b"lc = 5 # \xff\n")
    assert problems_of(broken) == [("config", str(broken))]
    assert problems_of(tmp_path) == [("config", str(tmp_path))]


class TestBetweenKeys:
    """Contradictions are errors, not warnings (DESIGN §2)."""

    def test_no_address_is_taken_twice(self) -> None:
        twice = "udp:127.0.0.1:5060"
        assert problems_of(listen=[twice, twice]) == [("listen", twice)]
        server = ["udp:192.0.2.10:5060"]
        assert problems_of(listen=[twice], inside=[twice], upstream=server) == [("inside", twice)]
        assert problems_of(listen=["tcp:127.0.0.1:8060"], admin="127.0.0.1:8060") == [("admin", "127.0.0.1:8060")]
        assert len(load_settings(None, {"listen": ["udp:127.0.0.1:0", "udp:127.0.0.1:0"]}).listen) == 2
        assert len(load_settings(None, {"listen": [twice, "tcp:127.0.0.1:5060"]}).listen) == 2

    def test_a_wildcard_takes_every_address_of_its_family(self) -> None:
        both = ["udp:0.0.0.0:5060", "udp:127.0.0.1:5060"]
        assert problems_of(listen=both) == [("listen", both[1])]
        assert problems_of(listen=["tcp:0.0.0.0:8060"], admin="127.0.0.1:8060") == [("admin", "127.0.0.1:8060")]
        assert len(load_settings(None, {"listen": ["udp:0.0.0.0:5060", "udp:[::]:5060"]}).listen) == 2

    def test_an_inside_socket_leads_to_the_upstreams_and_back(self) -> None:
        server, six = "udp:192.0.2.10:5060", "udp:[2001:db8::1]:5060"
        assert problems_of(inside=["udp:127.0.0.1:5070"]) == [("inside", ["udp:127.0.0.1:5070"])]
        assert problems_of(inside=["udp:0.0.0.0:5070"], upstream=[server]) == [("inside", "udp:0.0.0.0:5070")]
        assert problems_of(inside=["tcp:192.0.2.1:0"], upstream=[server]) == [("upstream", server)]
        assert problems_of(inside=["udp:192.0.2.1:0"], upstream=[server, six]) == [("upstream", six)]
        wildcard = "udp:0.0.0.0:5070,advertise=192.0.2.1"
        assert str(load_settings(None, {"inside": [wildcard], "upstream": [server]}).inside[0]) == wildcard

    def test_an_upstream_stands_once(self) -> None:
        server = "udp:192.0.2.10:5060"
        assert problems_of(upstream=[server, server + ",weight=2"]) == [("upstream", server + ",weight=2")]

    @pytest.mark.parametrize(
        ("listen", "upstream"),
        [
            ("udp:127.0.0.1:5060", "udp:127.0.0.1:5060"),
            ("udp:0.0.0.0:5060", "udp:127.0.0.1:5060"),
            ("udp:[::]:5060", "udp:[::1]:5060"),
        ],
    )
    def test_the_guard_is_not_its_own_upstream(self, listen: str, upstream: str) -> None:
        assert problems_of(listen=[listen], upstream=[upstream]) == [("upstream", upstream)]

    def test_a_server_beside_the_guard_is_an_upstream(self) -> None:
        for listen, upstream in (
            ("udp:0.0.0.0:5060", "udp:192.0.2.10:5060"),
            ("udp:127.0.0.1:5060", "udp:127.0.0.1:5080"),
            ("udp:[::]:5060", "udp:127.0.0.1:5060"),
        ):
            assert str(load_settings(None, {"listen": [listen], "upstream": [upstream]}).upstream[0]) == upstream

    def test_upstreams_of_no_listening_transport_protect_nothing(self) -> None:
        server = "tcp:192.0.2.10:5060"
        assert problems_of(listen=["udp:127.0.0.1:5060"], upstream=[server]) == [("upstream", [server])]
        assert load_settings(None, {"upstream": [server]}).upstream[0].transport == "tcp"


def test_the_state_directory_follows_systemd_then_the_user() -> None:
    assert default_state_dir({"STATE_DIRECTORY": "/var/lib/a:/var/lib/b"}, 1000) == Path("/var/lib/a")
    assert default_state_dir({}, 0) == Path("/var/lib/sipguard")
    assert default_state_dir({}, 1000) == Path("~/.local/state/sipguard").expanduser()
    assert load_settings(None, {"state_dir": "~/guard"}).state_path == Path("~/guard").expanduser()


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=12), anything, max_size=6))
def test_whatever_stands_in_a_file_is_settings_or_problems(values: dict[str, object]) -> None:
    """No value of any type raises anything but SettingsError, and every problem has a key that was given."""
    problems: tuple[Problem, ...] = ()
    try:
        settings = load_settings(None, values)
    except SettingsError as error:
        problems = error.problems
    else:
        assert isinstance(settings, Settings)
        return
    assert problems
    assert {problem.key for problem in problems} <= set(values) | {key.lower() for key in values}
    assert all(" = " in str(problem) and ": allowed is " in str(problem) for problem in problems)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("lc = 1" + "0" * 5000, "a TOML file (Exceeds the limit"),
        ("x = " + "[" * 100_000, "a TOML file (nested too deeply)"),
        ("lc = 0x" + "f" * 4000, "an integer 1 … 10000"),
    ],
)
def test_a_file_that_python_itself_stumbles_over_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(written(tmp_path, text))
    assert told in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_an_endless_file_is_not_read_to_its_end() -> None:
    with pytest.raises(SettingsError, match="more than 16777216 bytes"):
        load_settings(Path("/dev/zero"))
