"""JSON lines over a unix socket: framing, ends, timeouts, errors that travel, peers of other users."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray import wire
from kinetic_ray.errors import ConfigError, KineticError, UsageError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def ends() -> Iterator[tuple[wire.Peer, socket.socket]]:
    """A peer, and the raw socket at its other end."""
    ours, theirs = socket.socketpair()
    with wire.Peer(ours) as peer, theirs:
        yield peer, theirs


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_what_is_sent_arrives(message: dict[str, object]) -> None:
    assert wire.decode(wire.encode(message)) == message
    assert wire.encode(message).count(b"\n") == 1


def test_lines_are_cut_where_they_end_not_where_packets_do(ends: tuple[wire.Peer, socket.socket]) -> None:
    peer, other = ends
    other.sendall(b'{"n":1}\n{"n":2}\n{"n"')
    assert peer.recv(1) == {"n": 1}
    assert peer.recv(0) == {"n": 2}
    with pytest.raises(TimeoutError):
        peer.recv(0.01)
    other.sendall(b":3}\n")
    assert peer.recv(1) == {"n": 3}


def test_the_end_is_none_and_a_torn_line_is_an_error(ends: tuple[wire.Peer, socket.socket]) -> None:
    peer, other = ends
    other.sendall(b'{"n":1}\n')
    other.shutdown(socket.SHUT_WR)
    assert peer.recv(1) == {"n": 1}
    assert peer.recv(1) is None
    ours, theirs = socket.socketpair()
    with wire.Peer(ours) as torn:
        theirs.sendall(b'{"n":')
        theirs.close()
        with pytest.raises(wire.WireError, match="in the middle of a line"):
            torn.recv(1)


@pytest.mark.parametrize("line", [b"nonsense\n", b"[1]\n", b"\xff\xfe\n", b"\n"])
def test_a_line_that_is_no_message_is_an_error(ends: tuple[wire.Peer, socket.socket], line: bytes) -> None:
    peer, other = ends
    other.sendall(line)
    with pytest.raises(wire.WireError):
        peer.recv(1)


def test_a_line_without_end_does_not_fill_the_memory(ends: tuple[wire.Peer, socket.socket]) -> None:
    peer, other = ends

    def flood() -> None:
        block = b"x" * 65536
        try:
            for _ in range(2 * wire.MAX_LINE // len(block)):
                other.sendall(block)
        except OSError:
            pass  # the peer has had enough, which is the point

    flooding = threading.Thread(target=flood)
    flooding.start()
    with pytest.raises(wire.WireError, match="longer than"):
        peer.recv(10)
    peer.close()
    flooding.join(10)
    assert not flooding.is_alive()
    with pytest.raises(wire.WireError, match="longer than"):
        wire.encode({"text": "x" * wire.MAX_LINE})


def test_closing_ends_a_wait_in_another_thread(ends: tuple[wire.Peer, socket.socket]) -> None:
    peer, _ = ends
    got: list[object] = []
    for timeout in (None, 60.0):
        waiting = threading.Thread(target=lambda t=timeout: got.append(peer.recv(t)))
        waiting.start()
        peer.close()
        waiting.join(10)
    assert got == [None, None]


def test_sending_does_not_take_over_the_patience_of_receiving(ends: tuple[wire.Peer, socket.socket]) -> None:
    peer, other = ends

    def receive() -> None:
        with pytest.raises(TimeoutError):
            peer.recv(0.3)

    receiving = threading.Thread(target=receive)
    receiving.start()
    message = {"text": "x" * (wire.MAX_LINE // 2)}  # more than fits between the two
    sending = threading.Thread(target=peer.send, args=(message,))
    sending.start()
    receiving.join(10)
    assert sending.is_alive()
    with wire.Peer(other.dup()) as reader:
        assert reader.recv(10) == message
    sending.join(10)
    assert not sending.is_alive()


@pytest.mark.parametrize("error", [UsageError("no such slice"), ConfigError("another pool"), KineticError("?")])
def test_errors_travel_as_themselves(error: KineticError) -> None:
    with pytest.raises(KineticError) as caught:
        wire.checked(wire.decode(wire.encode(wire.failure(error))))
    assert (type(caught.value), str(caught.value)) == (type(error), str(error))


@pytest.mark.parametrize("name", ["Unschedulable", "NoSuchError", "annotations", "", "ValueError"])
def test_unknown_errors_are_still_ours(name: str) -> None:
    with pytest.raises(KineticError, match="never fits"):
        wire.checked({"ok": False, "error": name, "message": "never fits"})


def test_a_call_is_one_request_and_one_answer(tmp_path: Path) -> None:
    path = tmp_path / "s"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        for answer in (b'{"ok":true,"n":1}\n', b""):
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

    serving = threading.Thread(target=serve)
    serving.start()
    assert wire.call(path, {"op": "x"}) == {"ok": True, "n": 1}
    with pytest.raises(ConnectionError, match="without an answer to 'x'"):
        wire.call(path, {"op": "x"})
    serving.join()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        wire.call(path, {"op": "x"})
    with pytest.raises(FileNotFoundError):
        wire.call(tmp_path / "none", {"op": "x"})


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="needs a second user, so the first be root")
def test_a_peer_of_another_user_is_refused() -> None:
    """A listener under our name that belongs to somebody else gets no word from us."""
    serve = (
        "import os, socket, sys, tempfile; os.umask(0); os.setuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX); p = tempfile.mkdtemp(prefix='krw', dir='/tmp') + '/s'; s.bind(p)\n"
        "s.listen(); print(p, flush=True); c, _ = s.accept(); print('got', c.recv(100), flush=True)\n"
        "os.unlink(p); os.rmdir(os.path.dirname(p))\n"
    )
    with subprocess.Popen([sys.executable, "-c", serve], stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None
        with pytest.raises(wire.WireError, match="belongs to user 65534"):
            wire.connect(listener.stdout.readline().strip())
        assert listener.stdout.readline().strip() == "got b''"
