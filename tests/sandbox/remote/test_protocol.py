"""Whatever arrives at the socket of the service is a request of this version, or is refused."""

import json
import os
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sandbox.command import Command, Limits, Tier
from gateway.sandbox.remote.protocol import (
    DESCRIPTORS,
    BadRequest,
    Peer,
    WorkshopReply,
    WorkshopRequest,
    from_elsewhere,
    pack_request,
    parse_reply,
    parse_request,
    peer_of,
)

COMMAND = Command(
    ("sh", "-c", "true"),
    "/somewhere",
    Tier.LANDLOCK,
    6,
    "notes",
    {"LANG": "C"},
    ("AGENTS.md",),
    ("uploads",),
    ("/etc/secret",),
    "/tmp/s",
    Limits(seconds=2.5, memory=1000),
    "127.9.8.7:20000",
    "/tmp/t",
)
ASKED = WorkshopRequest(COMMAND)


@pytest.mark.parametrize(
    ("asked", "archives"),
    [(ASKED, 0), (WorkshopRequest(COMMAND, "/tmp/own"), 1), (WorkshopRequest(COMMAND, "/tmp/own", True), 0)],
)
def test_a_command_arrives_without_what_the_service_knows_itself(asked: WorkshopRequest, archives: int) -> None:
    found = parse_request(pack_request(asked), DESCRIPTORS + archives)
    known = replace(COMMAND, workspace="", tier=Tier.CONTAINER, landlock=0, scratch="", temporary="")
    assert found == replace(asked, command=known)
    assert parse_request(pack_request(None), 0) is None


def changed(**values: object) -> bytes:
    body = json.loads(pack_request(ASKED))
    body["command"] |= values
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b'{"version": 1, "command": null}',
        b'{"version": 2, "command": 5}',
        b'{"version": 2, "command": {}, "folder": "", "apart": false}',
        pack_request(WorkshopRequest(COMMAND, "", True)),
        pack_request(WorkshopRequest(COMMAND, "/etc/own", True)),
        pack_request(WorkshopRequest(COMMAND, "/tmp/../etc", True)),
        pack_request(WorkshopRequest(COMMAND, "/tmp/\0", True)),
        changed(arguments=[]),
        changed(arguments="sh"),
        changed(arguments=["a\0b"]),
        changed(arguments=[1]),
        changed(folder="../.."),
        changed(folder="/etc"),
        changed(folder=None),
        changed(read_only=["../x"]),
        changed(hidden=["/x"]),
        changed(environment={"A": 1}),
        changed(environment={"A": "\0"}),
        changed(limits={"seconds": "2"}),
        changed(limits={"seconds": True}),
        changed(limits={"seconds": -1}),
        changed(limits={"seconds": float("nan")}),
        changed(limits={"memory": 1e300}),
        changed(limits={"other": 1}),
        changed(workspace="/"),
        changed(reads=["sockets"]),
        changed(reads=["/opt/../sockets"]),
        changed(network="0.0.0.0:20000"),
        changed(network="127.0.0.1"),
        changed(network=True),
        changed(temporary="/workspace"),
        changed(tier="landlock"),
    ],
)
def test_anything_else_is_refused(packet: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_request(packet, DESCRIPTORS)


@pytest.mark.parametrize(
    ("packet", "descriptors"),
    [
        (pack_request(ASKED), 3),
        (pack_request(ASKED), 0),
        (pack_request(ASKED), 5),
        (pack_request(None), 4),
        (pack_request(WorkshopRequest(COMMAND, "/tmp/own")), 4),
        (pack_request(WorkshopRequest(COMMAND, "/tmp/own", True)), 5),
    ],
)
def test_descriptors_belong_to_a_command_and_to_nothing_else(packet: bytes, descriptors: int) -> None:
    with pytest.raises(BadRequest):
        parse_request(packet, descriptors)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda each: st.lists(each) | st.dictionaries(st.text(), each),
    )
)
def test_no_json_breaks_it(value: object) -> None:
    for body in (value, {"version": 2, "command": value, "folder": "", "apart": False}):
        packet = json.dumps(body).encode()
        for read in (lambda packet: parse_request(packet, DESCRIPTORS), parse_reply):
            with suppress(BadRequest):
                read(packet)


def test_a_reply_comes_back() -> None:
    for each in (WorkshopReply(Tier.NAMESPACES, 7), WorkshopReply(problem="no")):
        assert parse_reply(each.packed()) == each
    for packet in (b"", b"{}", b'{"version": 2, "tier": "other", "landlock": 1, "problem": ""}'):
        with pytest.raises(BadRequest):
            parse_reply(packet)


def test_a_process_of_the_same_container_is_no_peer(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
            one.connect(str(tmp_path / "s"))
            other, _ = listening.accept()
            with other:
                assert peer_of(other) == peer_of(one) == Peer(os.getuid(), os.getpid())
                assert not from_elsewhere(peer_of(other))
    assert from_elsewhere(Peer(os.getuid(), 0))
    assert not from_elsewhere(Peer(os.getuid() + 1, 0))
