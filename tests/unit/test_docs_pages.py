"""The pages about nouns and accelerators say what the code says."""

import ast
import inspect
import re
from pathlib import Path

from kinetic_ray import errors
from kinetic_ray.core.accelerator_table import GPUS, TPUS, GpuModel, TpuFamily, chips_in
from kinetic_ray.core.state import JobStatus, RankPhase, Reason, Stage
from kinetic_ray.settings import SETTINGS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def _page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "-"


def _tpu_row(family: TpuFamily) -> str:
    shapes = []
    for shape in family.shapes:
        hosts = family.hosts_for(shape)
        built = f" ({' or '.join(map(str, hosts))})" if len(hosts) > 1 else ""
        shapes.append(f"{chips_in(shape)}: {shape}{built}")
    usual = f"`tpu-{family.name}-{family.default_chips}`"
    larger = f"of up to {family.max_cubes * 64} chips" if family.max_cubes else "-"
    return f"| `{family.name}` | {_names(family.aliases)} | {', '.join(shapes)} | {usual} | {larger} |"


def _gpu_row(model: GpuModel) -> str:
    return f"| `{model.name}` | {_names(model.aliases)} | {', '.join(str(count) for count, _ in model.machines)} |"


def _rows_below(page: str, head: str) -> list[str]:
    lines = page[page.index(head) :].partition("\n\n")[0].splitlines()
    return lines[2:]


def test_accelerators_page_has_the_table_of_the_code() -> None:
    page = _page("accelerators.md")
    assert _rows_below(page, "| family |") == [_tpu_row(family) for family in TPUS]
    assert _rows_below(page, "| GPU |") == [_gpu_row(model) for model in GPUS]


def _concepts(heading: str) -> str:
    return _page("concepts.md").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_concepts_page_has_every_status_and_phase() -> None:
    told = _concepts("Status, phase, reason")
    assert re.findall(r"`([A-Z_]{6,})`", told.partition("**Phase**")[0]) == [str(status) for status in JobStatus]
    stages = [line.split("`")[1] for line in _rows_below(told, "| phase |")]
    assert stages == [*map(str, Stage), "driver lost"]
    of_ranks = told.partition("Each rank has phases")[2].partition("\n\n")[0]
    assert re.findall(r"`([a-z]+)`", of_ranks) == [str(phase) for phase in RankPhase]


def test_the_picture_of_a_job_s_life_has_its_stages_and_phases_in_order() -> None:
    picture = _concepts("The life of a job").partition("```text\n")[2].partition("```")[0]
    column = [line[64:] for line in picture.splitlines()]
    stages = [found[1] for line in column if (found := re.match(r"\| (\w+) ", line))]
    assert stages == [str(stage) for stage in Stage if stage is not Stage.SUBMITTED]
    phases = re.findall(r"\b(" + "|".join(RankPhase) + r")\b", " ".join(column))
    assert list(dict.fromkeys(phases)) == [str(phase) for phase in RankPhase]


def test_troubleshooting_has_a_section_of_every_error_and_every_reason() -> None:
    headings = re.findall(r"^### (\w+)$", _page("troubleshooting.md"), re.MULTILINE)
    classes = [name for name, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]
    raised = {name for name in classes if issubclass(getattr(errors, name), errors.KineticError)}
    bases = {"KineticError", "JobError"}
    assert sorted(headings) == sorted([*(raised - bases), "TimeoutError", *map(str, Reason)])


def _said_by_the_code() -> str:
    """Every text that stands in the code, those of several lines in one piece, with … for what is filled in."""
    found = []
    for path in (ROOT / "kinetic_ray").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(str(p.value) if isinstance(p, ast.Constant) else "…" for p in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def test_troubleshooting_shows_messages_as_they_are_printed() -> None:
    page, said = _page("troubleshooting.md"), _said_by_the_code()
    blocks = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    parts = [part.strip(" .:;") for block in blocks for line in block.splitlines() for part in line.split("…")]
    assert [part for part in parts if part and part not in said] == []


def test_the_limits_of_what_is_sent_are_those_of_the_settings() -> None:
    rows = re.findall(r"above (\d+) MB \| `(KINETIC_\w+)` \|$", _page("your-code.md"), re.MULTILINE)
    limits = [setting for setting in SETTINGS.values() if setting.env.endswith("_LIMIT_MB")]
    assert sorted(rows) == sorted((setting.default, setting.env) for setting in limits)
