"""What the desk tells a process: lines are shown, gangs recalled, and the end waits for what was printed last."""

import contextlib
import io
import re
import threading
import unicodedata
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.calls.display import Listener, show
from tests.unit.cluster_of_calls import Desk, Method, Ref, there
from tests.waiting import wait_until


class Told:
    """What a listener has passed on."""

    def __init__(self, desk: Any) -> None:
        self.lines: list[Any] = []
        self.recalled: list[str] = []
        self.tidied = threading.Event()
        self.over = False
        self.listener = Listener(
            desk,
            "c1",
            recall=self.recalled.extend,
            tidy=self.tidied.set,
            is_over=lambda: self.over,
            show=self.lines.extend,
        )


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def told(desk: Desk) -> Iterator[Told]:
    told = Told(desk)
    told.listener.start()
    wait_until(lambda: desk.listening, 60, "the listener to ask")
    yield told
    told.listener.stop()
    assert not told.listener._thread.is_alive()


def test_lines_and_recalls_are_passed_on_and_it_asks_again(desk: Desk, told: Told) -> None:
    for number in (1, 2):
        desk.tell(lines=[["f", 0, "", f"line {number}"]], recalled=[f"g{number}"])
        wait_until(lambda n=number: len(desk.listening) == n + 1, 60, "the listener to ask again")
    assert [line[3] for line in told.lines] == ["line 1", "line 2"]
    assert told.recalled == ["g1", "g2"]
    assert {call[0] for call in desk.listen.calls} == {"c1"}


def test_it_looks_after_what_the_process_holds_while_nothing_is_said(told: Told) -> None:
    assert told.tidied.wait(60)


def test_the_end_shows_what_agents_still_have(desk: Desk, told: Told) -> None:
    """All that the desk has fetched from them by then, in as many answers as it takes."""

    def flush(_client: str) -> Ref:
        late = iter([[["f", 0, "", "later"]], [["f", 0, "", "last"]]])
        desk.listen = Method(lambda *_: there(desk.answer(lines=next(late, []))))
        desk.tell(lines=[["f", 0, "", "late"]])
        return there(None)

    desk.flush = Method(flush)
    told.listener.stop()
    assert [line[3] for line in told.lines] == ["late", "later", "last"]


def test_the_end_comes_only_after_all_is_fetched(desk: Desk, told: Told) -> None:
    """An answer without lines says nothing while agents may still have some."""
    fetching = Ref()
    rounds = iter([[], [["f", 0, "", "early"]], [], [["f", 0, "", "late"]], []])

    def listen(*_: Any) -> Ref:
        answer = desk.answer(lines=next(rounds, []))
        if answer["lines"] and answer["lines"][0][3] == "late":
            fetching.done.set_result(None)
        return there(answer)

    def flush(_client: str) -> Ref:
        desk.listen = Method(listen)
        desk.tell()
        return fetching

    desk.flush = Method(flush)
    told.listener.stop()
    assert [line[3] for line in told.lines] == ["early", "late"]


class AnsweredAtTheEnd(Future[Any]):
    """Answered once somebody waits for it itself, as the end does."""

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self.set_result({"lines": [["f", 0, "", "late"]], "recalled": [], "box": "box", "number": 1})
        return super().result(timeout)


def test_the_question_that_is_on_its_way_is_asked_by_the_end_too(desk: Desk) -> None:
    question = Ref()
    question.done = AnsweredAtTheEnd()
    questions = iter([question])
    nothing = {"lines": [], "recalled": [], "box": "box", "number": 1}
    asked = desk.listen = Method(lambda *_: next(questions, None) or there(nothing))
    desk.flush = Method(lambda _: there(None))
    told = Told(desk)
    told.listener.start()
    wait_until(lambda: asked.calls, 60, "the listener to ask")
    told.listener.stop()
    assert [line[3] for line in told.lines] == ["late"]


def test_a_cluster_that_does_not_answer_at_the_end_is_told_of(desk: Desk, told: Told) -> None:
    failed = Ref()
    failed.done.set_exception(RuntimeError("the desk has died"))
    desk.listen = Method(lambda *_: failed)
    desk.flush = Method(lambda _: (desk.listening[-1].done.set_exception(RuntimeError("it has died")), failed)[1])
    told.listener.stop()
    assert [(name, text[:42]) for name, *_, text in told.lines] == [("", "kinetic: the cluster does not answer: the ")]


def test_an_answer_that_comes_again_is_shown_once_and_the_next_one_is_asked_for(desk: Desk, told: Told) -> None:
    first = desk.answer(lines=[["f", 0, "", "one"]])
    for number, answer in enumerate((first, first, desk.answer(lines=[["f", 0, "", "two"]])), 2):
        desk.listening[-1].done.set_result(answer)
        wait_until(lambda n=number: len(desk.listening) == n, 60, "the listener to ask again")
    assert [line[3] for line in told.lines] == ["one", "two"]
    assert [got for _, _, got in desk.listen.calls] == [("", 0), ("box", 1), ("box", 1), ("box", 2)]


def test_after_an_answer_that_was_lost_the_same_one_is_asked_for(desk: Desk, told: Told) -> None:
    desk.tell(lines=[["f", 0, "", "one"]])
    wait_until(lambda: len(desk.listening) == 2, 60, "the listener to ask again")
    desk.listening[-1].done.set_exception(RuntimeError("the connection broke off"))
    wait_until(lambda: len(desk.listening) == 3, 60, "the listener to ask again")
    assert [got for _, _, got in desk.listen.calls] == [("", 0), ("box", 1), ("box", 1)]


def test_what_is_lost_with_the_desk_is_told_of(desk: Desk, told: Told) -> None:
    desk.tell(lines=[["f", 0, "", "one"]], box="before")
    wait_until(lambda: len(desk.listening) == 2, 60, "the listener to ask again")
    desk.tell(lines=[["f", 0, "", "two"]], box="after")
    wait_until(lambda: len(desk.listening) == 3, 60, "the listener to ask again")
    one, warning, two = told.lines
    assert (one[3], two[3]) == ("one", "two")
    assert warning[0] == "" and "printed just before may be missing" in warning[3]
    desk.tell(box="after")
    wait_until(lambda: len(desk.listening) == 4, 60, "the listener to ask again")
    assert len(told.lines) == 3


def test_a_desk_that_fails_is_asked_again() -> None:
    desk = Desk()
    failed, working = Ref(), desk.listen
    failed.done.set_exception(RuntimeError("the desk has died"))
    answers = iter([failed])
    desk.listen = Method(lambda *args: next(answers, None) or working.remote(*args))
    told = Told(desk)
    told.listener.start()
    wait_until(lambda: desk.listening, 60, "the listener to ask again")
    told.listener.stop()


def test_where_the_cluster_has_gone_nobody_listens(desk: Desk, told: Told) -> None:
    told.over = True
    wait_until(lambda: not told.listener._thread.is_alive(), 60, "the listener to end")


def test_lines_have_prefixes_and_the_process_prints_them_where_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    show([["train", 3, "tpu-v6e-16-0", "step 1"], ["double", 0, "", "%d {x}"]])
    show([])
    assert capsys.readouterr() == ("(train rank=3 tpu-v6e-16-0) step 1\n(double rank=0) %d {x}\n", "")


def test_what_kinetic_says_itself_is_no_output_of_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    show([["train", 0, "", "step 1"], ["", 0, "", "kinetic: train waits for 1 x tpu-v6e-16"]])
    assert capsys.readouterr() == ("(train rank=0) step 1\n", "kinetic: train waits for 1 x tpu-v6e-16\n")


def test_gloo_s_words_at_each_connection_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    gloo = "[Gloo] Rank 2 is connected to 3 peer ranks. Expected number of connected peer ranks is : 3"
    show([["f", 2, "", gloo], ["f", 2, "", f"I say {gloo}"]])
    assert capsys.readouterr().out == f"(f rank=2) I say {gloo}\n"


class Terminal(io.StringIO):
    """What a person sees."""

    def isatty(self) -> bool:
        return True


class Ascii(io.StringIO):
    """A stream that holds no more than that."""

    encoding = "ascii"

    def write(self, text: str) -> int:
        text.encode("ascii")
        return super().write(text)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n")), min_size=1), st.booleans())
def test_a_terminal_gets_no_control_codes(texts: list[str], by_kinetic: bool) -> None:
    out = Terminal()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        show([["" if by_kinetic else "f", 0, "", f"{text}\x1b]0;title\x07\x1b[2J"] for text in texts])
    left = re.sub(r"\x1b\[[0-9;:]*m", "", out.getvalue())
    assert {char for char in left if unicodedata.category(char) == "Cc"} <= {"\n", "\t"}
    assert out.getvalue().count("\n") == len(texts)


def test_what_is_no_terminal_gets_lines_as_they_were_printed() -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        show([["f", 0, "", "50 %\r100 %\x1b[31m"]])
    assert out.getvalue() == "(f rank=0) 50 %\r100 %\x1b[31m\n"


def test_a_terminal_shows_of_a_bar_what_was_drawn_last() -> None:
    out = Terminal()
    with contextlib.redirect_stdout(out):
        show([["f", 0, "", "\r50 %\r100 %"]])
    assert out.getvalue() == "(f rank=0) 100 %\n"


def test_lines_that_a_stream_cannot_hold_are_shown_as_far_as_it_can() -> None:
    out = Ascii()
    with contextlib.redirect_stdout(out):
        show([["f", 0, "", "one"], ["f", 0, "", "zwei \u20ac \u6f22"]])
    assert out.getvalue() == "(f rank=0) one\n(f rank=0) zwei ? ?\n"


def test_a_closed_output_hurts_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    closed = io.StringIO()
    closed.close()
    for output in (closed, None):
        monkeypatch.setattr(sys, "stdout", output)
        show([["f", 0, "", "lost"]])
