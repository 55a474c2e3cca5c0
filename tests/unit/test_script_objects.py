"""What a script defines beside plain functions and classes arrives at a host that can't import the script."""

import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_payload import ROOT

#: Runs as a script: packs `call` as a job would.
_SCRIPT = """
import sys
{body}
from kinetic_ray.payload import pack_call
if __name__ == "__main__":
    packed = pack_call(call, (), {{}}, by_value=lambda name: name in ("__main__", "odd_module"))
    open(sys.argv[1], "wb").write(packed.data)
"""
#: A host: its `__main__` has none of it. It tells what comes back as a result would.
_HOST = """
import pickle, sys
from kinetic_ray.payload import load_call
from kinetic_ray.payload.values import pack_value
function, args, kwargs = load_call(open(sys.argv[1], "rb").read())
value = function(*args, **kwargs)
open(sys.argv[2], "wb").write(b"".join(pack_value(value).chunks()))
"""


def run(tmp_path: Path, body: str) -> Any:
    """What `call` of a script gives on a host."""
    script, host = tmp_path / "script.py", tmp_path / "host.py"
    script.write_text(_SCRIPT.format(body=textwrap.dedent(body)))
    host.write_text(_HOST)
    sent, back = tmp_path / "sent", tmp_path / "back"
    for words in ([script, sent], [host, sent, back]):
        done = subprocess.run(
            [sys.executable, *map(str, words)],
            capture_output=True,
            text=True,
            timeout=300,
            cwd=tmp_path,
            check=False,
            env={"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "PATH": ""},
        )
        assert done.returncode == 0, done.stderr
    return pickle.loads(back.read_bytes())


CASES: dict[str, tuple[str, Any]] = {
    "a cached function that calls itself": (
        """
        import functools
        @functools.lru_cache(maxsize=None)
        def fib(n):
            return n if n < 2 else fib(n - 1) + fib(n - 2)
        def call():
            return fib(20), fib.cache_info().maxsize, fib.__name__, fib(20) == fib.__wrapped__(20)
        """,
        (6765, None, "fib", True),
    ),
    "a cached method, and what else a wrapper was given": (
        """
        import functools
        class A:
            @functools.lru_cache(maxsize=3, typed=True)
            def twice(self, x):
                return 2 * x
        A.twice.note = "kept"
        def call():
            return A().twice(4), A.twice.cache_parameters(), A.twice.note
        """,
        (8, {"maxsize": 3, "typed": True}, "kept"),
    ),
    "a cached function that was made in another": (
        """
        import functools
        def make(k):
            @functools.cache
            def times(x):
                return k * x
            return times
        thrice = make(3)
        def call():
            return thrice(5)
        """,
        15,
    ),
    "a cached property": (
        """
        import functools
        class A:
            @functools.cached_property
            def value(self):
                "How it is told."
                self.runs = getattr(self, "runs", 0) + 1
                return 42
        a = A()
        def call():
            b = A()
            return a.value, a.value, a.runs, b.value, b.runs, A.value.__doc__
        """,
        (42, 42, 1, 42, 1, "How it is told."),
    ),
    "a function that dispatches by type, and leads back to itself": (
        """
        import functools
        @functools.singledispatch
        def show(x):
            return "thing"
        @show.register
        def _(x: int):
            return "number"
        @show.register(list)
        def _(x):
            return [show(each) for each in x]
        class Own: pass
        @show.register
        def _(x: Own):
            return "own"
        show.note = 1
        def call():
            return show([1, "a", Own()]), show.note, show.__name__
        """,
        (["number", "thing", "own"], 1, "show"),
    ),
    "a method that dispatches by type": (
        """
        import functools
        class A:
            @functools.singledispatchmethod
            def show(self, x):
                return "thing"
            @show.register
            def _(self, x: int):
                return "number"
        def call():
            return A().show(1), A().show("a")
        """,
        ("number", "thing"),
    ),
    "a sentinel that is pickled as a name": (
        """
        class Sentinel:
            def __reduce__(self):
                return "MISSING"
        MISSING = Sentinel()
        def default(x=MISSING):
            return x is MISSING
        def call():
            return default(), default(1), {MISSING: 1}[MISSING]
        """,
        (True, False, 1),
    ),
    "types that are no more than names": (
        """
        from typing import Callable, Generic, NewType, ParamSpec, TypeVar
        UserId, P, T = NewType("UserId", int), ParamSpec("P"), TypeVar("T")
        class Box(Generic[T]):
            def __init__(self, x: T): self.x = x
        def kept(f: Callable[P, T]) -> Callable[P, T]:
            return f
        @kept
        def inner(x: UserId) -> UserId:
            return UserId(x + 1)
        def call():
            return inner(1), UserId.__name__, Box[int](3).x, P.__name__
        """,
        (2, "UserId", 3, "P"),
    ),
    "an instance whose class is made with arguments": (
        """
        class Made:
            def __new__(cls, x):
                made = super().__new__(cls)
                made.x = x
                return made
        made = Made(3)
        def call():
            return made.x, Made(4).x
        """,
        (3, 4),
    ),
    "a member of an enumeration": (
        """
        import enum
        @enum.global_enum
        class Color(enum.Enum):
            RED = 1
        def call(c=Color.RED):
            return c is Color.RED, c.name
        """,
        (True, "RED"),
    ),
    "an instance that says itself how it is pickled": (
        """
        class Own:
            def __init__(self, x): self.x = x
            def __reduce__(self): return Own, (self.x + 1,)
        own = Own(1)
        class Names(set): pass
        names = Names("ab")
        def call():
            return own.x, sorted(names), type(names) is Names
        """,
        (2, ["a", "b"], True),
    ),
    "functions whose derivative is the user's own": (
        """
        import jax
        @jax.custom_vjp
        def square(x):
            return x * x
        square.defvjp(lambda x: (x * x, x), lambda x, g: (7 * x * g,))
        @jax.custom_jvp
        def cube(x):
            return x ** 3
        cube.defjvps(lambda t, ans, x: 5 * t)
        def call():
            return float(jax.grad(square)(3.0)), float(jax.grad(cube)(2.0)), float(jax.jit(square)(2.0))
        """,
        (21.0, 5.0, 4.0),
    ),
    "classes that JAX takes apart": (
        """
        import dataclasses, functools
        import jax
        @functools.partial(jax.tree_util.register_dataclass, data_fields=["a"], meta_fields=["b"], drop_fields=["c"])
        @dataclasses.dataclass
        class Q:
            a: object
            b: int = 1
            c: int = 2
        @jax.tree_util.register_dataclass
        @dataclasses.dataclass
        class R:
            a: object
        @jax.tree_util.register_pytree_node_class
        class P:
            def __init__(self, a): self.a = a
            def tree_flatten(self): return (self.a,), None
            @classmethod
            def tree_unflatten(cls, aux, parts): return cls(*parts)
        @jax.tree_util.register_pytree_with_keys_class
        class K:
            def __init__(self, a): self.a = a
            def tree_flatten_with_keys(self): return ((jax.tree_util.GetAttrKey("a"), self.a),), None
            @classmethod
            def tree_unflatten(cls, aux, parts): return cls(*parts)
        class N:
            def __init__(self, a): self.a = a
        jax.tree_util.register_pytree_node(N, lambda n: ((n.a,), "aux"), lambda aux, parts: N(*parts))
        @jax.tree_util.register_static
        class S: pass
        tree = [Q([1, 2]), R(3), P((4, 5)), K(6), N(7), S()]
        def call():
            named = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
            plus = jax.tree.map(lambda x: x + 1, tree)
            return jax.tree.leaves(tree), named, plus[0].a, plus[1].a, plus[2].a, plus[3].a, plus[4].a
        """,
        (
            [1, 2, 3, 4, 5, 6, 7],
            ["[0].a[0]", "[0].a[1]", "[1].a", "[2][<flat index 0>][0]", "[2][<flat index 0>][1]", "[3].a",
             "[4][<flat index 0>]"],
            [2, 3], 4, (5, 6), 7, 8,
        ),
    ),
    "a module that was loaded from a file of another name": (
        """
        import importlib.util, os
        with open("odd-name.py", "w") as file:
            file.write("import sys\\nODD = 13\\nme = sys.modules[__name__]\\ndef odd(): return ODD + me.ODD\\n")
        spec = importlib.util.spec_from_file_location("odd_module", "odd-name.py")
        odd = importlib.util.module_from_spec(spec)
        sys.modules["odd_module"] = odd
        spec.loader.exec_module(odd)
        os.remove("odd-name.py")
        def call():
            return odd.ODD, odd.odd(), odd.__name__
        """,
        (13, 26, "odd_module"),
    ),
    "what cloudpickle knows how to send: methods, properties, weak references": (
        """
        import weakref
        class A:
            x = 1
            def bound(self): return self.x
            @classmethod
            def made(cls): return cls.x + 1
            @staticmethod
            def plain(): return 3
            @property
            def told(self): return 4
        a = A()
        A.bound_before = a.bound
        A.bound = lambda self: "another"
        kept = [A.bound_before, A.made, A.plain, A.told.fget]
        def call():
            return kept[0](), kept[1](), kept[2](), kept[3](a), a.told, a.bound()
        """,
        (1, 2, 3, 4, 4, "another"),
    ),
    "what comes back": (
        """
        import functools
        @functools.cache
        def double(x):
            return 2 * x
        def call():
            return double
        """,
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_it_is_on_the_host_what_it_was_in_the_script(case: str, tmp_path: Path) -> None:
    body, expected = CASES[case]
    found = run(tmp_path, body)
    if case == "what comes back":
        assert found(4) == 8 and found.cache_info().hits == 0
    else:
        assert found == expected
