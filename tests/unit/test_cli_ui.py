"""The display of a blocking call: words, log lines that can do no harm, and what a terminal shows in the end."""

import io
import os
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.core.noise import Quieted
from kinetic_ray.core.state import JobState, JobStatus, Progress, RankState, Stage
from kinetic_ray.ui import LiveReporter, LogWriter, PlainReporter, Subject, format_duration, open_reporter, sanitize
from kinetic_ray.ui.stages import Pace, ending, waits_for
from tests.screen import Screen, run_in_terminal

SUBJECT = Subject("job-0000000000e008000000000000", "train", "tpu-v6e-16")
RANKS = tuple(RankState(rank, "tpu-v6e-16-0", rank, phase="call") for rank in range(4))


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain", "plain"),
        ("[red]x[/red] [bold] [/var/x] [link=http://a]", "[red]x[/red] [bold] [/var/x] [link=http://a]"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("\x1b[1;38;5;9mopen", "\x1b[1;38;5;9mopen\x1b[0m"),
        ("a\x1b[2Jb\x1b[10;1Hc\x1b[?1049hd", "abcd"),
        ("\x1b]0;title\x07x\x1b]52;c;ZXZpbA==\x1b\\y", "xy"),
        ("\x1b]0;never ended", "0;never ended"),
        ("\x1bPq#0\x1b\\z\x1b(B\x1bc!", "z!"),
        ("bell\x07 back\x08 nul\x00 del\x7f c1\x9b31m\x85", "bell back nul del c1"),
        ("tab\tstays", "tab\tstays"),
        ("  10%\r  50%\r 100%\r", " 100%"),
        ("windows\r", "windows"),
        ("lone \x1b", "lone "),
        ("\x1b\x1b[31m", "\x1b[31m\x1b[0m"),
        ("snowman \u2603", "snowman \u2603"),
    ],
)
def test_lines_are_made_safe_and_nothing_else_is_changed(line: str, shown: str) -> None:
    assert sanitize(line) == shown


def test_colours_go_when_they_are_not_wanted() -> None:
    assert sanitize("\x1b[31mred\x1b[0m", color=False) == "red"


@given(st.text(st.characters(codec="utf-8")), st.booleans())
def test_no_control_code_but_colours_survives(text: str, color: bool) -> None:
    shown = sanitize(text.replace("\n", ""), color=color)
    import re

    left = re.sub(r"\x1b\[[0-9;:]*m", "", shown) if color else shown
    assert not [char for char in left if (ord(char) < 32 and char != "\t") or 0x7F <= ord(char) < 0xA0]


@given(st.lists(st.sampled_from(["\x1b", "[", "]", "31m", "2J", "\x07", "\\", "P", "x", "\r", ";"]), max_size=12))
def test_broken_sequences_leave_no_escape_either(pieces: list[str]) -> None:
    assert "\x1b" not in sanitize("".join(pieces), color=False)


def test_a_file_gets_the_bytes_untouched() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    writer = LogWriter(out)
    data = b"\xff\x00 [red] \x1b[2J 10%\r20%\r\nno newline \xe2"
    for place in range(len(data)):
        writer.write(data[place : place + 1])
    writer.close()
    assert raw.getvalue() == data


def test_a_stream_without_bytes_gets_split_characters_whole() -> None:
    out = io.StringIO()
    writer = LogWriter(out)
    for byte in "☃ snow\n".encode():
        writer.write(bytes([byte]))
    assert out.getvalue() == "☃ snow\n"


@given(st.lists(st.binary(max_size=4) | st.sampled_from([b"\n", b"a\n\nb", b"\r"])), st.sampled_from(["", "[0] "]))
def test_in_whatever_pieces_a_log_comes_the_same_is_written(pieces: list[bytes], prefix: str) -> None:
    for kind in (io.StringIO, Terminal):
        whole, pieced = kind(), kind()
        for out, parts in ((whole, [b"".join(pieces)]), (pieced, pieces)):
            writer = LogWriter(out, prefix=prefix)
            for part in parts:
                writer.write(part)
            writer.close()
        assert pieced.getvalue() == whole.getvalue()


def test_lines_of_several_ranks_carry_their_prefix_and_stay_whole() -> None:
    out = io.StringIO()
    zero, one = (LogWriter(out, prefix=f"[{rank}] ") for rank in range(2))
    zero.write(b"hal")
    one.write(b"first\nsec")
    zero.write(b"f\n")
    one.close()
    assert out.getvalue() == "[1] first\n[0] half\n[1] sec\n"


def test_a_terminal_is_shown_whole_lines_and_the_partial_one_is_held_back() -> None:
    out = Terminal()
    writer = LogWriter(out)
    writer.write(b"\x1b[2Jone\n 10%\r 20%")
    assert (out.getvalue(), writer.partial) == ("one\n", " 20%")
    writer.write(b"\r 30%\n")
    assert (out.getvalue(), writer.partial) == ("one\n 30%\n", "")


def test_a_line_without_end_is_not_held_back_for_ever() -> None:
    out = Terminal()
    writer = LogWriter(out)
    for _ in range(30):
        writer.write(b"\r" + b"bar" * 1000)
    assert writer.partial == "bar" * 1000
    assert out.getvalue() == ""
    for _ in range(30):
        writer.write(b"x" * 3000)
    assert "x" * 3000 in out.getvalue()


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (JobState(), "waiting for a driver"),
        (JobState(stage=Stage.QUEUE), "waiting for its turn"),
        (JobState(stage=Stage.QUEUE, message="2 jobs before this one"), "2 jobs before this one"),
        (
            JobState(stage=Stage.SLICE, slices=("a-0", "a-1", "a-2", "a-3", "a-4")),
            "getting a-0, a-1, a-2 and 2 more ready",
        ),
        (JobState(stage=Stage.ENV, ranks=(RankState(0),)), "preparing"),
        (JobState(stage=Stage.ENV, ranks=(RankState(0, phase="unpack"),)), "unpack"),
        (
            JobState(stage=Stage.ENV, ranks=(*RANKS[:3], RankState(3, phase="init"))),
            "3 of 4 hosts ready (host 3: init)",
        ),
        (JobState(stage=Stage.RUN, ranks=RANKS[:1]), ""),
        (JobState(stage=Stage.RUN, ranks=RANKS), "4 hosts"),
        (JobState(stage=Stage.RUN, ranks=RANKS, attempt=2), "4 hosts (attempt 2)"),
        (JobState(stage=Stage.RUN, ranks=(*RANKS[:3], RankState(3, ended=True))), "1 of 4 hosts done"),
        (JobState(stage=Stage.ENV, ranks=(RankState(0),), message="silent"), "silent"),
        (JobState(stage=Stage.RUN, ranks=RANKS, message="silent"), "silent"),
        (JobState(JobStatus.FAILED, Stage.ENDED), ""),
    ],
)
def test_what_a_job_waits_for_in_words(state: JobState, words: str) -> None:
    assert waits_for(state) == words


@pytest.mark.parametrize("stage", list(Stage))
def test_every_stage_has_words(stage: Stage) -> None:
    status = JobStatus.SUCCEEDED if stage is Stage.ENDED else JobStatus.RUNNING
    assert isinstance(waits_for(JobState(status, stage)), str)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (JobState(JobStatus.SUCCEEDED, Stage.ENDED, reason="Preempted"), "succeeded"),
        (JobState(JobStatus.FAILED, Stage.ENDED, "UserError", ranks=RANKS[:1], failed_rank=0), "failed (UserError)"),
        (
            JobState(JobStatus.FAILED, Stage.ENDED, "UserError", ranks=RANKS, failed_rank=2),
            "failed (UserError, host 2)",
        ),
        (JobState(JobStatus.STOPPED, Stage.ENDED, reason="Cancelled"), "stopped (Cancelled)"),
    ],
)
def test_an_end_in_words(state: JobState, words: str) -> None:
    assert ending(state) == words


def test_the_pace_gives_a_time_left_and_starts_over_with_an_older_step() -> None:
    pace = Pace()
    pace.note(Progress(0, 100, {}, 10.0))
    assert pace.eta(Progress(0, 100, {}, 10.0)) is None
    newest = Progress(20, 100, {"loss": 0.25}, 20.0)
    pace.note(newest)
    assert pace.eta(newest) == 40.0
    assert pace.line(newest) == "[#####...................]  20%  step 20/100  2/s  ETA 40 s  loss=0.25"
    assert pace.eta(replace(newest, total=None)) is None
    pace.note(Progress(5, 100, {}, 30.0))
    assert pace.per_second() is None


@pytest.mark.parametrize(("seconds", "text"), [(-1, "0.0 s"), (59.9, "59 s"), (60, "1 m 00 s"), (3600, "1 h 00 m")])
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_without_a_terminal_every_stage_is_one_line_and_logs_are_apart() -> None:
    out, err = io.StringIO(), io.StringIO()
    reporter = open_reporter(SUBJECT, out=out, err=err)
    assert isinstance(reporter, PlainReporter)
    running = JobState(JobStatus.RUNNING, Stage.RUN, ranks=RANKS)
    for state in (
        JobState(),
        JobState(),
        JobState(stage=Stage.QUEUE, message="no free \x1b[2Jslice"),
        JobState(stage=Stage.SLICE, slices=("tpu-v6e-16-0",)),
        JobState(JobStatus.RUNNING, Stage.ENV, ranks=RANKS[:1]),
        running,
        replace(running, warnings=("rank 2 is silent",)),
    ):
        reporter.show(state)
    reporter.log(b"loss [bold] 1.0\n")
    reporter.show(replace(running, status=JobStatus.SUCCEEDED, stage=Stage.ENDED, warnings=("rank 2 is silent",)))
    reporter.close()
    head = "kinetic: train: "
    assert out.getvalue() == "loss [bold] 1.0\n"
    assert err.getvalue().splitlines() == [
        f"kinetic: {SUBJECT.job_id} train: queue: waiting for a driver",
        head + "slice: getting tpu-v6e-16-0 ready",
        head + "env",
        head + "run",
        head + "warning: rank 2 is silent",
        head + "succeeded",
    ]


class Clock:
    """Time that moves when told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("seconds", "lines"), [(1.9, ["queue: a", "run"]), (2.0, ["queue: a", "queue: c", "run"])])
def test_what_a_stage_waits_for_is_told_again_when_it_waits_long(seconds: float, lines: list[str]) -> None:
    err, clock = io.StringIO(), Clock()
    reporter = PlainReporter(SUBJECT, LogWriter(io.StringIO()), err, clock=clock)
    for message in "abc":
        reporter.show(JobState(stage=Stage.QUEUE, message=message))
    clock.now = seconds
    reporter.show(JobState(stage=Stage.QUEUE, message="c"))
    reporter.show(JobState(JobStatus.RUNNING, Stage.RUN, ranks=RANKS))
    assert [line.partition("train: ")[2] for line in err.getvalue().splitlines()] == lines


def test_without_a_terminal_a_silent_driver_is_told_while_the_job_runs() -> None:
    err, clock = io.StringIO(), Clock()
    reporter = PlainReporter(SUBJECT, LogWriter(io.StringIO()), err, clock=clock)
    running = JobState(JobStatus.RUNNING, Stage.RUN, ranks=RANKS)
    reporter.show(running)
    clock.now = 20.0
    for message in ("silent", "silent", ""):
        reporter.show(replace(running, message=message))
    assert [line.partition("train: ")[2] for line in err.getvalue().splitlines()] == ["run", "run: silent", "run"]


@pytest.mark.parametrize(
    ("logs", "written"),
    [
        ([b"no newline"], "no newline\nkinetic: "),
        ([b"a", b"\n"], "a\nkinetic: "),
        ([b"a", b""], "a\nkinetic: "),
        ([], "kinetic: "),
        ([b"[Gloo] Ra"], "[Gloo] Ra\nkinetic: "),
    ],
)
def test_stages_never_stand_on_the_users_line(logs: list[bytes], written: str) -> None:
    both = io.StringIO()  # as with 2>&1
    reporter = PlainReporter(SUBJECT, LogWriter(both), both)
    for data in logs:
        reporter.log(data)
    reporter.show(JobState(JobStatus.SUCCEEDED, Stage.ENDED))
    reporter.close()
    assert both.getvalue().startswith(written)
    assert "\n\n" not in both.getvalue()


GLOO = b"[Gloo] Rank 2 is connected to 3 peer ranks. Expected number of connected peer ranks is : 3\n"


@pytest.mark.parametrize(
    "other",
    [GLOO[:-1] + b".\n", b" " + GLOO, b"x" + GLOO, GLOO.replace(b"2", b"two"), GLOO[:-1] + b"\r\n", b"[Gloo]\n"],
)
def test_only_gloos_very_lines_are_left_out(other: bytes) -> None:
    quieted = Quieted()
    assert quieted.passed(GLOO + other + GLOO + b"end") + quieted.rest() == other + b"end"


PIECES = st.lists(st.sampled_from([GLOO, b"loss 1.0\n", b" 10%\r", b"[Gloo] Rank \n", b"[Gloo] no\n", b"\n", b"tail"]))


@given(PIECES, st.integers(1, 40))
def test_what_is_left_out_does_not_depend_on_how_the_log_arrives(pieces: list[bytes], size: int) -> None:
    log, whole, parts = b"".join(pieces), Quieted(), Quieted()
    chunks = [log[place : place + size] for place in range(0, len(log), size)]
    shown = b"".join(map(parts.passed, chunks)) + parts.rest()
    assert shown == whole.passed(log) + whole.rest()
    assert shown == b"\n".join(line for line in log.split(b"\n") if line != GLOO[:-1])


def test_anything_else_is_shown_at_once() -> None:
    quieted = Quieted()
    assert [quieted.passed(bytes([byte])) for byte in b" 10%\r 20%"] == [bytes([byte]) for byte in b" 10%\r 20%"]


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_both_displays_leave_gloo_out(stream: type[io.StringIO]) -> None:
    out = stream()
    reporter = open_reporter(SUBJECT, out=out, err=stream())
    reporter.log(b"one\n" + GLOO[:20])
    reporter.log(GLOO[20:] + b"two\n")
    reporter.close()
    assert out.getvalue() == "one\ntwo\n"


def test_on_a_terminal_lines_scroll_above_the_stages() -> None:
    stream, clock = Terminal(), Clock()
    reporter = LiveReporter(SUBJECT, LogWriter(stream), stream, clock=clock)
    screen = Screen()

    def seen() -> list[str]:
        screen.feed(stream.getvalue().replace("\n", "\r\n"))  # as a terminal driver does
        stream.seek(0)
        stream.truncate()
        return screen.text()

    reporter.show(JobState(stage=Stage.QUEUE, message="2 jobs before this one"))
    assert seen() == ["[queue] > slice > env > run  2 jobs before this one  0.0 s  train  job-00000000"]
    clock.now = 3.0
    reporter.show(JobState(JobStatus.RUNNING, Stage.RUN, ranks=RANKS))
    reporter.log(b"one [red] \x1b[2J\ntwo\n 10%\r 20%")
    rows = seen()
    assert rows[:3] == ["one [red]", "two", " 20%"]
    assert rows[3].startswith("queue > slice > env > [run]  4 hosts  0.0 s  train")
    clock.now = 4.0
    progress = Progress(50, 100, {"loss": 0.5}, 4.0)
    running = JobState(JobStatus.RUNNING, Stage.RUN, ranks=RANKS, progress=progress, warnings=("disk is slow",))
    reporter.show(running)
    rows = seen()
    assert rows[2:4] == ["kinetic: warning: disk is slow", " 20%"]
    assert rows[5] == "[############............]  50%  step 50/100  loss=0.5"
    reporter.show(replace(running, status=JobStatus.FAILED, stage=Stage.ENDED, reason="UserError", failed_rank=1))
    reporter.close()
    rows = seen()
    assert rows[:4] == ["one [red]", "two", "kinetic: warning: disk is slow", " 20%"]
    assert rows[4].startswith("kinetic: train failed (UserError, host 1) after 4.0 s (job-")
    assert len(rows) <= 6


PROGRAM = """
import sys
from kinetic_ray.core.state import JobState, JobStatus, Progress, RankState, Stage
from kinetic_ray.ui import Subject, open_reporter
ranks = tuple(RankState(r, phase="call") for r in range(4))
reporter = open_reporter(Subject("job-0000000000e008000000000000", "train\\u2603" * 9, "tpu-v6e-16"))
reporter.show(JobState(stage=Stage.SLICE, slices=("tpu-v6e-16-0",)))
for n in range(200):
    reporter.log(b"line %03d [bold] \\x1b[31mred\\x1b[0m \\x1b]0;t\\x07\\n" % n)
    progress = Progress(n, 200, {"loss": 1 / (n + 1)}, float(n))
    reporter.show(JobState(JobStatus.RUNNING, Stage.RUN, ranks=ranks, progress=progress))
reporter.show(JobState(JobStatus.SUCCEEDED, Stage.ENDED, ranks=ranks))
reporter.close()
"""


@pytest.mark.parametrize("columns", [40, 100])
def test_in_a_real_terminal_no_line_is_mangled(columns: int) -> None:
    env = {**os.environ, "TERM": "xterm"}
    code, written = run_in_terminal([sys.executable, "-c", PROGRAM], env=env, columns=columns)
    assert code == 0, written
    screen = Screen(columns)
    screen.feed(written)
    rows = screen.text()
    assert rows[:200] == [f"line {n:03d} [bold] red" for n in range(200)]
    assert "".join(rows[200:]).endswith("(job-0000000000e008000000000000)")
    assert "succeeded after" in "".join(rows[200:])
    assert "[slice]" in written
    assert "[run]" in written


def test_a_terminal_that_cannot_move_its_cursor_gets_lines() -> None:
    code, written = run_in_terminal([sys.executable, "-c", PROGRAM], env={**os.environ, "TERM": "dumb"})
    rows = written.replace("\r\n", "\n").splitlines()
    assert (code, "\x1b[J" in written, "\r" in "".join(rows)) == (0, False, False)
    assert next(row for row in rows if row.startswith("kinetic: ")).endswith(": slice: getting tpu-v6e-16-0 ready")
