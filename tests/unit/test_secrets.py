"""Secrets are named, never told: references, the files that values lie in, what of them hosts set, what is printed."""

import dataclasses
import importlib
import json
import os
import pkgutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import kinetic_ray
from kinetic_ray.backends.base import Need
from kinetic_ray.calls.asking import need_of, secrets_of
from kinetic_ray.cli.main import root
from kinetic_ray.config import resolve
from kinetic_ray.core.secrets import USUAL_KEYS, check_secrets, parse_ref, variables_of
from kinetic_ray.core.urls import has_password, shown_url
from kinetic_ray.errors import ConfigError, UsageError
from kinetic_ray.jobs.refusals import output_dir_of
from kinetic_ray.options import check_options
from kinetic_ray.payload.blame import find_culprit
from kinetic_ray.runner.births import secret_variables, ways_to_begin, zygote_env
from kinetic_ray.runner.calls.seating import plan_key
from kinetic_ray.runner.calls.wish import Order, Wish
from kinetic_ray.runner.task import HostPlan
from kinetic_ray.testing.thread_backend import ThreadBackend
from kinetic_ray.vault import Vault

CANARY = "CaNaRy-0f3b-token"


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault.of(tmp_path / "home")


# References.


@pytest.mark.parametrize("given", [["hf", "aws:AWS_REGION"], ("hf", "hf"), [], {"hf": None}.keys(), (n for n in ["a"])])
def test_names_are_taken_once_and_in_order(given: Any) -> None:
    wanted = tuple(dict.fromkeys(given)) if not isinstance(given, Iterator) else ("a",)
    assert check_secrets("secrets", given) == {"secrets": wanted}


@pytest.mark.parametrize(
    "given",
    [
        {"HF_TOKEN": CANARY},
        CANARY,
        [CANARY],
        [f"hf:{CANARY}"],
        [f"HF_TOKEN={CANARY}"],
        ["hf", CANARY],
        [("hf", CANARY)],
        [None],
        ["x" * 33],
        ["../hf"],
        [".hf"],
        ["hf/x"],
        [""],
        7,
    ],
)
def test_what_may_be_a_value_is_refused_and_not_repeated(given: Any) -> None:
    with pytest.raises(UsageError, match="kinetic secret set") as caught:
        check_options({"secrets": given})
    assert CANARY not in str(caught.value)


def test_secrets_are_what_they_set() -> None:
    stored = {"hf": {"HF_TOKEN": "a"}, "aws": {"KEY": "b", "REGION": "c"}, "same": {"KEY": "b"}, "other": {"KEY": "d"}}
    assert variables_of(["hf", "aws:REGION"], stored) == {"HF_TOKEN": "a", "REGION": "c"}
    assert variables_of(["aws", "same"], stored) == {"KEY": "b", "REGION": "c"}
    assert variables_of(["other", "aws:REGION"], stored) == {"KEY": "d", "REGION": "c"}
    with pytest.raises(ConfigError, match=r"'aws' and 'other' both set KEY: .*other:VARIABLE"):
        variables_of(["aws", "other"], stored)
    with pytest.raises(ConfigError, match=r"no secret 'awx'.*did you mean 'aws'\? There are: aws, hf.*secret set awx"):
        variables_of(["awx"], stored)
    with pytest.raises(ConfigError, match="has no such variable as is asked for; it has KEY, REGION"):
        variables_of(["aws:TOKEN"], stored)


_NAMES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,6}[a-z0-9])?", fullmatch=True)


@given(_NAMES, st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True) | st.just(""))
def test_a_reference_is_written_as_it_is_read(name: str, key: str) -> None:
    text = f"{name}:{key}" if key else name
    assert parse_ref(text).text == text


# Files.


def test_values_lie_in_owner_only_files_and_variables_are_added(vault: Vault) -> None:
    mask = os.umask(0)
    try:
        vault.put("aws", {"KEY": "b"})
    finally:
        os.umask(mask)
    vault.put("aws", {"REGION": "c"})
    vault.put("aws", {"KEY": "d"})
    assert vault.variables(["aws"]) == {"KEY": "d", "REGION": "c"}
    assert stat.S_IMODE(vault.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in vault.folder.iterdir()} == {0o600}
    assert vault.names() == ["aws"]
    [entry] = vault.entries()
    assert (entry.name, entry.keys) == ("aws", ("KEY", "REGION"))


def test_a_change_is_seen_without_a_look_at_the_value(vault: Vault) -> None:
    assert vault.version("hf") == ""
    vault.put("hf", {"HF_TOKEN": "a"})
    first = vault.version("hf")
    assert vault.version("hf") == first
    vault.put("hf", {"HF_TOKEN": "a"})
    assert vault.version("hf") not in ("", first)


def test_removal(vault: Vault) -> None:
    assert not vault.remove("aws")
    vault.put("aws", {"KEY": "b", "REGION": "c"})
    assert not vault.remove("aws", ["TOKEN"])
    assert vault.remove("aws", ["REGION", "TOKEN"])
    assert vault.variables(["aws"]) == {"KEY": "b"}
    assert vault.remove("aws", ["KEY"])
    assert vault.names() == []
    vault.put("aws", {"KEY": "b"})
    (vault.folder / "aws.json").chmod(0o644)
    assert vault.remove("aws")


@pytest.mark.parametrize("opened", ["hf.json", "."])
def test_what_others_can_read_is_refused(vault: Vault, opened: str) -> None:
    vault.put("hf", {"HF_TOKEN": CANARY})
    (vault.folder / opened).chmod(0o750 if opened == "." else 0o640)
    with pytest.raises(ConfigError, match="chmod go=") as caught:
        vault.put("hf", {"HF_TOKEN": "b"})
    assert CANARY not in str(caught.value)
    if opened != ".":
        with pytest.raises(ConfigError, match="chmod go="):
            vault.check(["hf"])


@pytest.mark.parametrize("damage", [b"", b"no record", b'{"kind": "secret"}'])
def test_a_damaged_file_is_named_and_not_shown(vault: Vault, damage: bytes) -> None:
    vault.put("hf", {"HF_TOKEN": CANARY})
    path = vault.folder / "hf.json"
    path.write_bytes(damage)
    with pytest.raises(Exception, match=r"hf\.json"):
        vault.variables(["hf"])
    path.unlink()
    path.symlink_to(vault.folder / ".lock")
    with pytest.raises(ConfigError, match="can't be read"):
        vault.variables(["hf"])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("../hf", {"A": "b"}),
        ("HF", {"A": "b"}),
        ("hf", {"KINETIC_RANK": "1"}),
        ("hf", {"A=B": "1"}),
        ("hf", {"A": f"{CANARY}\0"}),
        ("hf", {"A": "x" * 200_000}),
    ],
)
def test_what_no_process_could_have_is_not_stored(vault: Vault, name: str, values: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        vault.put(name, values)
    assert CANARY not in str(caught.value)
    assert vault.names() == []


def test_two_that_store_at_once_lose_nothing(vault: Vault) -> None:
    storing = [threading.Thread(target=vault.put, args=("many", {f"KEY_{n}": str(n)})) for n in range(8)]
    for thread in storing:
        thread.start()
    for thread in storing:
        thread.join()
    assert vault.variables(["many"]) == {f"KEY_{n}": str(n) for n in range(8)}


# What hosts set.


def test_a_host_sets_what_it_has_and_the_calls_own_words_win(vault: Vault) -> None:
    vault.put("hf", {"HF_TOKEN": "stored", "HF_HOME": "/cache"})
    plan = HostPlan(env_vars={"HF_HOME": "/mine"}, secrets={"hf": ""})
    secrets = secret_variables(plan, {"KINETIC_SECRETS": str(vault.folder)})
    env = zygote_env({"HF_TOKEN": "the host's"}, plan, {}, secrets)
    assert (env["HF_TOKEN"], env["HF_HOME"]) == ("stored", "/mine")
    assert secret_variables(HostPlan(), {}) == {}
    with pytest.raises(ConfigError, match="no folder of secrets"):
        secret_variables(plan, {})


def test_values_never_go_through_the_nursery(tmp_path: Path) -> None:
    (tmp_path / "nursery").touch()
    environ = {"KINETIC_NURSERY": str(tmp_path / "nursery")}
    ways = ways_to_begin(HostPlan("jax", 4, True, secrets={"hf": ""}), environ)
    assert [way.name for way in ways] == ["exec"]


def test_calls_share_warm_processes_while_secrets_are_the_same(vault: Vault, tmp_path: Path) -> None:
    target = resolve(environ={"KINETIC_HOME": str(tmp_path / "home")})
    options = check_options({"secrets": ["hf", "aws:KEY"]})
    vault.put("hf", {"HF_TOKEN": CANARY})
    before = Wish(secrets=secrets_of(options, target))
    assert Wish(secrets=secrets_of(options, target)).key == before.key
    assert set(before.secrets) == {"hf", "aws:KEY"}
    vault.put("hf", {"HF_TOKEN": "another"})
    after = Wish(secrets=secrets_of(options, target))
    assert (after.key, plan_key(after)) != (before.key, plan_key(before))
    order = Order(after, "digest", "f", "client")
    assert Order.from_bytes(order.to_bytes()) == order
    assert HostPlan.from_dict(HostPlan(secrets=after.secrets).to_dict()).secrets == after.secrets


def test_backends_refuse_secrets_that_are_not_there(vault: Vault) -> None:
    need = need_of(check_options({"secrets": ["hf"]}))
    assert need == Need("cpu", secrets=("hf",))
    backend = ThreadBackend(vault.folder.parent)
    with pytest.raises(ConfigError, match="no secret 'hf'"):
        backend.check(need)
    vault.put("hf", {"HF_TOKEN": "a"})
    backend.check(need)


# What is printed.


def _modules() -> Iterator[Any]:
    for found in pkgutil.walk_packages(kinetic_ray.__path__, "kinetic_ray."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def _dataclasses() -> dict[str, type]:
    found = {}
    for module in _modules():
        for kind in vars(module).values():
            if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__:
                found[f"{module.__name__}.{kind.__qualname__}"] = kind
    return found


def test_nothing_that_holds_values_shows_them_in_its_repr() -> None:
    """Every field of a dataclass that holds an environment, a token, or bytes of whatever, is left out of the repr."""
    names = {"env", "env_vars", "environ", "environment", "variables", "values", "token", "password", "words"}
    wrong, seen = [], 0
    for place, kind in _dataclasses().items():
        for field in dataclasses.fields(kind):
            hint = str(field.type)
            is_named = field.name in names and (field.name == "token" or "Mapping" in hint or "dict" in hint)
            if is_named or hint in ("bytes", "bytes | None"):
                seen += 1
                is_made = getattr(vars(kind)["__repr__"], "__wrapped__", None) is not None  # not the class's own
                if field.repr and is_made:
                    wrong.append(f"{place}.{field.name}")
    assert seen >= 15
    assert wrong == []


@pytest.mark.parametrize(
    "made",
    [
        check_options({"env_vars": {"A": CANARY}}),
        HostPlan(env_vars={"A": CANARY}),
        Wish(env_vars={"A": CANARY}),
        Order(Wish(env_vars={"A": CANARY}), "digest", "f", "client"),
        kinetic_ray.remote(env_vars={"A": CANARY})(len),
        kinetic_ray.run(env_vars={"A": CANARY})(len),
    ],
)
def test_reprs_have_no_values(made: object) -> None:
    assert CANARY not in repr(made)
    assert CANARY not in f"{made}"


@pytest.mark.parametrize(
    "given",
    [
        {"volumes": {"/data": CANARY}},
        {"failure": {"token": CANARY}},
        {"dependencies": [f"https://ann:{CANARY}@host/x.whl"]},
        {"queue": f"https://ann:{CANARY}@host/"},
        {"env_vars": [f"A={CANARY}"]},
        {"env_vars": {f"A={CANARY}": "1"}},
        {"env_vars": {"A": CANARY.encode()}},
        {"env_vars": {"A": f"{CANARY}\0"}},
        {"capture_env_vars": {"A": CANARY}},
        {"capture_env_vars": [f"A={CANARY}"]},
        {"output_dir": f"s3://ann:{CANARY}@bucket/x"},
    ],
)
def test_refused_options_are_not_repeated_where_they_may_be_values(given: Mapping[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        check_options(given)
    assert CANARY not in str(caught.value)


def test_urls_with_passwords_are_refused_wherever_they_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"gs://ann:{CANARY}@bucket/x"
    for refused in (
        lambda: resolve(store=url, environ={}),
        lambda: resolve(environ={"KINETIC_STORE": url}),
        lambda: kinetic_ray.attach("job-" + "0" * 26, store=url),
    ):
        with pytest.raises(ConfigError, match=r"password") as caught:
            refused()
        assert CANARY not in str(caught.value)
    monkeypatch.setenv("KINETIC_OUTPUT_DIR", url)
    with pytest.raises(UsageError, match=r"KINETIC_OUTPUT_DIR='gs://.*password") as refusal:
        output_dir_of(check_options({}), resolve(environ={}))
    assert CANARY not in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "is_refused", "shown"),
    [
        ("s3://u:p@b/x", True, "s3://***@b/x"),
        ("https://u:p:q@b:80/x?y=1", True, "https://***@b:80/x?***"),
        ("https://b/x?token=1", False, "https://b/x?***"),
        ("abfs://container@account/x", False, "abfs://***@account/x"),
        ("gs://b/a:b@c", False, "gs://b/a:b@c"),
        ("/a:b@c", False, "/a:b@c"),
        ("file:///a:b@c", False, "file:///a:b@c"),
    ],
)
def test_what_of_a_url_is_shown(url: str, is_refused: bool, shown: str) -> None:
    assert (has_password(url), shown_url(url)) == (is_refused, shown)


def test_blame_shows_places_and_no_documents() -> None:
    def dump(value: object) -> object:
        if isinstance(value, threading.Thread) or (
            isinstance(value, list | set | dict | tuple) and any(map(_bad, value))
        ):
            raise TypeError
        return value

    def _bad(part: object) -> bool:
        return isinstance(part, threading.Thread | tuple)

    thread = threading.Thread(name=CANARY)
    told = find_culprit(len, ({thread},), {}, dump)
    assert told == "args[0]{item 0} (threading.Thread)"
    assert find_culprit(len, ({"x" * 500: thread},), {}, _refuse_threads).count("x") < 50


def _refuse_threads(value: object) -> object:
    if isinstance(value, threading.Thread) or (isinstance(value, dict) and value):
        raise TypeError
    return value


# The command.


@pytest.fixture
def kinetic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("KINETIC_HOME", str(tmp_path / "home"))

    def run(*words: str, given: str | bytes | None = None) -> tuple[int, str]:
        done = CliRunner().invoke(root, words, input=given)
        return done.exit_code, done.output

    return run


def test_a_secret_is_set_listed_and_removed(kinetic: Any, vault: Vault) -> None:
    assert kinetic("secret", "list") == (0, "kinetic: no secrets here. Store one: kinetic secret set NAME\n")
    assert kinetic("secret", "set", "hf", given=f"{CANARY}\n") == (0, "stored: hf sets HF_TOKEN\n")
    assert kinetic("secret", "set", "aws", "KEY", given="b\nc\r\n") == (0, "stored: aws sets KEY\n")
    assert vault.variables(["hf", "aws"]) == {"HF_TOKEN": CANARY, "KEY": "b\nc"}
    code, shown = kinetic("secret", "list")
    assert code == 0
    assert [line.split()[:2] for line in shown.splitlines()] == [
        ["NAME", "VARIABLES"],
        ["aws", "KEY"],
        ["hf", "HF_TOKEN"],
    ]
    code, document = kinetic("secret", "list", "--json")
    found = json.loads(document)["secrets"]
    assert [(one["name"], one["variables"], sorted(one)) for one in found] == [
        ("aws", ["KEY"], ["name", "stored_at", "variables"]),
        ("hf", ["HF_TOKEN"], ["name", "stored_at", "variables"]),
    ]
    assert CANARY not in shown + document
    assert kinetic("secret", "remove", "hf") == (0, "removed: hf\n")
    assert kinetic("secret", "remove", "aws", "KEY") == (0, "removed: aws KEY\n")
    assert vault.names() == []
    code, told = kinetic("secret", "remove", "hf")
    assert code == 2
    assert "no secret 'hf' here" in told


@pytest.mark.parametrize(
    ("words", "given", "told"),
    [
        (("hf", f"HF_TOKEN={CANARY}"), "", "a value is no argument"),
        (("database",), "", "kinetic secret set database VARIABLE"),
        (("kaggle",), "a", "set one at a time"),
        ((CANARY,), "", "can't be the name of a secret"),
        (("hf", "A B"), "", "can't be the name of a variable"),
        (("hf",), "", "standard input is empty"),
        (("hf",), b"\xff\xfe", "not UTF-8"),
        (("hf",), "a\0b", "NUL"),
    ],
)
def test_refusals(kinetic: Any, words: tuple[str, ...], given: str | bytes, told: str, vault: Vault) -> None:
    code, shown = kinetic("secret", "set", *words, given=given)
    assert code == 2
    assert told in shown
    assert CANARY not in shown
    assert vault.names() == []


@pytest.mark.parametrize(
    "words",
    [
        ("config",),
        ("config", "--explain"),
        ("config", "--explain", "--json"),
        ("doctor", "--json"),
        ("jobs", "list"),
        ("jobs", "list", "--store", f"s3://ann:{CANARY}@bucket/x"),
        ("profile", "create", "other", "--store", f"s3://ann:{CANARY}@bucket/x"),
        ("profile", "list"),
        ("profile", "list", "--json"),
        ("profile", "show", "mine"),
        ("profile", "show", "mine", "--json"),
        ("run", "--accelerator", "cpu", __file__),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("source", ["environment", "profile"])
def test_no_command_shows_the_password_of_a_url(
    kinetic: Any, words: tuple[str, ...], source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"gs://ann:{CANARY}@bucket/x"
    file = tmp_path / "home" / "profiles.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"current": "mine", "profiles": {"mine": {"store": url}}}))
    if source == "environment":
        monkeypatch.setenv("KINETIC_STORE", url)
        monkeypatch.setenv("KINETIC_OUTPUT_DIR", url)
    _, shown = kinetic(*words)
    assert len(shown) > 10
    assert CANARY not in shown


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("kinetic secret remove ", {"mine"}),
        ("kinetic secret set wan", {"wandb"}),
        ("kinetic secret set m", {"mine", "mlflow"}),
        ("kinetic run --secret ", {"mine"}),
        ("kinetic profile use ", {"other"}),
    ],
)
def test_shells_complete_names_and_are_shown_no_password(
    kinetic: Any, vault: Vault, monkeypatch: pytest.MonkeyPatch, words: str, offered: set[str]
) -> None:
    vault.put("mine", {"A": CANARY})
    profiles = {"other": {"store": f"gs://ann:{CANARY}@bucket/x"}}
    (vault.folder.parent / "profiles.json").write_text(json.dumps({"current": None, "profiles": profiles}))
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1), "_KINETIC_COMPLETE": "zsh_complete"}
    command = [sys.executable, "-m", "kinetic_ray"]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, timeout=60)
    lines = done.stdout.splitlines()
    assert set(lines[1::3]) == offered, done.stderr
    assert CANARY not in done.stdout + done.stderr


def test_usual_names_are_names_and_usual_variables_variables() -> None:
    for name, keys in USUAL_KEYS.items():
        assert check_secrets("secrets", [f"{name}:{key}" for key in keys])


def test_types_of_what_holds_values_are_known() -> None:
    """The rule above looks at written types: those that hold values must be written as mappings."""
    assert get_type_hints(HostPlan)["env_vars"] == Mapping[str, str]
