"""The bundle: which root, what is left out, the same bytes for the same content, unpacking that stays inside."""

import io
import logging
import os
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinetic_ray.bundle import Project, find_project, find_root, unpack
from kinetic_ray.bundle.archive import pack
from kinetic_ray.bundle.rules import is_secret
from kinetic_ray.bundle.tree import look, scan
from kinetic_ray.errors import ConfigError, DataError, PayloadError

LIMIT = 10**9


def make(root: Path, *names: str, **contents: str) -> Path:
    """Files below a folder, by name; a name with "/" at its end is a folder."""
    for name in names:
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(contents.get(name, name), errors="surrogateescape")
    return root


def files_of(root: Path, **options: object) -> set[str]:
    return {entry.name for entry in scan(root, limit=LIMIT, **options) if entry.kind != "folder"}  # type: ignore[arg-type]


def archive_of(root: Path) -> bytes:
    return pack(scan(root, limit=LIMIT))


def names_in(data: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return archive.getnames()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


# Which root.


@pytest.mark.parametrize("mark", ["pyproject.toml", "setup.py", ".git/HEAD"])
def test_the_root_is_the_nearest_marked_parent(tmp_path: Path, home_elsewhere: None, mark: str) -> None:
    make(tmp_path, "pyproject.toml", f"a/{mark}", "a/b/c/script.py")
    assert find_root(tmp_path / "a" / "b" / "c") == tmp_path / "a"


def test_a_worktree_whose_git_is_a_file_is_marked(tmp_path: Path, home_elsewhere: None) -> None:
    make(tmp_path, "a/.git", "a/b/")
    assert find_root(tmp_path / "a" / "b") == tmp_path / "a"


def test_without_a_mark_the_root_is_the_scripts_folder(tmp_path: Path, home_elsewhere: None) -> None:
    make(tmp_path, "a/b/")
    assert find_root(tmp_path / "a" / "b") == tmp_path / "a" / "b"


@pytest.fixture
def home_elsewhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """HOME and the temporary folder lie where the test's folder is not."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.setenv("HOME", str(elsewhere))
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))


@pytest.mark.parametrize("marked", [True, False])
def test_home_and_what_holds_it_are_never_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marked: bool
) -> None:
    make(tmp_path, "people/me/", *(["people/me/.git/HEAD", "people/pyproject.toml"] if marked else []))
    home = tmp_path / "people" / "me"
    monkeypatch.setenv("HOME", str(home))
    assert find_root(home) is None
    assert find_root(home.parent) is None
    assert find_root(make(home, "code/").joinpath("code")) == home / "code"


def test_the_file_systems_root_is_never_the_root() -> None:
    assert find_root(Path("/")) is None


def test_the_temporary_folder_is_never_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert find_root(tmp_path) is None


def test_package_root_overrides(tmp_path: Path, home_elsewhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    script = make(tmp_path, "top/a/pyproject.toml", "top/a/script.py") / "top" / "a" / "script.py"
    monkeypatch.setenv("KINETIC_PACKAGE_ROOT", str(tmp_path / "top"))
    assert find_project(print, script).root == tmp_path / "top"
    monkeypatch.setenv("KINETIC_PACKAGE_ROOT", str(tmp_path / "elsewhere"))
    with pytest.raises(ConfigError, match="does not lie in it"):
        find_project(print, script)
    monkeypatch.setenv("KINETIC_PACKAGE_ROOT", "/")
    with pytest.raises(ConfigError, match="never sent"):
        find_project(print, script)


def test_a_function_of_this_test_belongs_to_this_repository() -> None:
    project = find_project(make)
    assert project.root == Path(__file__).parents[2]
    assert not project.goes_by_value(__name__)
    assert project.goes_by_value("__main__")


# What is left out.

NEVER = [
    ".git/HEAD",
    "pkg/__pycache__/a.pyc",
    "venv/pyvenv.cfg",
    "venv/lib/x.py",
    "env-of-mine/conda-meta/history",
    ".venv/x",
    "node_modules/x/index.js",
    ".mypy_cache/x",
    ".env",
    ".env.production",
    "deploy/server.pem",
    "id_rsa",
    "keys/id_ed25519",
    ".ssh/config",
    "service-account-prod.json",
    "a.pyc",
    ".DS_Store",
]
ALWAYS = ["main.py", "pkg/__init__.py", "data/table.csv", ".env.example", "env.py", "venv.py", "keys/readme"]


def test_environments_caches_and_secrets_stay(root: Path) -> None:
    make(root, *NEVER, *ALWAYS)
    assert files_of(root) == set(ALWAYS)


# fmt: off
SECRET_NAMES = (
    ".env", ".env.local", "prod.env", ".envrc", "server.key", "AuthKey_X.p8", "putty.ppk", "id_rsa", "id_rsa.pub",
    ".netrc", ".boto", ".pgpass", ".dockercfg", ".vault-token", "credentials", "credentials.json", "token.json",
    "kaggle.json", "gha-creds-0a1b.json", "service-account-prod.json", "secrets.yaml", "secrets.yml", "secrets.json",
    "kubeconfig", "terraform.tfstate",
)
HARMLESS_NAMES = (
    ".env.example", "env.py", "keys.py", "monkey.py", "envelope", "credentials.py", "tokenizer.json", "secrets.py",
    "secretsanta.json", "keyboard.json", "id_card.png", "environment.yml",
)
# fmt: on


@pytest.mark.parametrize("change", [str, str.upper, str.title], ids=["as is", "upper", "title"])
def test_names_that_hold_secrets_in_any_case(root: Path, change: Callable[[str], str]) -> None:
    assert [name for name in SECRET_NAMES if not is_secret(change(name))] == []
    assert [name for name in HARMLESS_NAMES if is_secret(change(name))] == []
    make(root, *map(change, SECRET_NAMES), *map(change, HARMLESS_NAMES), f"{change('.aws')}/config")
    assert files_of(root) == set(map(change, HARMLESS_NAMES))


def test_secrets_are_left_out_with_one_notice(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(root, "main.py", ".env", "deploy/server.PEM", ".ssh/config", "data/x.csv", ".gitignore", ".DS_Store")
    for _ in range(2):
        assert Project(root, cwd=root).build() is not None
    [line] = caplog.messages
    assert "\n" not in line
    for part in (".env, .ssh, deploy/server.PEM", f"in {root}.", "secrets=", f"!.env in {root / '.kineticignore'}"):
        assert part in line
    assert "DS_Store" not in line
    (root / "deploy" / "another.key").write_text("x")  # another content, another notice
    Project(root, cwd=root).build()
    assert ["deploy/another.key" in line for line in caplog.messages] == [False, True]


def test_the_notice_names_a_few_of_many_secrets(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(root, "main.py", *(f"{number}.pem" for number in range(9)))
    scan(root, limit=LIMIT)
    assert "0.pem, 1.pem, 2.pem, 3.pem, 4.pem and 4 more in " in caplog.text


@pytest.mark.parametrize(
    ("ignore_file", "line", "is_told", "is_sent"),
    [
        (".kineticignore", ".env", False, False),  # as the notice says
        (".kineticignore", "!.env", False, True),
        (".gitignore", ".env", True, False),  # git's rules say what is no source: a program may read it nevertheless
        (".gitignore", "!.env", True, False),
    ],
)
def test_who_has_spoken_of_a_secret_is_not_told(
    root: Path, caplog: pytest.LogCaptureFixture, ignore_file: str, line: str, is_told: bool, is_sent: bool
) -> None:
    make(root, "main.py", ".env", ignore_file, **{ignore_file: line})
    assert (".env" in files_of(root), bool(caplog.messages)) == (is_sent, is_told)


@pytest.mark.parametrize(
    ("name", "why", "text"),
    [
        (".env", "secret", "its name says that it holds keys or passwords"),
        (".git", "version control", "version control"),
        ("pkg/__pycache__", "cache", "a cache, or made by tools"),
        ("mine", "environment", "an environment: it holds pyvenv.cfg"),
        ("store", "kinetic's own", "the store, or kinetic's own files"),
        ("a.log", "gitignore", ".gitignore line 3: *.log"),
        ("pkg/b.csv", "gitignore", "pkg/.gitignore line 1: *.csv"),
        ("pkg/c.bin", "gitignore", "../.gitignore line 2: /project/pkg/*.bin"),
        ("big", "kineticignore", ".kineticignore line 2: big/"),
        ("gone", "link to nothing", "it links to {root}/nothing, which isn't there"),
        ("out", "link that leaves", "it links to /etc/passwd, outside of the project {root}"),
        ("pipe", "no file", "a pipe, socket or device"),
    ],
)
def test_everything_that_is_left_out_has_a_reason(root: Path, name: str, why: str, text: str) -> None:
    outer = make(root.parent, ".gitignore", ".git/HEAD", **{".gitignore": "x\n/project/pkg/*.bin\n"})
    rules = {".gitignore": "# logs\n\n*.log", "pkg/.gitignore": "*.csv\n", ".kineticignore": "#\nbig/\n"}
    files = [".env", "pkg/__pycache__/x", "mine/pyvenv.cfg", "store/x", "a.log", "pkg/b.csv", "pkg/c.bin", "big/x"]
    make(root, *rules, *files, *([".git/HEAD"] if name == ".git" else []), **rules)
    (root / "gone").symlink_to("nothing")
    (root / "out").symlink_to("/etc/passwd")
    os.mkfifo(root / "pipe")
    found = {each.name: each for each in look(root, avoid=[root / "store"]).left_out}
    assert outer.is_dir()
    assert (found[name].reason.why, found[name].reason.text) == (why, text.format(root=root))


GIT_RULES = """
*.log
!keep.log
/only_top
build/
docs/*.txt
**/deep/*.bin
[xy]_[0-9].dat
a b.txt
#comment
\\#real
"""


def listed_by_git(root: Path) -> set[str]:
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    command = ["git", "-C", str(root), "-c", "core.excludesFile=", "ls-files", "-co", "--exclude-standard", "-z"]
    return set(subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")) - {""}


def test_gitignore_means_what_git_means(root: Path) -> None:
    left_out = [
        "x.log",
        "x_1.dat",
        "a/y.log",
        "only_top",
        "build/z.py",
        "docs/a.txt",
        "q/deep/w.bin",
        "a b.txt",
        "#real",
    ]
    sent = ["keep.log", "z_1.dat", "a/only_top", "docs/sub/b.txt", "#comment", "builds/a", ".gitignore"]
    make(root, *left_out, *sent, **{".gitignore": GIT_RULES})
    assert files_of(root) == set(sent) == listed_by_git(root)


def test_deeper_ignore_files_win(root: Path) -> None:
    rules = {".gitignore": "*.csv\n", "a/.gitignore": "!*.csv\n", "a/b/.gitignore": "secret.csv\n"}
    make(root, *rules, "x.csv", "a/x.csv", "a/b/x.csv", "a/b/secret.csv", **rules)
    assert files_of(root) == {*rules, "a/x.csv", "a/b/x.csv"} == listed_by_git(root)


def test_rules_of_the_repository_around_the_root_hold(root: Path) -> None:
    rules = {".gitignore": "*.ckpt\n/project/scratch/\n/scratch2/\n"}
    make(root.parent, ".git/HEAD", *rules, **rules)
    make(root, "a.ckpt", "scratch/x", "scratch2/y", "b.py")
    assert files_of(root) == {"b.py", "scratch2/y"}


def test_kineticignore_beats_gitignore_and_defaults(root: Path) -> None:
    rules = {".gitignore": "data/\n*.bin\n", ".kineticignore": "!data/\n!.env\n*.py\n!keep.py\n"}
    make(root, *rules, "data/x", "w.bin", ".env", "a.py", "keep.py", **rules)
    assert files_of(root) == {*rules, "data/x", ".env", "keep.py"}


def test_loaded_modules_are_sent_though_ignored_unless_the_user_says_so(root: Path) -> None:
    rules = {".gitignore": "_version.py\ngen/\n", ".kineticignore": "never.py\nnot/\n"}
    wanted = ["pkg/_version.py", "gen/a.py", "never.py", "not/b.py", "venv/x.py", ".env"]
    make(root, *rules, *wanted, "venv/pyvenv.cfg", "lost/_version.py", **rules)
    elsewhere = make(root.parent, "elsewhere.py") / "elsewhere.py"
    found = files_of(root, wanted=[*(root / name for name in wanted), elsewhere])
    assert found == {*rules, "pkg/_version.py", "gen/a.py"}


def test_avoided_folders_stay(root: Path) -> None:
    make(root, "store/jobs/x", "a.py")
    assert files_of(root, avoid=[root / "store"]) == {"a.py"}


def test_a_project_in_an_avoided_folder_is_sent_nevertheless(root: Path) -> None:
    make(root, ".gitignore", "a.py", "gen.py", **{".gitignore": "gen.py\n"})
    for avoided in (root.parent, root):
        assert files_of(root, avoid=[avoided], wanted=[root / "gen.py"]) == {".gitignore", "a.py", "gen.py"}


# Without "!": before a pattern for folders it means a little less to pathspec than to git. Brackets: see the table.
patterns = st.lists(st.text("ab/*?. ", min_size=1, max_size=6), max_size=4)
git_names = st.sampled_from(["a", "b", "ab", "a/b", "a/b/a", "b/ab/a", "a.b", "b/a.b", "aa/bb"])


@settings(max_examples=40)
@given(patterns, patterns, st.sets(git_names, min_size=1))
def test_any_patterns_leave_out_what_git_leaves_out(
    tmp_path_factory: pytest.TempPathFactory, top: list[str], below: list[str], names: set[str]
) -> None:
    root = tmp_path_factory.mktemp("git")
    plain = {name for name in names if not any(other.startswith(f"{name}/") for other in names)}
    make(root, *plain)
    for folder, lines in ((root, top), (root / "a", below)):
        if folder.is_dir():
            (folder / ".gitignore").write_text("\n".join(lines))
    ours = {name for name in files_of(root) if not name.endswith(".gitignore")}
    assert ours == {name for name in listed_by_git(root) if not name.endswith(".gitignore")}


# Hostile trees.


def test_links_inside_travel_as_links(root: Path, tmp_path: Path) -> None:
    make(root, "a/real.py", "b/")
    (root / "b" / "relative").symlink_to("../a/real.py")
    (root / "b" / "absolute").symlink_to(root / "a" / "real.py")
    (root / "b" / "folder").symlink_to(root / "a")
    (root / "loop").symlink_to(root)
    unpack(archive_of(root), tmp_path / "there")
    for name in ("b/relative", "b/absolute", "b/folder/real.py", "loop/a/real.py"):
        assert (tmp_path / "there" / name).read_text() == "a/real.py"
        assert (tmp_path / "there" / name).resolve().is_relative_to(tmp_path / "there")


def test_links_that_leave_are_left_out_with_a_notice(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(root.parent, "outside/secret.txt")
    make(root, "main.py")
    (root / "out").symlink_to("../outside")
    (root / "passwd").symlink_to("/etc/passwd")
    (root / "nowhere").symlink_to("gone")
    with caplog.at_level(logging.WARNING, logger="kinetic_ray"):
        assert files_of(root) == {"main.py"}
    assert ["out is not sent" in text or "passwd is not sent" in text for text in caplog.messages] == [True, True]


def test_what_is_no_file_is_left_out(root: Path) -> None:
    make(root, "main.py")
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(os.path.relpath(root / "socket"))
    assert files_of(root) == {"main.py"}


def test_strange_names_travel(root: Path, tmp_path: Path) -> None:
    names = [
        "a b.py",
        "ü.py",
        "名前.py",
        "-rf",
        "x\ny",
        "q'\"$;.py",
        "back\\slash",
        os.fsdecode(b"latin-\xe9.txt"),
        "n" * 250,
    ]
    make(root, *names, "deep/" + "/".join(["d" * 50] * 8) + "/f.py")
    unpack(archive_of(root), tmp_path / "there")
    assert set(names) <= {path.name for path in (tmp_path / "there").iterdir()}
    assert files_of(tmp_path / "there") == files_of(root)


def test_executables_stay_executable_and_nothing_else_of_the_mode_travels(root: Path, tmp_path: Path) -> None:
    make(root, "run.sh", "odd.py")
    (root / "run.sh").chmod(0o4755)
    (root / "odd.py").chmod(0o666)
    unpack(archive_of(root), tmp_path / "there")
    modes = {path.name: path.stat().st_mode & 0o7777 for path in (tmp_path / "there").iterdir()}
    assert modes == {"run.sh": 0o755, "odd.py": 0o644}


def test_empty_folders_travel(root: Path, tmp_path: Path) -> None:
    make(root, "outputs/plots/")
    unpack(archive_of(root), tmp_path / "there")
    assert (tmp_path / "there" / "outputs" / "plots").is_dir()


def test_a_file_that_cannot_be_read_is_left_out_with_a_notice(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(root, "a.py", "b.py")
    entries = scan(root, limit=LIMIT)
    (root / "b.py").unlink()  # between the look and the read; root could read a file of mode 0
    with caplog.at_level(logging.WARNING, logger="kinetic_ray"):
        names = names_in(pack(entries))
    assert names == ["a.py"]
    assert "b.py is not sent" in caplog.text


def test_too_large_names_the_biggest(root: Path) -> None:
    make(root, "a.py", "data/small.bin", "data/raw/big.bin", "models/m.bin")
    (root / "data" / "raw" / "big.bin").write_bytes(bytes(3_000_000))
    (root / "models" / "m.bin").write_bytes(bytes(2_000_000))
    with pytest.raises(PayloadError, match=r"data/raw \(3\.0 MB\), models/m\.bin \(2\.0 MB\).*\.kineticignore"):
        scan(root, limit=4_000_000)
    assert scan(root, limit=6_000_000)


# The same bytes.


def rebuilt(root: Path, there: Path) -> bytes:
    unpack(archive_of(root), there)
    return archive_of(there)


def test_times_owners_and_order_do_not_change_the_bytes(root: Path, tmp_path: Path) -> None:
    make(root, "b.py", "a.py", "pkg/c.py")
    first = archive_of(root)
    os.utime(root / "a.py", (1, 1))
    make(tmp_path / "other", "pkg/c.py", "a.py", "b.py")
    assert archive_of(root) == first == archive_of(tmp_path / "other")
    (root / "a.py").write_text("changed")
    assert archive_of(root) != first


def test_the_first_format_stays_readable_and_writable(root: Path, tmp_path: Path) -> None:
    golden = (Path(__file__).parents[1] / "golden" / "bundle-v1.tar").read_bytes()
    unpack(golden, root)
    assert archive_of(root) == golden
    assert (root / "pkg" / "latest.py").read_text() == "x = 1\n"


segments = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda name: name not in (".", "..", ".gitignore", ".kineticignore") and len(name.encode()) < 200
)
trees = st.dictionaries(st.lists(segments, min_size=1, max_size=3).map("/".join), st.binary(max_size=50), max_size=8)


@settings(max_examples=60)
@given(trees)
def test_any_tree_comes_back_and_gives_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, bytes]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    for name, content in tree.items():
        path = root / name
        if not any(parent.is_file() for parent in path.parents) and not path.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    there = tmp_path_factory.mktemp("there")
    assert rebuilt(root, there) == archive_of(root)
    for name in files_of(root):
        assert (there / name).read_bytes() == (root / name).read_bytes()


# Unpacking.


def test_unpacking_again_repairs_what_was_left_half_done(root: Path, tmp_path: Path) -> None:
    make(root, "a.py", "pkg/b.py")
    (root / "link").symlink_to("a.py")
    data, there = archive_of(root), tmp_path / "there"
    unpack(data, there)
    (there / "a.py").write_text("torn")
    (there / "link").unlink()
    (there / "link").write_text("torn")
    unpack(data, there)
    assert archive_of(there) == data


def test_links_of_an_earlier_bundle_are_not_written_through(root: Path, tmp_path: Path) -> None:
    make(root, "file.py", "pkg/deep/b.py", **{"file.py": "new"})
    there, outside = tmp_path / "there", tmp_path / "outside"
    make(outside, "kept.py", "deep/", **{"kept.py": "old"})
    there.mkdir()
    (there / "file.py").symlink_to(outside / "kept.py")
    (there / "pkg").symlink_to(outside)
    data = archive_of(root)
    unpack(data, there)
    assert archive_of(there) == data
    assert (outside / "kept.py").read_text() == "old"
    assert list((outside / "deep").iterdir()) == []


def test_permissions_are_the_archives_whatever_the_umask(root: Path, tmp_path: Path) -> None:
    make(root, "plain.py", "run.sh")
    (root / "run.sh").chmod(0o700)
    before = os.umask(0o077)
    try:
        unpack(archive_of(root), tmp_path / "there")
    finally:
        os.umask(before)
    modes = [(tmp_path / "there" / name).stat().st_mode & 0o777 for name in ("plain.py", "run.sh")]
    assert modes == [0o644, 0o755]


def hostile(name: str = "x", kind: bytes = tarfile.REGTYPE, target: str = "", content: bytes = b"") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, len(content)
    return info


def archived(*members: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return buffer.getvalue()


def sparse() -> tarfile.TarInfo:
    """A few bytes that claim to be a file of a terabyte."""
    info = hostile("evil", content=bytes(512))
    info.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(2**40)}
    return info


HOSTILE = {
    "parent": [hostile("../evil")],
    "inner parent": [hostile("a/../../evil")],
    "absolute": [hostile("/tmp/evil")],
    "dotted": [hostile("./a/./b")],
    "absolute link": [hostile("l", tarfile.SYMTYPE, "/etc")],
    "leaving link": [hostile("a/l", tarfile.SYMTYPE, "../../x")],
    "link behind a link": [hostile("k", tarfile.SYMTYPE, "a"), hostile("a/l", tarfile.SYMTYPE, "../k/../../x")],
    "below a link": [hostile("l", tarfile.SYMTYPE, "a"), hostile("l/evil")],
    "hard link": [hostile("l", tarfile.LNKTYPE, "/etc/passwd")],
    "device": [hostile("d", tarfile.CHRTYPE)],
    "pipe": [hostile("p", tarfile.FIFOTYPE)],
    "twice": [hostile("a"), hostile("a")],
    "empty link": [hostile("l", tarfile.SYMTYPE, "")],
    "sparse": [sparse()],
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_archives_write_nothing(tmp_path: Path, case: str) -> None:
    there = tmp_path / "a" / "b" / "there"
    data = archived(hostile("first.py"), *HOSTILE[case])
    with pytest.raises(DataError):
        unpack(data, there)
    assert not there.exists()
    assert list(tmp_path.rglob("evil")) == []


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 3]


def _flip(data: bytes) -> bytes:
    return data[:150] + bytes([data[150] ^ 0xFF]) + data[151:]


@pytest.mark.parametrize("damage", [_cut, _flip, lambda _: b"no archive at all" * 99])
def test_damaged_archives_are_refused(root: Path, tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    make(root, "a.py", "b.py", **{"a.py": "x" * 5000, "b.py": "y" * 5000})
    with pytest.raises(DataError, match="damaged"):
        unpack(damage(archive_of(root)), tmp_path / "there")


# Large projects.


@pytest.mark.parametrize(
    ("files", "size", "told"),
    [(1, 1, False), (1, 33 << 20, True), (40, 1 << 20, True), (4_990, 0, False), (5_001, 0, True)],
)
def test_a_large_project_is_mentioned_once_in_one_line(
    root: Path, caplog: pytest.LogCaptureFixture, files: int, size: int, told: bool
) -> None:
    for number in range(files):
        with (root / f"{number}.bin").open("wb") as file:
            file.truncate(size)
    for _ in range(2):
        assert Project(root, cwd=root).build() is not None
    assert len(caplog.messages) == told
    for message in caplog.messages:
        assert "\n" not in message
        for part in (
            str(root),
            "Biggest: 0.bin",
            f"{files} files of {round(files * size / 1e6)} MB",
            str(root / ".kineticignore"),
        ):
            assert part in message


# The layout.


@pytest.fixture
def path_kept() -> Iterator[None]:
    kept = list(sys.path)
    yield
    sys.path[:] = kept


def test_the_clients_path_is_replayed_inside_the_root_only(root: Path, path_kept: None) -> None:
    make(root, "src/pkg/__init__.py", "lib/", "venv/pyvenv.cfg", "venv/lib/")
    sys.path[:] = [str(root / "src"), "", "/nowhere", str(root / "venv" / "lib"), str(root / "src"), str(root / "lib")]
    bundle = Project(root, cwd=root / "lib").build()
    assert bundle is not None
    assert (bundle.sys_path, bundle.cwd) == (("src", "lib"), "lib")


def test_a_working_folder_elsewhere_becomes_the_root(root: Path, tmp_path: Path) -> None:
    make(root, "a.py")
    bundle = Project(root, cwd=tmp_path).build()
    assert bundle is not None
    assert bundle.cwd == "."


def test_without_a_root_and_without_modules_there_is_nothing_to_send(tmp_path: Path) -> None:
    assert Project(None, cwd=tmp_path).build() is None


def test_a_script_without_a_root_travels_alone(tmp_path: Path) -> None:
    make(tmp_path, "run.py", "other.py")
    project = Project(None, cwd=tmp_path, script=tmp_path / "run.py")
    bundle = project.build()
    assert bundle is not None
    assert project.script_path() == "run.py"
    assert names_in(bundle.data) == ["run.py"]
