"""The benchmarks' harness: fair turns, honest figures."""

from benchmarks.harness import Aim, Contender, interleave, machine, table


def test_rounds_are_interleaved_and_their_order_turns() -> None:
    order: list[str] = []

    def contender(name: str) -> Contender:
        def sample() -> float:
            order.append(name)
            return float(len(order))

        return Contender(name, sample)

    samples = interleave([contender("a"), contender("b")], rounds=2, warm_up=1)
    assert order == ["b", "a", "a", "b", "b", "a"]
    assert samples == {"a": [3.0, 6.0], "b": [4.0, 5.0]}


def test_table_prints_minimum_median_count_and_what_became_of_the_aim() -> None:
    samples = {"ours": [0.3, 0.1, 0.2], "theirs": [2.0]}
    text = table("a race", samples, [Aim("ours", "theirs", 0.12), Aim("theirs", "ours", 5), Aim("ours", "absent", 1)])
    assert [line.split() for line in text.splitlines()[:3]] == [
        ["a", "race", "min", "median", "n"],
        ["ours", "100.0", "ms", "200.0", "ms", "3"],
        ["theirs", "2.00", "s", "2.00", "s", "1"],
    ]
    assert text.splitlines()[3:] == [
        "  ours / theirs: 0.10x of the medians (aim <= 0.12x: reached)",
        "  theirs / ours: 10.00x of the medians (aim <= 5x: missed)",
    ]


def test_a_contender_without_samples_is_shown_as_such() -> None:
    assert table("t", {"skipped": []}).splitlines()[1].split() == ["skipped", "-", "-", "0"]


def test_machine_line_names_processor_cores_and_versions() -> None:
    line = machine()
    assert line.startswith("machine: ")
    assert all(word in line for word in ("cores", "GiB", "Python 3.", "ray "))
