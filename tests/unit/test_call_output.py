"""What a child prints, line by line and in batches, whoever holds the other end."""

import os
import threading
from collections.abc import Sequence

import pytest

from kinetic_ray.runner.calls.output import Output, Whose
from tests.waiting import wait_until


class Heard:
    """Takes lines; waits before each batch while its gate is closed."""

    def __init__(self) -> None:
        self.batches: list[tuple[Whose, Sequence[str]]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.is_asked = threading.Event()

    def take(self, whose: Whose, lines: Sequence[str]) -> None:
        self.is_asked.set()
        self.gate.wait()
        self.batches.append((whose, lines))

    @property
    def lines(self) -> list[str]:
        return [line for _, lines in self.batches for line in lines]

    @property
    def named(self) -> list[tuple[str, str]]:
        return [(whose.name, line) for whose, lines in self.batches for line in lines]


@pytest.fixture
def heard() -> Heard:
    return Heard()


def ended(output: Output, writing: int) -> None:
    os.close(writing)
    wait_until(lambda: output.is_over, what="the end")


def test_lines_arrive_whole_in_few_batches(heard: Heard) -> None:
    output = Output(heard.take)
    writing = output.give_writer()
    for number in range(2000):
        os.write(writing, f"line {number}\n".encode())
    os.write(writing, b"\xff no end")
    ended(output, writing)
    assert heard.lines == [*(f"line {number}" for number in range(2000)), "\ufffd no end"]
    assert len(heard.batches) < 500
    assert output.tail().splitlines() == heard.lines[-20:]


def test_a_line_after_a_silence_does_not_wait_for_the_next(heard: Heard) -> None:
    output = Output(heard.take)
    writing = output.give_writer()
    for number in range(3):
        os.write(writing, f"{number}\nhalf".encode())
        wait_until(lambda: len(heard.lines) == number + 1, what="the line")  # noqa: B023
    ended(output, writing)
    assert heard.lines == ["0", "half1", "half2", "half"]


def test_a_listener_that_fails_stops_nothing() -> None:
    def refuse(_whose: Whose, _lines: Sequence[str]) -> None:
        raise ConnectionError("the desk is gone")

    output = Output(refuse)
    writing = output.give_writer()
    os.write(writing, b"one\ntwo\n")
    ended(output, writing)
    assert output.words() == "one\ntwo"


def test_each_line_is_the_call_s_that_has_printed_it(heard: Heard) -> None:
    output = Output(heard.take)
    writing = output.give_writer()
    expected = []
    for number in range(300):
        whose = Whose("client", f"call {number % 3}")
        output.turn_to(whose)
        ends = ("\n", "", "\nand half a line")[number % 3]
        os.write(writing, f"of {number}{ends}".encode())
        expected += [(whose.name, line) for line in f"of {number}{ends}".splitlines()]
    ended(output, writing)
    output.turn_to(Whose())  # the pipe is gone by now
    assert heard.named == expected


@pytest.mark.parametrize("text", ["half", "one\nhalf", "50 %\r100 %", "whole\n", ""])
def test_half_a_line_at_a_call_s_end_is_not_continued_by_the_same_function(heard: Heard, text: str) -> None:
    output = Output(heard.take)
    writing = output.give_writer()
    output.turn_to(Whose("client", "say"))
    for _ in range(200):
        os.write(writing, text.encode())
        output.finish()
    wait_until(lambda: len(heard.lines) == 200 * len(text.split("\n")) - 200 * text.endswith("\n") or not text)
    ended(output, writing)
    output.finish()
    assert heard.lines == text.removesuffix("\n").split("\n") * 200 if text else heard.lines == []


def test_who_takes_slowly_holds_the_printer_up_and_loses_nothing(heard: Heard) -> None:
    heard.gate.clear()
    output = Output(heard.take)
    writing = output.give_writer()
    lines = [f"{number} {'x' * 90}" for number in range(60_000)]
    printed = threading.Event()

    def print_all() -> None:
        with open(writing, "w", closefd=False) as stream:
            stream.writelines(f"{line}\n" for line in lines)
        printed.set()

    threading.Thread(target=print_all, daemon=True).start()
    assert heard.is_asked.wait(30)
    assert not printed.is_set()  # 6 MB are in no pipe
    heard.gate.set()
    assert printed.wait(60)
    ended(output, writing)
    assert heard.lines == lines


def test_the_last_words_of_a_killed_one_are_there_while_nobody_takes(heard: Heard) -> None:
    heard.gate.clear()
    output = Output(heard.take)
    writing = output.give_writer()
    os.write(writing, b"first\n")
    assert heard.is_asked.wait(30)
    os.write(writing, b"second\nlast words")
    os.close(writing)
    output.await_end(30)
    assert output.tail() == "first\nsecond\nlast words"
    heard.gate.set()
    wait_until(lambda: output.is_over, what="the end")
    assert heard.lines == ["first", "second", "last words"]


def test_calls_that_are_far_ahead_of_who_takes_wait_at_their_ends(heard: Heard) -> None:
    heard.gate.clear()
    output = Output(heard.take)
    writing = output.give_writer()
    calls = []

    def call_often() -> None:
        for number in range(100):
            os.write(writing, b"x" * 49_999 + b"\n")
            output.finish()
            calls.append(number)

    thread = threading.Thread(target=call_often)
    thread.start()
    assert heard.is_asked.wait(30)
    wait_until(lambda: output._size > 1 << 20, what="enough to wait for")
    assert len(calls) < 100
    heard.gate.set()
    thread.join(60)
    ended(output, writing)
    assert (len(calls), len(heard.lines)) == (100, 100)


def test_one_that_goes_gets_all_that_was_printed_by_then(heard: Heard) -> None:
    output = Output(heard.take)
    writing = output.give_writer()
    output.turn_to(Whose("client", "say"))
    for number in range(50):
        os.write(writing, f"{number}\nhalf".encode())
        assert output.flush("client", 30)
        assert heard.lines[-2:] == [str(number), "half"]
    os.write(writing, b"not yet")
    assert output.flush("another client", 30)
    assert heard.lines[-1] == "half"
    heard.gate.clear()
    os.write(writing, b"\nnot in time\n")
    assert not output.flush("client", 0.0)
    heard.gate.set()
    ended(output, writing)
    assert output.flush("client", 30)
    assert heard.lines[-2:] == ["not yet", "not in time"]
