"""Bytes become lines: all of them, whatever the pieces in which they come."""

from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.runner.calls.cutting import Cutter, Words

PIECES = st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b"longer text", "\u20ac".encode()[:2], b"\x80", b""]))


@given(PIECES)
def test_lines_are_what_stands_between_newlines(pieces: list[bytes]) -> None:
    cutter = Cutter(bar=1.0)
    lines = [line for piece in pieces for line in cutter.cut(piece, 0.0)] + cutter.end()
    whole = b"".join(pieces)
    assert lines == whole.removesuffix(b"\n").split(b"\n") if whole else lines == []


@given(PIECES, st.integers(1, 20), st.integers(0, 3))
def test_nothing_is_lost_where_lines_are_cut(pieces: list[bytes], longest: int, bar: int) -> None:
    cutter = Cutter(longest, bar)
    lines = [line for now, piece in enumerate(pieces) for line in cutter.cut(piece, now)] + cutter.end()
    assert _printed(b"".join(lines)) == _printed(b"".join(pieces))


def _printed(text: bytes) -> bytes:
    return text.replace(b"\n", b"").replace(b"\r", b"")


def test_a_line_that_is_too_long_is_cut_between_characters() -> None:
    cutter = Cutter(longest=10)
    text = "\u20ac" * 20
    lines = [line for byte in text.encode() for line in cutter.cut(bytes([byte]), 0.0)] + cutter.end()
    assert len(lines) > 3 and "".join(line.decode() for line in lines) == text


def test_a_bar_is_a_line_every_few_seconds_as_it_stands_then() -> None:
    cutter = Cutter(bar=5.0)
    told = [(now, cutter.cut(b"\r%d %%" % now, float(now))) for now in range(14)]
    assert [(now, lines) for now, lines in told if lines] == [
        (5, [b"\r0 %\r1 %\r2 %\r3 %\r4 %"]),
        (10, [b"5 %\r6 %\r7 %\r8 %\r9 %"]),
    ]
    assert cutter.cut(b"\n", 14.0) == [b"10 %\r11 %\r12 %\r13 %"]


def test_half_a_line_without_a_bar_waits_for_its_end() -> None:
    cutter = Cutter(bar=5.0)
    assert cutter.cut(b"loading ...", 0.0) == cutter.cut(b" still ...", 100.0) == []
    assert cutter.cut(b" done\r\n", 200.0) == [b"loading ... still ... done\r"]


def test_of_long_lines_a_failure_gets_the_ends() -> None:
    words = Words()
    words.add([str(number) for number in range(1000)])
    words.add(["x" * 10_000 + " the end"])
    assert words.tail().split("\n")[0] == "981"
    assert words.tail().endswith("x the end") and len(words.tail()) < 5000
    assert len(words.all().split("\n")) == 200
