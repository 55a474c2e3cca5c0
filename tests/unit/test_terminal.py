"""No control code of a user's program reaches a terminal, whatever the program prints."""

import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.core.terminal import encodable, is_terminal, sanitize, sanitize_text
from kinetic_ray.log_writer import LogWriter

_ESCAPES = [
    "\x1b]0;title\x07",
    "\x1b]52;c;aGk=\x1b\\",
    "\x1b[2J",
    "\x1b[31m",
    "\x1b[0m",
    "\x9b2J",
    "\x1bc",
    "\x1bP",
    "\x1b",
]
#: Texts with more of what terminals act on than chance would put into them.
hostile = st.lists(
    st.sampled_from([*_ESCAPES, "\r", "\x08", "\x7f", "\x00", "\x85", "\u2028", "\t", "[red]x[/red]", "a"])
    | st.text(max_size=3)
).map("".join)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def codes_in(text: str, allowed: str) -> set[str]:
    return {char for char in text if unicodedata.category(char) == "Cc" and char not in allowed}


@given(hostile.filter(lambda text: "\n" not in text))
def test_a_line_holds_no_control_codes_but_tabs(line: str) -> None:
    assert codes_in(sanitize(line, color=False), "\t") == set()


@given(hostile.filter(lambda text: "\n" not in text))
def test_colours_alone_are_kept_and_end_with_the_line(line: str) -> None:
    kept = sanitize(line)
    without = kept
    for part in kept.split("\x1b")[1:]:
        assert part.startswith("[")
        assert set(part[1 : part.index("m")]) <= set("0123456789;:")
        without = without.replace("\x1b" + part[: part.index("m") + 1], "", 1)
    assert codes_in(without, "\t") == set()
    assert "\x1b" not in kept or kept.endswith("\x1b[0m")


@given(hostile)
def test_a_text_keeps_its_lines(text: str) -> None:
    safe = sanitize_text(text)
    assert codes_in(safe, "\t\n") == set()
    assert safe.count("\n") == text.count("\n")


@given(st.lists(st.binary(max_size=20) | hostile.map(lambda text: text.encode("utf-8", "replace"))), st.booleans())
def test_a_writer_gives_a_terminal_no_control_codes(chunks: list[bytes], prefixed: bool) -> None:
    out = Terminal()
    writer = LogWriter(out, prefix="[1] " if prefixed else "", color=False)
    for chunk in chunks:
        writer.write(chunk)
        assert codes_in(writer.partial, "\t") == set()
    writer.close()
    assert codes_in(out.getvalue(), "\t\n") == set()


def test_a_long_line_stays_one_on_its_way_to_a_pipe() -> None:
    raw = io.BytesIO()
    writer = LogWriter(io.TextIOWrapper(raw), prefix="[1] ")
    line = b"0 %\r1 %" * 500_000
    for start in range(0, len(line), 1 << 20):
        writer.write(line[start : start + (1 << 20)])
    writer.write(b"\nnext\n")
    assert raw.getvalue() == b"[1] " + line + b"\n[1] next\n"


@given(st.lists(hostile.map(lambda text: text.encode("utf-8", "replace"))))
def test_a_writer_alters_nothing_on_its_way_to_a_pipe(chunks: list[bytes]) -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    writer = LogWriter(out)
    for chunk in chunks:
        writer.write(chunk)
    writer.close()
    assert raw.getvalue() == b"".join(chunks)


@pytest.mark.parametrize(("encoding", "text"), [("ascii", "?"), ("utf-8", "ä")])
def test_what_a_stream_can_not_hold_is_a_question_mark(encoding: str, text: str) -> None:
    assert encodable("ä", io.TextIOWrapper(io.BytesIO(), encoding=encoding)) == text


def test_a_stand_in_for_a_stream_is_no_terminal_and_takes_everything() -> None:
    class Tee:
        def __init__(self) -> None:
            self.taken = ""

        def write(self, text: str) -> None:
            self.taken += text

        def flush(self) -> None:
            pass

    tee = Tee()
    assert not is_terminal(tee)  # type: ignore[arg-type]
    writer = LogWriter(tee)  # type: ignore[arg-type]
    writer.write("ä\x1b[2J\n".encode())
    writer.close()
    assert tee.taken == "ä\x1b[2J\n"
    assert encodable("ä", tee) == "ä"  # type: ignore[arg-type]
