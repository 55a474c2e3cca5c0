"""What the desk tells a process: lines are shown, gangs recalled, and the end waits for what was printed last."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

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
    wait_until(lambda: desk.listening, 10, "the listener to ask")
    yield told
    told.listener.stop()
    assert not told.listener._thread.is_alive()


def test_lines_and_recalls_are_passed_on_and_it_asks_again(desk: Desk, told: Told) -> None:
    for number in (1, 2):
        desk.tell(lines=[["f", 0, "", f"line {number}"]], recalled=[f"g{number}"])
        wait_until(lambda n=number: len(desk.listening) == n + 1, 10, "the listener to ask again")
    assert [line[3] for line in told.lines] == ["line 1", "line 2"]
    assert told.recalled == ["g1", "g2"]
    assert {call[0] for call in desk.listen.calls} == {"c1"}


def test_it_looks_after_what_the_process_holds_while_nothing_is_said(told: Told) -> None:
    assert told.tidied.wait(10)


def test_the_end_shows_what_comes_late(desk: Desk, told: Told) -> None:
    late = iter([[["f", 0, "", "later"]], [["f", 0, "", "last"]]])
    desk.listen = Method(lambda *_: next((there({"lines": [*lines], "recalled": []}) for lines in late), Ref()))
    desk.tell(lines=[["f", 0, "", "late"]])
    told.listener.stop()
    assert [line[3] for line in told.lines] == ["late", "later", "last"]


class AnsweredAtTheEnd(Future[Any]):
    """Answered once somebody waits for it itself, as the end does."""

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self.set_result({"lines": [["f", 0, "", "late"]], "recalled": []})
        return super().result(timeout)


def test_the_end_asks_nothing_new_while_a_question_is_on_its_way(desk: Desk) -> None:
    """The desk gives lines to one of them only: what the other got would be lost."""
    question = Ref()
    question.done = AnsweredAtTheEnd()
    questions = iter([question])
    asked = desk.listen = Method(lambda *_: next(questions, None) or Ref())
    told = Told(desk)
    told.listener.start()
    wait_until(lambda: asked.calls, 10, "the listener to ask")
    told.listener.stop()
    assert [line[3] for line in told.lines] == ["late"]


def test_a_desk_that_fails_is_asked_again() -> None:
    desk = Desk()
    failed, working = Ref(), desk.listen
    failed.done.set_exception(RuntimeError("the desk has died"))
    answers = iter([failed])
    desk.listen = Method(lambda *args: next(answers, None) or working.remote(*args))
    told = Told(desk)
    told.listener.start()
    wait_until(lambda: desk.listening, 10, "the listener to ask again")
    told.listener.stop()


def test_where_the_cluster_has_gone_nobody_listens(desk: Desk, told: Told) -> None:
    told.over = True
    wait_until(lambda: not told.listener._thread.is_alive(), 10, "the listener to end")


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


def test_a_closed_output_hurts_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import sys

    closed = io.StringIO()
    closed.close()
    for output in (closed, None):
        monkeypatch.setattr(sys, "stdout", output)
        show([["f", 0, "", "lost"]])
