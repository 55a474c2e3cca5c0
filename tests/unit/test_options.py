"""Options: typed when given; nothing unknown, wrong or not built yet is accepted silently."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.core.env_vars import NOT_BY_WILDCARD, capture
from kinetic_ray.core.quantities import parse_duration, parse_size
from kinetic_ray.errors import UsageError
from kinetic_ray.options import LATER, OPTIONS, OptionKwargs, check_options, copy_given


def checked(**given: Any) -> Any:
    return check_options({"accelerator": "cpu", **given})


# Durations and sizes.


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (90, 90), (0.5, 0.5), ("90", 90), ("90s", 90), ("1.5h", 5400), ("12h", 43200), ("30m", 1800), ("1h30m", 5400),
        ("2d", 172800), ("1d2h3m4.5s", 93784.5), (" 1h 30M ", 5400), ("1h0m", 3600),
    ],
)  # fmt: skip
def test_durations(text: object, seconds: float) -> None:
    assert parse_duration(text, "timeout") == seconds


@pytest.mark.parametrize(
    "text",
    ["", " ", "soon", "-1", -1, 0, "0s", "0h0m", True, None, "1x", "30m1h", "1h1h", "1.5h30m", "h", "1e3", "nan", "inf",
     float("nan"), float("inf"), 10**400, "\uff11h", [1], b"1h"],
)  # fmt: skip
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(UsageError, match="timeout="):
        parse_duration(text, "timeout")


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.floats(0, 99, allow_nan=False))
def test_any_duration_is_the_sum_of_its_parts(days: int, hours: int, minutes: int, seconds: float) -> None:
    total = days * 86400 + hours * 3600 + minutes * 60 + round(seconds, 3)
    text = f"{days}d{hours}h{minutes}m{seconds:.3f}s"
    if total > 0:
        assert parse_duration(text, "t") == pytest.approx(total)
    else:
        with pytest.raises(UsageError):
            parse_duration(text, "t")


@given(st.text(max_size=12))
def test_any_text_is_a_positive_duration_or_refused(text: str) -> None:
    try:
        seconds = parse_duration(text, "t")
    except UsageError:
        return
    assert 0 < seconds < float("inf")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (1, 1),
        ("512", 512),
        ("1KB", 1000),
        ("1KiB", 1024),
        ("8GiB", 8 << 30),
        ("1.5g", 1_500_000_000),
        ("2 TiB", 2 << 40),
    ],
)
def test_sizes(text: object, size: int) -> None:
    assert parse_size(text, "memory") == size


@pytest.mark.parametrize("text", ["", "0", -1, "lots", "1XB", 1.5, True, None])
def test_what_is_no_size(text: object) -> None:
    with pytest.raises(UsageError, match="memory="):
        parse_size(text, "memory")


# The table.


def test_everything_typed() -> None:
    options = checked(
        accelerator="tpu-v6e-16", num_slices=2, gather="all", runtime="plain", timeout="12h", capacity_timeout="10m",
        env_vars={"A": "1"}, capture_env_vars=["B", "C_*"], output_dir="out", name="n", tags=["a", "b"],
        priority=-3, backend="local",
    )  # fmt: skip
    assert (options.accelerator.hosts, options.num_slices, options.gather, options.runtime) == (4, 2, "all", "plain")
    assert (options.timeout, options.capacity_timeout) == (43200.0, 600.0)
    assert (options.env_vars, options.capture_env_vars) == ({"A": "1"}, ("B", "C_*"))
    assert (options.output_dir, options.name, options.tags, options.backend) == ("out", "n", ("a", "b"), "local")
    assert options.priority == -3


def test_none_is_as_good_as_not_given() -> None:
    assert check_options(dict.fromkeys([*OPTIONS, *LATER])) == check_options({})


def test_gangs_of_cpu_hosts() -> None:
    options = checked(accelerator="cpu-2", hosts=3, resources={"memory": "2GiB"})
    assert (options.accelerator.hosts, options.accelerator.cpus, options.memory) == (3, 2, 2 << 30)
    assert checked(resources={"cpu": 0.5}).cpus == 0.5


def test_what_type_checkers_know_is_what_there_is() -> None:
    assert set(OptionKwargs.__annotations__) == set(OPTIONS)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"accelerater": "cpu"}, "unknown option 'accelerater'; did you mean 'accelerator'?"),
        ({"timout": 3}, "did you mean 'timeout'?"),
        ({"zzz": "red"}, "there are: accelerator, backend"),
        ({"max_restart": 3}, "there are: accelerator, backend"),
        ({"accelerator": "tpu-v6e-17"}, "tpu-v6e-16"),
        ({"accelerator": "tpu-v6e-16", "hosts": 3}, "contradicts"),
        ({"accelerator": 8}, "accelerator=8"),
        ({"spot": "yes"}, "spot='yes': expected True or False"),
        ({"project": 3}, "project=3: expected printable text"),
        ({"num_slices": 0}, "num_slices=0"),
        ({"num_slices": True}, "num_slices=True"),
        ({"hosts": "2"}, "hosts='2'"),
        ({"gather": "leaders"}, "did you mean 'leader'?"),
        ({"runtime": "torch"}, "not available yet"),
        ({"runtime": "jaxx"}, "did you mean 'jax'?"),
        ({"timeout": "soon"}, "timeout='soon'"),
        ({"timeout": -1}, "timeout=-1"),
        ({"resources": {"gpu": 1}}, "'cpu' and 'memory'"),
        ({"resources": {"cpu": 0}}, "resources['cpu']=0"),
        ({"resources": 4}, "expected a mapping"),
        ({"resources": {"cpu": 2}, "accelerator": "tpu-v6e-8"}, "only for cpu gangs"),
        ({"resources": {"cpu": 2}, "accelerator": "cpu-4"}, "contradicts"),
        ({"env_vars": ["A"]}, "expected a mapping"),
        ({"env_vars": {"A": 1}}, "env_vars['A']: expected text, got int"),
        ({"env_vars": {"A": "a\ud800"}}, "env_vars['A']: the character at index 1 is half of a surrogate pair"),
        ({"env_vars": {"A\ud800": ""}}, "can't be the name of an environment variable"),
        ({"env_vars": {"A": "1\0"}}, "env_vars['A']: a NUL character stands at index 1"),
        ({"env_vars": {"A=B": "1"}}, "can't be the name"),
        ({"env_vars": {"A\nB": "1"}}, "can't be the name"),
        ({"env_vars": {"A\0B": "1"}}, "can't be the name"),
        ({"capture_env_vars": {"A": "1"}}, "goes to env_vars="),
        ({"tags": {"team": "x"}}, "write tags=['team=x']"),
        ({"env_vars": {"KINETIC_RANK": "1"}}, "are set by kinetic_ray on every host"),
        ({"capture_env_vars": "HOME"}, "expected a list"),
        ({"capture_env_vars": ["**"]}, "expected a name, or a prefix"),
        ({"capture_env_vars": ["KINETIC_*"]}, "are set by kinetic_ray on every host"),
        ({"capture_env_vars": ["A*B"]}, "expected a name, or a prefix"),
        ({"tags": "nightly"}, "['nightly']"),
        ({"priority": "high"}, "priority='high': expected a whole number"),
        ({"priority": True}, "priority=True"),
        ({"priority": 1.5}, "priority=1.5"),
        ({"priority": 10**9}, "priority=1000000000"),
        ({"tags": [1]}, "1 is not text"),
        ({"tags": ["a\nb"]}, "printable"),
        ({"name": "x" * 300}, "200"),
        ({"output_dir": b"x"}, "output_dir="),
        ({"image": ""}, "image=''"),
        ({"local_ignore_image": "yes"}, "True or False"),
        ({"capacity": "sport"}, "expected one of 'on-demand', 'spot', 'reserved'; did you mean 'spot'?"),
        ({"capacity": True}, "capacity=True: expected one of"),
        ({"capacity": "reserved", "spot": True}, "capacity='reserved' contradicts spot=True: give one"),
        ({"capacity": "on-demand", "accelerator": "tpu-v6e-8:spot"}, "contradicts ':spot' behind the accelerator"),
    ],
)
def test_refusals(given: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        checked(**given)


NOT_YET = {
    "max_restarts": 3, "failure": object(), "success": object(), "hang_timeout": "1h", "lifecycle": "per-job",
    "secrets": ["hf"], "dependencies": ["numpy"], "volumes": {"/data": object()}, "debug": True,
    "queue": "q", "ttl": 60, "placement": "kinetic.dev/rack",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted([*OPTIONS, *LATER]))
def test_only_what_works_is_suggested(name: str) -> None:
    for typo in (name + "x", name[:-1], name[1:]):
        if typo in OPTIONS or typo in LATER:
            continue
        with pytest.raises(UsageError) as caught:
            checked(**{typo: NOT_YET.get(name)})
        suggested = re.findall(r"did you mean '(\w+)'", str(caught.value))
        assert set(suggested) <= set(OPTIONS)


@pytest.mark.parametrize("name", sorted(LATER))
def test_options_of_later_versions_are_refused_by_name(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}=.*not available yet"):
        checked(**{name: NOT_YET[name]})


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in LATER.items() for value in values])
def test_values_that_ask_for_nothing_are_accepted(name: str, value: Any) -> None:
    assert checked(**{name: value}) == checked()


def test_a_truthy_stand_in_for_nothing_is_not_nothing() -> None:
    with pytest.raises(UsageError):
        checked(max_restarts=False)
    with pytest.raises(UsageError):
        checked(spot=0)


@pytest.mark.parametrize(
    ("given", "image"), [(None, None), ("bundled", None), ("prebuilt", None), ("me/img:1", "me/img:1")]
)
def test_upstreams_images(given: str | None, image: str | None) -> None:
    assert checked(container_image=given).image == checked(image=given).image == image


OF_A_CLUSTER = {
    "project": "p", "zone": "z", "cluster": "c", "namespace": "n", "capacity": "spot", "spot": True,
    "base_image_repo": "r",
}  # fmt: skip


def test_what_only_a_cluster_has_is_kept_apart() -> None:
    options = checked(**OF_A_CLUSTER, profile="team")
    assert (options.of_clusters, options.profile) == (OF_A_CLUSTER, "team")
    named = {name: OF_A_CLUSTER[name] for name in ("project", "zone", "cluster", "namespace")}
    assert options.where() == {"backend": None, "profile": "team", **named}
    assert checked(accelerator="tpu-v6e-8:spot").of_clusters == {"spot": True}
    assert checked(spot=False) == checked(capacity="on-demand") == checked(capacity=None) == checked()
    assert checked(capacity="reserved", spot=False).of_clusters == {"capacity": "reserved"}
    assert checked(capacity="spot", accelerator="v6e-8:spot").of_clusters == {"capacity": "spot", "spot": True}


@pytest.mark.parametrize("word", ["gke", "pathways"])
def test_upstreams_backends_are_no_places_of_ours(word: str) -> None:
    options = checked(backend=word)
    assert (options.backend, options.of_clusters) == (None, {"backend": word})


def test_given_containers_are_copied() -> None:
    env, tags = {"A": "1"}, ["t"]
    copied = copy_given({"env_vars": env, "tags": tags, "name": "n"})
    env["A"], tags[0] = "2", "u"
    assert copied == {"env_vars": {"A": "1"}, "tags": ("t",), "name": "n"}


# Captured variables.

ENVIRON = {"WANDB_KEY": "k", "WANDB_MODE": "m", "HOME": "/h", "PATH": "/bin", "KINETIC_HOME": "/k", "LD_PRELOAD": "x"}


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ([], []),
        (["WANDB_*"], ["WANDB_KEY", "WANDB_MODE"]),
        (["WANDB_KEY", "MISSING"], ["WANDB_KEY"]),
        (["H*"], []),
        (["HOME"], ["HOME"]),
        (["K*", "L*", "P*"], []),
        (["W*", "LD_PRELOAD"], ["LD_PRELOAD", "WANDB_KEY", "WANDB_MODE"]),
        (["*"], ["WANDB_KEY", "WANDB_MODE"]),
        (["*", "HOME"], ["HOME", "WANDB_KEY", "WANDB_MODE"]),
    ],
)
def test_capture(patterns: list[str], names: list[str]) -> None:
    assert capture(patterns, ENVIRON) == {name: ENVIRON[name] for name in names}


@given(
    st.dictionaries(st.sampled_from([*NOT_BY_WILDCARD, "A", "B_C"]), st.text()),
    st.sampled_from(["*", "A*", "P*", "C*"]),
)
def test_a_wildcard_never_takes_what_belongs_to_the_machine(environ: dict[str, str], pattern: str) -> None:
    assert not set(capture([pattern], environ)) & NOT_BY_WILDCARD
