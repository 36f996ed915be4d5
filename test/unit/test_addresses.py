"""Which addresses are anybody's to reach, in every spelling; what the operator allows."""

import ipaddress
import socket

import pytest

from rq.errors import BadInput
from rq.outbound import addresses
from rq.outbound.addresses import Internal

INTERNAL = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.3.4",
    "172.31.255.255",
    "192.0.0.8",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
]
HOLDING_IPV4 = {
    "mapped": "::ffff:{}",
    "compatible": "::{}",
    "SIIT": "::ffff:0:{}",
    "NAT64": "64:ff9b::{}",
    "local NAT64": "64:ff9b:1::{}",
    "ISATAP": "2001:470:1f0b::5efe:{}",
    "ISATAP of a global address": "2001:470:1f0b:0:200:5efe:{}",
    "6to4": "2002:{hex}::1",
    "Teredo, its client": "2001:0:808:808::{inverted}",
    "Teredo, its server": "2001:0:{hex}::f7f7:f7f7",
}


def spelled(form, text):
    whole = int(ipaddress.IPv4Address(text))
    pair = "{:x}:{:x}".format
    inverted = whole ^ 0xFFFFFFFF
    return form.format(
        text,
        hex=pair(whole >> 16, whole & 0xFFFF),
        inverted=pair(inverted >> 16, inverted & 0xFFFF),
    )


@pytest.mark.parametrize("text", INTERNAL)
def test_an_internal_address_is_known(text):
    assert not addresses.is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("form", HOLDING_IPV4.values(), ids=HOLDING_IPV4)
@pytest.mark.parametrize("text", ["127.0.0.1", "10.1.2.3", "169.254.169.254"])
def test_an_internal_address_is_known_in_every_disguise(form, text):
    assert not addresses.is_public(ipaddress.ip_address(spelled(form, text)))


@pytest.mark.parametrize(
    "text",
    [
        "::",
        "::1",
        "fe80::1",
        "fe80::5efe:8.8.8.8",
        "fd00:ec2::254",
        "fec0::1",
        "ff02::1",
        "ff0e::1",
        "100::1",
        "2001:2::1",
        "2001:10::1",
        "2001:db8::1",
        "3fff::1",
        "5f00::1",
        "4000::1",
    ],
)
def test_an_internal_address_of_six_is_known(text):
    assert not addresses.is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize(
    "text",
    ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "172.32.0.1"],
)
def test_a_public_address_is_public(text):
    assert addresses.is_public(ipaddress.ip_address(text))


def find(host, *allow, port=80):
    found = addresses.find(host, port, addresses.allowed(allow))
    return {one[0] for _, one in found}


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "LOCALHOST.",
        "0x7f.1",
        "0177.0.0.1",
        "2130706433",
        "127.1",
        "0",
        "::1",
        "::ffff:0:127.0.0.1",
        "fe80::1%lo",
        "::ffff:127.0.0.1%1",
    ],
)
def test_a_host_of_internal_addresses_only_is_refused(host):
    with pytest.raises((Internal, socket.gaierror)):
        find(host)


@pytest.mark.parametrize(
    "allow",
    [
        "127.0.0.1",
        "127.0.0.0/8",
        "localhost",
        "Localhost.",
        "localhost:80",
        "127.0.0.1:80",
    ],
)
def test_what_is_allowed_may_be_asked(allow):
    assert "127.0.0.1" in find("localhost", allow)


def test_what_is_allowed_at_one_port_is_not_at_another():
    for allow in ("localhost:81", "127.0.0.1:81", "[::1]:81"):
        with pytest.raises(Internal, match="an internal address"):
            find("localhost", allow)


def test_of_a_host_only_the_addresses_that_are_allowed_are_used(monkeypatch):
    def two_faces(*_, **__):
        return [(socket.AF_INET, 1, 6, "", (ip, 80)) for ip in ("10.0.0.1", "8.8.8.8")]

    monkeypatch.setattr(socket, "getaddrinfo", two_faces)
    assert find("two.example") == {"8.8.8.8"}
    assert find("two.example", "10.0.0.0/8") == {"10.0.0.1", "8.8.8.8"}


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.1/8",
        "300.1.1.1",
        "10.0.0.0/99",
        "h:0",
        "h:99999",
        "h:x",
        "",
        "u@h",
        "a b",
    ],
)
def test_what_is_no_host_and_no_network_is_told(text):
    with pytest.raises(BadInput, match="allow: "):
        addresses.allowed([text])
