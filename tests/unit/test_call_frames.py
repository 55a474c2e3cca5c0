"""Messages between an agent and its child: large and small ones, by socket and by memory file, and hostile ones."""

import array
import fcntl
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.runner.calls.frames import LARGE, Frame, FrameError, Frames
from kinetic_ray.runner.calls.packing import OUT_OF_BAND

linux = pytest.mark.skipif(sys.platform != "linux", reason="memory files are Linux's")


@pytest.fixture
def ends() -> Iterator[tuple[Frames, Frames, socket.socket]]:
    """Two ends, and the first one's socket."""
    one, other = socket.socketpair()
    frames = Frames(one), Frames(other), one
    yield frames
    frames[0].close()
    frames[1].close()


def exchange(sender: Frames, receiver: Frames, parts: list[bytes]) -> list[bytes]:
    thread = threading.Thread(target=sender.send, args=(7, parts))
    thread.start()
    frame = receiver.receive()
    thread.join()
    assert frame is not None and frame.kind == 7
    return [bytes(part) for part in frame.parts]


@given(st.lists(st.lists(st.binary(max_size=200), max_size=5), max_size=5))
def test_messages_arrive_whole_and_in_order(messages: list[list[bytes]]) -> None:
    one, other = socket.socketpair()
    with one, other:
        sender, receiver = Frames(one), Frames(other)
        for parts in messages:
            sender.send(1, parts)
        assert [[bytes(part) for part in receiver.receive().parts] for _ in messages] == messages  # type: ignore[union-attr]


@given(st.lists(st.binary(max_size=200), max_size=3))
def test_short_messages_are_the_very_same_bytes(parts: list[bytes]) -> None:
    one, other = socket.socketpair()
    with one, other:
        sender = Frames(one)
        sender.send(7, parts, number=5)
        usual = other.recv(4096)
        sender.send_short(7, 5, *parts)
        assert other.recv(4096) == usual


@pytest.mark.parametrize("size", [0, 1, 70_000, LARGE - 1, LARGE, LARGE + 1, 5_000_000])
def test_any_size_arrives(ends: tuple[Frames, Frames, socket.socket], size: int) -> None:
    parts = [b"head", os.urandom(size), b"", os.urandom(size // 3)]
    assert exchange(ends[0], ends[1], parts) == parts
    assert exchange(ends[1], ends[0], [b"after"]) == [b"after"]


def test_what_could_be_an_array_is_the_receivers_own(ends: tuple[Frames, Frames, socket.socket]) -> None:
    for size in (OUT_OF_BAND, LARGE):
        data = bytearray(size)
        thread = threading.Thread(target=ends[0].send, args=(1, [data]))
        thread.start()
        frame = ends[1].receive()
        thread.join()
        assert frame is not None
        memoryview(frame.parts[0])[:4] = b"mine"
        assert bytes(data[:4]) == bytes(4)


@linux
def test_large_messages_leave_no_descriptor_behind(ends: tuple[Frames, Frames, socket.socket]) -> None:
    exchange(ends[0], ends[1], [b"x" * LARGE])
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        exchange(ends[0], ends[1], [b"x" * LARGE] * 3)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_what_was_read_before_counts() -> None:
    one, other = socket.socketpair()
    with one, other:
        Frames(one).send(3, [b"early"])
        early = other.recv(10)
        frame = Frames(other, early).receive()
        assert frame is not None and bytes(frame.parts[0]) == b"early"


@pytest.mark.parametrize("cut", [1, 8, 12, 20])
def test_a_message_cut_short_is_the_end(cut: int) -> None:
    one, other = socket.socketpair()
    with other:
        spare, copy = socket.socketpair()
        with spare, copy:
            Frames(spare).send(1, [b"something"])
            one.sendall(copy.recv(1000)[:cut])
        one.close()
        assert Frames(other).receive() is None


def test_silence_ends_in_time(ends: tuple[Frames, Frames, socket.socket]) -> None:
    with pytest.raises(TimeoutError):
        ends[1].receive(time.monotonic() + 0.01)
    ends[0].send(1, [b"late"])
    frame = ends[1].receive(time.monotonic() + 60)
    assert frame is not None and bytes(frame.parts[0]) == b"late"


def test_who_waits_is_woken_and_gets_what_had_arrived(ends: tuple[Frames, Frames, socket.socket]) -> None:
    ends[0].send(1, [b"before"])
    ends[1].hang_up()
    assert ends[1].receive() is not None
    assert ends[1].receive() is None
    with pytest.raises(OSError, match="Broken pipe"):
        ends[0].send(1, [b"after"])


NONE = bytes(4)  # a message's number, of one that has none


@pytest.mark.parametrize(
    "data",
    [
        b"hello, this is a line of text that user code has written\n",
        b"k4\x01\x00" + NONE + b"\xff\xff\xff\xff",
        b"k4\x01\x02" + NONE + b"\x00\x00\x00\x00",
        b"k4\x01\x01" + NONE + b"\x01\x00\x00\x00" + (5 | 1 << 63).to_bytes(8, "little"),
        b"k4\x01\x00" + NONE + b"\x01\x00\x00\x00" + (5 | 1 << 63).to_bytes(8, "little"),
    ],
    ids=["text", "too many parts", "no such flag", "a file that didn't come", "a part in no file"],
)
def test_what_is_no_message_is_refused(ends: tuple[Frames, Frames, socket.socket], data: bytes) -> None:
    ends[2].sendall(data)
    with pytest.raises(FrameError):
        ends[1].receive()


@linux
@pytest.mark.parametrize(("size", "seals"), [(4096, 0), (10, fcntl.F_SEAL_SHRINK)], ids=["unsealed", "too short"])
def test_a_memory_file_that_could_end_the_reader_is_refused(
    ends: tuple[Frames, Frames, socket.socket], size: int, seals: int
) -> None:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    head = b"k4\x01\x01" + NONE + b"\x01\x00\x00\x00" + (4096 | 1 << 63).to_bytes(8, "little")
    ends[2].sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
    os.close(fd)
    with pytest.raises(FrameError, match="not what its header says"):
        ends[1].receive()


@pytest.mark.parametrize("size", [3, 3 << 20])
def test_a_message_tells_to_which_one_it_is_the_answer(ends: tuple[Frames, Frames, socket.socket], size: int) -> None:
    numbers = (0, 1, (1 << 32) - 1)
    for number in numbers:
        ends[0].send_short(1, number, b"short")
        assert ends[1].receive() == Frame(1, [b"short"], number)
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(ends[0].send, 2, [b"x" * size], number)
            frame = ends[1].receive()
            sending.result()
        assert frame is not None and (frame.kind, frame.number) == (2, number)
