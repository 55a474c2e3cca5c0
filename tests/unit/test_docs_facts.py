"""Tables in the docs say what the code says."""

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

import kinetic_ray as kinetic
from kinetic_ray.core.names import IndexEntry, JobKeys
from kinetic_ray.core.state import Reason
from kinetic_ray.options import LATER, OptionKwargs
from kinetic_ray.settings import SETTINGS
from kinetic_ray.testing import LocalCluster, fixtures

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
JOB = "job-0000000000e008000000000000"


def _patterns() -> list[re.Pattern[str]]:
    """The keys of docs/store.md; what stands in angle brackets is any name."""
    block = re.search(r"```text\n(.*?)```", (DOCS / "store.md").read_text(), re.DOTALL)
    assert block
    keys = [line.split("  ")[0] for line in block.group(1).splitlines()]
    return [re.compile(re.sub(r"<[^>]+>", "[^/]+", re.escape(key))) for key in keys]


def _golden() -> list[str]:
    layout = ROOT / "tests" / "golden" / "jobs-v1"
    return sorted(path.relative_to(layout).as_posix() for path in layout.rglob("*") if path.is_file())


def _keys() -> list[str]:
    keys = JobKeys(JOB)
    ranks = [make(1, 1, 0) for make in (keys.outcome, keys.value, keys.error, keys.log)]
    drivers = [keys.claim(1), keys.adopted(1), keys.heartbeat(1), keys.segment(1, 1)]
    index = IndexEntry(JOB, "PENDING", "train").key()
    return [keys.spec, keys.cancel, keys.env("ab"), f"{keys.outputs}/a", index, *drivers, *ranks]


@pytest.mark.parametrize("key", [*_golden(), *_keys()])
def test_store_page_names_every_key(key: str) -> None:
    assert [pattern.pattern for pattern in _patterns() if pattern.fullmatch(key)], f"docs/store.md lacks {key}"


def test_errors_page_explains_every_reason() -> None:
    rows = [line.split("|")[1] for line in (DOCS / "errors.md").read_text().splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(map(str, Reason))


def _variables_of_the_docs() -> set[str]:
    text = "\n".join(page.read_text() for page in [ROOT / "README.md", *DOCS.glob("*.md")])
    return set(re.findall(r"(?<!_)KINETIC_[A-Z_]+", text))


def _variables_read() -> set[str]:
    """What the client and the embedded cluster read of the user's environment."""
    places = [ROOT / "kinetic_ray" / "config.py", ROOT / "kinetic_ray" / "backends" / "local" / "env.py"]
    return {name for place in places for name in re.findall(r'env(?:iron)?\.get\("(KINETIC_\w+)"', place.read_text())}


def test_every_variable_that_is_read_is_in_the_table_and_in_the_docs() -> None:
    table = {setting.env for setting in SETTINGS.values()}
    assert _variables_read() <= table
    assert {name for name in table if name.startswith("KINETIC_")} <= _variables_of_the_docs()


def test_variables_of_the_docs_exist() -> None:
    settings = {setting.env for setting in SETTINGS.values()}
    wrong = {"KINETIC_STOER"}  # shown as one that is a typing error
    assert _variables_of_the_docs() - wrong <= settings | _set_on_ranks()


def _set_on_ranks() -> set[str]:
    return set(re.findall(r'"(KINETIC_\w+)":', (ROOT / "kinetic_ray" / "runner" / "settling.py").read_text()))


def test_the_variables_of_a_rank_are_told() -> None:
    block = (DOCS / "your-code.md").read_text().partition("## Inside a job")[2].partition("\n## ")[0]
    assert set(re.findall(r"KINETIC_[A-Z_]+", block)) == _set_on_ranks()


def _reference(heading: str) -> str:
    page = (DOCS / "reference.md").read_text()
    return page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def _rows(heading: str) -> set[str]:
    """The names in the first cells of a section's table, without what follows them in brackets."""
    cells = [line.split("|")[1] for line in _reference(heading).splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`(\w+)[^`]*`", cell)}


def _public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_reference_names_every_option_and_no_other() -> None:
    later = _reference("Options").partition("Not available yet, refused")[2]
    assert _rows("Options") == set(OptionKwargs.__annotations__)
    assert set(re.findall(r"`(\w+)`", later)) == set(LATER)


def test_reference_names_every_member_and_no_other() -> None:
    assert _rows("JobHandle") == _public(kinetic.JobHandle) | {"job_id"}
    assert _rows("RemoteFunction") == _public(kinetic.RemoteFunction) | {"calls_run", "f"}
    assert _rows("In a job") == {each.name for each in fields(kinetic.Context)}


def test_reference_names_the_parameters_that_there_are() -> None:
    text = (DOCS / "reference.md").read_text()
    for function in (kinetic.JobHandle.logs, kinetic.JobHandle.tail, kinetic.JobHandle.result, kinetic.JobHandle.wait):
        [written] = re.findall(rf"^\| `{function.__name__}\(([^)]*)\)`", text, re.MULTILINE)
        assert set(re.findall(r"(\w+)=?", written.replace("None", ""))) - {"False", "0", "100"} <= {
            *inspect.signature(function).parameters
        }
    for public in (kinetic.attach, kinetic.list_jobs, kinetic.report):
        [written] = re.findall(rf"`kinetic\.{public.__name__}\(([^)]+)\)`", text)
        assert set(re.findall(r"(\w+)(?:=|,|$)", written)) - {"None"} <= {*inspect.signature(public).parameters}


def test_reference_points_to_every_public_name() -> None:
    text = (DOCS / "reference.md").read_text()
    assert [name for name in kinetic.__all__ if not name.startswith("_") and name not in text] == []


def _cells_of_testing(heading: str) -> set[str]:
    section = (DOCS / "testing.md").read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`(\w+)[^`]*`", cell)}


def test_testing_page_names_every_member_and_fixture_and_no_other() -> None:
    assert _cells_of_testing("What can befall a cluster") == _public(LocalCluster) | {"home"}
    public = {name for name in vars(fixtures) if name.startswith("kinetic_")}
    assert _cells_of_testing("In pytest") == public


def test_testing_page_names_the_parameters_that_there_are() -> None:
    text = (DOCS / "testing.md").read_text()
    written = dict(re.findall(r"`(\w+)\(([^)`]+)\)`", text))
    for name in ("preempt", "kill_host", "kill_rank", "kill_driver", "delay_host", "delay_rank", "start_slices"):
        taken = inspect.signature(getattr(LocalCluster, name))
        names = [each.split("=")[0].strip() for each in written[name].split(",")]
        assert [each for each in names if each != "*"] == list(taken.parameters)[1:]
