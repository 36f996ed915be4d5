"""Who is let in without a login: users of this machine, by name, and nobody else."""

from __future__ import annotations

import doctest
import os

import pytest

from rq.access import gate, target
from rq.access.gate import ANYBODY, Asker, Gate
from rq.access.roles import Principal, Role
from rq.config.settings import RootConfig
from rq.errors import BadConfig, NotKnown, NotPermitted, WrongHost

OWN, OTHER = 4321, 4322
AUTH = {"users": {"ann": "secret"}}


def asker(**facts):
    plain = {"address": "127.0.0.1", "host": "localhost", "uid": OWN}
    return Asker(**{**plain, "forwarded": False, **facts})


def gate_of(**settings):
    return Gate(RootConfig(**settings), OWN)


def test_rqs_own_user_and_root_are_let_in():
    for uid in (OWN, 0):
        assert gate_of().admit(asker(uid=uid)).role is Role.ADMIN
    assert gate_of().admit(asker(uid=0)).name == "root"
    nameless = gate_of().admit(asker(uid=OWN))
    assert (nameless.name, nameless.user) == (
        f"uid {OWN}",
        f"uid:{OWN}",
    )  # as at a socket


def test_another_user_is_not_and_reads_what_to_do():
    with pytest.raises(NotPermitted, match=r"uid 4322 .* local_users"):
        gate_of().admit(asker(uid=OTHER))


def test_users_and_groups_that_are_named_are_let_in_with_their_role():
    rules = gate_of(local_users={str(OTHER): "viewer", "daemon": "operator"})
    assert rules.admit(asker(uid=OTHER)).role is Role.VIEWER
    daemon = Principal(name="daemon", role=Role.OPERATOR, of="daemon")
    assert rules.admit(asker(uid=1)) == daemon
    rules = gate_of(local_groups={"daemon": "producer"}, local_users={"1": "viewer"})
    assert rules.admit(asker(uid=1)).role is Role.PRODUCER


@pytest.mark.parametrize("users", ["producer", "worker"])
def test_of_two_roles_of_which_none_covers_the_other_the_user_s_own_counts(users):
    group = {"producer": "worker", "worker": "producer"}[users]
    rules = gate_of(local_groups={"daemon": group}, local_users={"1": users})
    assert rules.admit(asker(uid=1)).role is Role(users)


@pytest.mark.parametrize(
    "settings",
    [
        {"local_users": {"no-such-user": "admin"}},
        {"local_groups": {"no-such-group": "admin"}},
        {"local_users": {"daemon": "boss"}},
        {"allowed_ips": ("1.2.3",)},
    ],
)
def test_a_user_group_or_role_that_is_none_is_refused_at_the_start(settings):
    with pytest.raises(BadConfig, match=next(iter(settings))):
        gate_of(**settings)


def test_whom_the_kernel_does_not_name_needs_a_login():
    with pytest.raises(NotKnown, match="token"):
        gate_of().admit(asker(uid=None))


def test_what_a_proxy_passes_on_is_not_the_proxys_own():
    with pytest.raises(NotKnown, match="proxy"):
        gate_of().admit(asker(uid=0, forwarded=True))
    for header in (
        "forwarded", "via", "x-forwarded-for", "x-forwarded-proto", "x-real-ip",
    ):  # fmt: skip
        assert gate.is_forwarded(["host", header])
    assert not gate.is_forwarded(["host", "accept", "authorization", "x-format"])


def test_where_there_are_logins_nobody_comes_in_without():
    for uid in (OWN, 0, OTHER, None):
        for open_too in (False, True):
            rules = gate_of(basic_auth=AUTH, open_without_auth=open_too)
            with pytest.raises(NotKnown):
                rules.admit(asker(uid=uid))


def test_an_open_installation_takes_anybody_but_knows_its_own():
    rules = gate_of(open_without_auth=True)
    anybody = Principal(name=ANYBODY, role=Role.ADMIN)
    for facts in ({"uid": None}, {"uid": OTHER}, {"uid": 0, "forwarded": True}):
        assert rules.admit(asker(**facts)) == anybody
    assert rules.admit(asker(uid=0)).name == "root"


def test_a_name_that_is_not_ours_is_refused():
    for rules in (gate_of(host="rq.example"), gate_of(open_without_auth=True)):
        with pytest.raises(WrongHost):
            rules.admit(asker(host="evil.example"))
    rules = gate_of(host="rq.example")
    for host in (None, "rq.example:80", "RQ.example", "[::1]:3333", "127.0.0.1"):
        rules.admit(asker(host=host))


def test_addresses_that_are_left_out_are_refused_whoever_asks():
    rules = gate_of(allowed_ips=("192.0.2.0/24",))
    for address in ("127.0.0.1", "192.0.3.1", "", "::1"):
        with pytest.raises(NotPermitted):
            rules.check_address(asker(address=address))
    for address in ("192.0.2.7", "::ffff:192.0.2.7"):
        rules.check_address(asker(address=address))


def test_this_process_may_ask_itself():
    assert Gate(RootConfig(), os.getuid()).admit(asker(uid=os.getuid()))


def test_a_limited_principal_sees_what_its_patterns_name():
    ann = Principal(name="ann", role=Role.VIEWER, queues=("mail-*", "x"))
    assert [ann.sees(name) for name in ("mail-1", "x", "mail", "xy")] == [1, 1, 0, 0]
    assert ann.is_limited
    assert not Principal(name="bob", role=Role.VIEWER).is_limited


@pytest.mark.parametrize("module", [gate, target])
def test_the_examples_hold(module):
    tried = doctest.testmod(module)
    assert tried.failed == 0


@pytest.mark.parametrize(
    "raw",
    [b"//x", b"x", b"", b"*", b"/%2fx", b"/a//b", b"/a/../b", b"/a/./b", b"/a/..",
     b"/a\\b", b"/a%5cb", b"/a%00", b"/a%0ab", b"/a%7f", b"http://h/x", b"/a%2Fb"],
)  # fmt: skip
def test_a_target_that_could_be_read_in_two_ways_is_not_plain(raw):
    assert not target.is_plain(raw)
