"""Hayase's `dataclass`: the same classes as the standard decorator's, whose methods are made when they are needed."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hayase
from hayase.core.data_classes import dataclass

BOTH = pytest.mark.parametrize("decorate", [dataclass, dataclasses.dataclass], ids=["own", "standard"])
Decorator = Callable[..., Any]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place in a text."""

    line: int
    column: int = 1
    words: tuple[str, ...] = field(default=(), compare=False)


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class StandardPlace:
    """The same."""

    line: int
    column: int = 1
    words: tuple[str, ...] = field(default=(), compare=False)


@dataclass(slots=True)
class Basket:
    owner: str
    items: list[str] = field(default_factory=list)
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Named(Place):
    name: str = "?"


PLACES = st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from([(), ("a",)]))


@given(one=PLACES, other=PLACES)
def test_instances_compare_hash_and_show_themselves_as_those_of_the_standard_decorator(
    one: tuple[Any, ...], other: tuple[Any, ...]
) -> None:
    ours, theirs = (Place(*one), Place(*other)), (StandardPlace(*one), StandardPlace(*other))
    for compare in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
        assert getattr(ours[0], compare)(ours[1]) == getattr(theirs[0], compare)(theirs[1])
    assert (hash(ours[0]) == hash(ours[1])) == (hash(theirs[0]) == hash(theirs[1]))
    assert f"Standard{ours[0]}" == str(theirs[0])
    assert asdict(ours[0]) == asdict(theirs[0])
    assert pickle.loads(pickle.dumps(ours[0])) == copy.copy(ours[0]) == copy.deepcopy(ours[0]) == ours[0]
    assert pickle.loads(pickle.dumps(ours[0])).words == ours[0].words
    assert ours[0] != theirs[0]


@BOTH
def test_the_constructor(decorate: Decorator) -> None:
    @decorate(frozen=True, slots=True)
    class Point:
        kind: ClassVar[str] = "point"
        x: int
        y: int = 2
        tags: list[str] = field(default_factory=list)
        total: int = field(init=False, default=0)
        made: list[str] = field(init=False, default_factory=list)
        label: str = field(default="", kw_only=True)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.x + self.y)

    parameters = inspect.signature(Point).parameters
    assert list(parameters) == ["x", "y", "tags", "label"]
    assert parameters["y"].default == 2
    assert parameters["label"].kind is inspect.Parameter.KEYWORD_ONLY
    point = Point(1, tags=["a"])
    assert (point.x, point.y, point.tags, point.total, point.made, point.label) == (1, 2, ["a"], 3, [], "")
    assert Point(1).tags is not Point(1).tags
    assert replace(point, x=5).total == 7
    with pytest.raises(TypeError, match=r"Point\.__init__\(\) missing 1 required positional argument: 'x'"):
        Point()
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        Point(1, z=2)
    match point:
        case Point(x, y):
            assert (x, y) == (1, 2)


@BOTH
def test_a_frozen_class_refuses_assignment(decorate: Decorator) -> None:
    for slots in (True, False):
        point = decorate(frozen=True, slots=slots)(type("Point", (), {"__annotations__": {"x": "int"}}))(1)
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
            point.x = 2
        with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
            del point.x
        assert point.x == 1


@BOTH
def test_methods_that_are_written_out_stay(decorate: Decorator) -> None:
    @decorate(frozen=True)
    class Word:
        text: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Word) and self.text.lower() == other.text.lower()

        def __hash__(self) -> int:
            return hash(self.text.lower())

        def __repr__(self) -> str:
            return self.text

        @cached_property
        def length(self) -> int:
            return len(self.text)

    assert {Word("A"), Word("a")} == {Word("A")}
    assert str(Word("A")) == "A"
    assert Word("abc").length == 3


@BOTH
def test_a_class_that_can_be_changed_has_no_hash(decorate: Decorator) -> None:
    @decorate(slots=True)
    class Count:
        number: int = 0

    @decorate(eq=False)
    class Counter:
        number: int = 0

    count = Count()
    count.number += 1
    assert count == Count(1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(count)
    assert Counter() != Counter()
    assert len({Counter(), Counter()}) == 2


def test_a_derived_class_has_the_fields_of_both() -> None:
    assert Named(1, 2, (), "x") == Named(1, 2, ("other",), "x") != Named(1, 2, (), "y")
    assert repr(Named(1)) == "Named(line=1, column=1, words=(), name='?')"
    assert Named(1) != Place(1)


def test_a_value_within_itself_is_shown() -> None:
    basket = Basket("taro", [], "hidden")
    basket.items.append(basket)  # type: ignore[arg-type]
    assert repr(basket) == "Basket(owner='taro', items=[...])"


def test_a_class_without_a_docstring_has_its_name_as_one() -> None:
    assert (Basket.__doc__, Place.__doc__) == ("Basket", "A place in a text.")


def test_all_of_hayase_uses_it() -> None:
    source = Path(hayase.__file__).parent
    apart = {source / "core/data_classes.py", source / "tables/jq_child.py"}  # the latter imports nothing of Hayase
    others = [
        str(path)
        for path in source.rglob("*.py")
        if path not in apart and "templates" not in path.parts
        if re.search(
            r"^ *from dataclasses import .*\bdataclass\b|dataclasses\.dataclass", path.read_text(), re.MULTILINE
        )
    ]
    assert others == []


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("slots", [True, False])
def test_classes_of_one_shape_keep_their_own_names_and_defaults(frozen: bool, slots: bool) -> None:
    @dataclass(frozen=frozen, slots=slots)
    class Size:
        wide: int
        high: int = 1
        tags: list[str] = field(default_factory=list)
        unit: str = field(default="m", kw_only=True)

    @dataclass(frozen=frozen, slots=slots)
    class Price:
        amount: int
        digits: int = 2
        notes: dict[str, str] = field(default_factory=dict)
        currency: str = field(default="JPY", kw_only=True)

    assert repr(Size(3, unit="cm")) == f"{Size.__qualname__}(wide=3, high=1, tags=[], unit='cm')"
    assert repr(Price(3, 0)) == f"{Price.__qualname__}(amount=3, digits=0, notes={{}}, currency='JPY')"
    with pytest.raises(TypeError, match=r"Price\.__init__\(\) got an unexpected keyword argument 'wide'"):
        Price(wide=1)  # type: ignore[call-arg]
