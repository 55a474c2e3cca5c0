"""What a child prints, line by line and in batches, whoever holds the other end."""

import os
from collections.abc import Sequence

import pytest

from kinetic_ray.runner.calls.output import Output, Whose
from tests.waiting import wait_until


def test_lines_arrive_whole_in_few_batches() -> None:
    batches: list[Sequence[str]] = []
    output = Output(lambda _, lines: batches.append(lines))
    writing = output.give_writer()
    for number in range(2000):
        os.write(writing, f"line {number}\n".encode())
    os.write(writing, b"\xff no end")
    os.close(writing)
    output.await_end(30)
    lines = [line for batch in batches for line in batch]
    assert lines == [*(f"line {number}" for number in range(2000)), "\ufffd no end"]
    assert len(batches) < 500
    assert output.tail().splitlines() == lines[-20:]


def test_a_line_after_a_silence_does_not_wait_for_the_next(capfd: pytest.CaptureFixture[str]) -> None:
    batches: list[Sequence[str]] = []
    output = Output(lambda _, lines: batches.append(lines))
    writing = output.give_writer()
    for number in range(3):
        os.write(writing, f"{number}\nhalf".encode())
        wait_until(lambda: sum(map(len, batches)) == number + 1, what="the line")  # noqa: B023
    os.close(writing)
    output.await_end(30)
    assert [line for batch in batches for line in batch] == ["0", "half1", "half2", "half"]


def test_a_listener_that_fails_stops_nothing() -> None:
    def refuse(_whose: Whose, _lines: Sequence[str]) -> None:
        raise ConnectionError("the desk is gone")

    output = Output(refuse)
    writing = output.give_writer()
    os.write(writing, b"one\ntwo\n")
    os.close(writing)
    output.await_end(30)
    assert output.words() == "one\ntwo"


def test_a_line_without_an_end_is_passed_on_in_pieces() -> None:
    batches: list[Sequence[str]] = []
    output = Output(lambda _, lines: batches.append(lines))
    writing = output.give_writer()
    sent = 0
    while sent < 300_000:
        sent += os.write(writing, b"x" * 10_000)
    os.close(writing)
    output.await_end(30)
    pieces = [line for batch in batches for line in batch]
    assert len(pieces) > 1 and sum(map(len, pieces)) == sent


def test_each_line_is_the_call_s_that_has_printed_it() -> None:
    batches: list[tuple[Whose, Sequence[str]]] = []
    output = Output(lambda whose, lines: batches.append((whose, lines)))
    writing = output.give_writer()
    expected = []
    for number in range(300):
        whose = Whose("client", f"call {number % 3}")
        output.turn_to(whose)
        ends = ("\n", "", "\nand half a line")[number % 3]
        os.write(writing, f"of {number}{ends}".encode())
        expected += [(whose, line) for line in f"of {number}{ends}".splitlines()]
    os.close(writing)
    output.await_end(30)
    output.turn_to(Whose())  # the pipe is gone by now
    assert [(whose, line) for whose, lines in batches for line in lines] == expected
