"""Secrets on a host, without Ray: its processes have them, its agent's own environment and plans don't."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kinetic_ray.errors import ConfigError
from kinetic_ray.runner.agent import HostAgent
from kinetic_ray.runner.calls.failures import CallFailure
from kinetic_ray.vault import Vault
from tests.integration.host.gangs import Gang
from tests.integration.host.hosts import Hosts

MakeGang = Callable[..., Gang]


@pytest.fixture
def vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Vault:
    """What the agents of this process read."""
    vault = Vault(tmp_path / "secrets")
    monkeypatch.setenv("KINETIC_SECRETS", str(vault.folder))
    return vault


def test_a_rank_has_what_is_stored_when_its_zygote_begins(gang_of: MakeGang, vault: Vault) -> None:
    vault.put("hf", {"HF_TOKEN": "stored", "MY_SETTING": "stored"})
    gang = gang_of()
    plan = {**gang.plan.to_dict(), "env_vars": {"MY_SETTING": "the job's"}, "secrets": {"hf": "1"}}
    [agent] = gang.agents
    first = agent.prepare(plan)
    assert gang.run(os.getenv, "HF_TOKEN") == ["stored"]
    assert gang.run(os.getenv, "MY_SETTING") == ["the job's"]
    vault.put("hf", {"HF_TOKEN": "changed"})
    assert agent.prepare(plan)["pid"] == first["pid"]
    assert agent.prepare({**plan, "secrets": {"hf": "2"}})["pid"] != first["pid"]
    assert gang.run(os.getenv, "HF_TOKEN") == ["changed"]
    assert "HF_TOKEN" not in os.environ
    assert "changed" not in repr(vars(agent))


@pytest.mark.parametrize(
    ("stored", "wanted", "told"),
    [
        ({}, {"hf": ""}, "no secret 'hf' on this host; there are: none"),
        ({"hf": {"HF_TOKEN": "a"}}, {"hf:TOKEN": ""}, "it has HF_TOKEN"),
        ({"hf": {"A": "1"}, "aws": {"A": "2"}}, {"hf": "", "aws": ""}, "both set A"),
    ],
)
def test_a_host_that_lacks_one_says_which(
    vault: Vault, stored: dict[str, dict[str, str]], wanted: dict[str, str], told: str
) -> None:
    for name, values in stored.items():
        vault.put(name, values)
    agent = HostAgent()
    with pytest.raises(ConfigError, match=told):
        agent.prepare({"secrets": wanted})
    agent.stop()
    _assert_refused(told, secrets=wanted)


def test_a_host_without_secrets_says_so() -> None:
    with pytest.raises(ConfigError, match=r"secrets=\['hf'\]: this host has no folder of secrets"):
        HostAgent().prepare({"secrets": {"hf": ""}})
    _assert_refused("no folder of secrets", secrets={"hf": ""})


def _assert_refused(told: str, **wish: Any) -> None:
    hosts = Hosts(1, 0)
    try:
        with pytest.raises(CallFailure, match=told) as caught:
            hosts.open(**wish)
        assert caught.value.reason == "SetupError"
    finally:
        hosts.stop()
