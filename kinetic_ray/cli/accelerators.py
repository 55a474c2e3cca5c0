"""`kinetic accelerators`: what there is to ask for."""

from __future__ import annotations

from dataclasses import asdict

import click

from kinetic_ray import config
from kinetic_ray.cli.output import json_option, print_json, print_table
from kinetic_ray.core.accelerators import Accelerator, all_accelerators
from kinetic_ray.errors import UsageError


@click.command()
@click.option("--family", help="Only one family, e.g. v6e or l4.")
@json_option
def accelerators(family: str | None, as_json: bool) -> None:
    """List the accelerators there are.

    A TPU's number counts chips. Where GCP's own name counts cores, it is printed beside.
    """
    rows = [row for row in all_accelerators() if family is None or row.family == family.strip().lower()]
    if not rows:
        families = ", ".join(dict.fromkeys(row.family for row in all_accelerators()))
        raise UsageError(f"no accelerator family {family!r}; there are: {families}")
    if as_json:
        print_json({"accelerators": [_facts(row) for row in rows]})
        return
    headers = ("accelerator", "hosts", "per host", "topology", "machine", "gcp name")
    print_table(headers, [_cells(row) for row in rows], color=config.color())


def _facts(row: Accelerator) -> dict[str, object]:
    facts = asdict(row)
    del facts["spot"]  # belongs to a spelling, not to the accelerator
    return facts


def _cells(row: Accelerator) -> tuple[str, ...]:
    unit = {"tpu": "chip", "gpu": "GPU", "cpu": "CPU"}[row.kind]
    count = row.chips_per_host or row.cpus
    per_host = f"{count} {unit}{'s' if count != 1 else ''}"
    return row.name, str(row.hosts), per_host, row.topology or "-", row.machine_type or "-", row.gcp_name or "-"
