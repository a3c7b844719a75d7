"""The decorator `dataclass` of Hayase's own classes: the standard one, but a class takes a tenth of the time to create.

The standard decorator compiles six methods of every class when its module is imported, 0.5 ms a class; a command imports hundreds
of classes and uses some of them. Here methods are closures over the names of the fields, and `__init__` is compiled when it is
first looked up. Fields, `replace`, `asdict`, matching, pickling and errors are those of the standard library. A class that is
derived from one of these takes this decorator too: `__dataclass_params__` does not say that it is frozen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    import dataclasses
    import sys
    from collections.abc import Callable
    from functools import cache
    from operator import attrgetter, ge, gt, le, lt
    from reprlib import recursive_repr
    from types import CellType, CodeType, FunctionType, MemberDescriptorType
    from typing import Any

    def dataclass(
        cls: type | None = None,
        /,
        *,
        eq: bool = True,
        order: bool = False,
        frozen: bool = False,
        slots: bool = False,
        kw_only: bool = False,
    ) -> Any:
        """Return the class with the methods of a data class; with options, the decorator that does that."""

        def decorated(undecorated: type) -> type:
            own = vars(undecorated)
            names = _Names()
            methods: dict[str, Any] = {"__repr__": _repr(names)}
            if eq:
                methods |= {"__eq__": _equality(names)}
                if own.get("__hash__") is None:  # also where `__eq__` is written out, which sets it to None
                    methods["__hash__"] = _hash(names) if frozen else None
            if order:
                methods |= {f"__{each.__name__}__": _comparison(names, each) for each in (lt, le, gt, ge)}
            if frozen:
                methods |= {"__setattr__": _refuse_assignment, "__delattr__": _refuse_deletion}
            if frozen and slots:
                methods |= {"__getstate__": _state(names), "__setstate__": _restore(names)}
            for name, method in methods.items():
                if name not in own or (name == "__hash__" and own[name] is None):
                    setattr(undecorated, name, method)
            init = None if "__init__" in own else _Init(frozen)
            if init is not None:
                undecorated.__init__ = init
            undecorated.__doc__ = undecorated.__doc__ or undecorated.__name__  # or its signature is looked up
            fields = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
            created = fields(undecorated)
            names.find(created)
            if init is not None:
                init.owner = created
            return created

        return decorated if cls is None else decorated(cls)

    class _Names:
        """The names of a class's fields, known when the class is created: those that are shown, compared, and all."""

        __slots__ = ("all", "compared", "shown")

        def find(self, created: type) -> None:
            fields = dataclasses.fields(created)
            self.all = tuple(field.name for field in fields)
            self.shown = tuple(field.name for field in fields if field.repr)
            self.compared = _values(tuple(field.name for field in fields if field.compare))

    def _values(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
        """Return the function from an instance to the values of these fields, as a tuple."""
        if len(names) > 1:
            return attrgetter(*names)
        return lambda instance: tuple(getattr(instance, name) for name in names)

    def _repr(names: _Names) -> Callable[[Any], str]:
        @recursive_repr()
        def __repr__(self: Any) -> str:  # noqa: N807
            values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names.shown)
            return f"{type(self).__qualname__}({values})"

        return __repr__

    def _equality(names: _Names) -> Callable[[Any, Any], Any]:
        def __eq__(self: Any, other: Any) -> Any:  # noqa: N807
            if other.__class__ is not self.__class__:
                return NotImplemented
            values = names.compared
            return values(self) == values(other)

        return __eq__

    def _comparison(names: _Names, compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
        def compared(self: Any, other: Any) -> Any:
            if other.__class__ is not self.__class__:
                return NotImplemented
            return compare(names.compared(self), names.compared(other))

        return compared

    def _hash(names: _Names) -> Callable[[Any], int]:
        return lambda self: hash(names.compared(self))

    def _refuse_assignment(self: object, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def _refuse_deletion(self: object, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def _state(names: _Names) -> Callable[[Any], list[Any]]:
        return lambda self: [getattr(self, name) for name in names.all]

    def _restore(names: _Names) -> Callable[[Any, list[Any]], None]:
        def __setstate__(self: Any, state: list[Any]) -> None:  # noqa: N807
            for name, value in zip(names.all, state):
                object.__setattr__(self, name, value)

        return __setstate__

    class _Init:
        """`__init__` of a class until it is first looked up: then it is compiled and takes this place."""

        __slots__ = ("frozen", "owner")

        def __init__(self, frozen: bool) -> None:
            self.frozen = frozen

        def __get__(self, instance: object, owner: type | None = None) -> Any:
            compiled = _compiled_init(self.owner, self.frozen)
            self.owner.__init__ = compiled
            return compiled if instance is None else compiled.__get__(instance, owner)

    def _compiled_init(cls: type, frozen: bool) -> FunctionType:
        """Return the function that assigns the fields of a new instance, with defaults, and calls `__post_init__`.

        Classes of one shape share the compiled code, in which only names differ.
        """
        fields = [f for f in dataclasses.fields(cls) if f.init or f.default_factory is not dataclasses.MISSING]
        names = {f"field{at}": field.name for at, field in enumerate(fields)}
        outer: dict[str, Any] = {"_assign": object.__setattr__}
        shape, defaults, keywords = [], [], {}
        for at, field in enumerate(fields):
            slot = getattr(cls, field.name, None)
            slotted = frozen and isinstance(slot, MemberDescriptorType)
            made = field.default_factory is not dataclasses.MISSING
            outer |= {f"_set{at}": slot.__set__} if slotted else {}
            outer |= {f"_make{at}": field.default_factory} if made else {}
            shape.append((field.init, field.kw_only, made, "slot" if slotted else "frozen" if frozen else "open"))
            default = field.default_factory if made else field.default
            if field.init and default is not dataclasses.MISSING:
                if field.kw_only:
                    keywords[field.name] = default
                else:
                    defaults.append(default)
        template = _init_code(tuple(shape), hasattr(cls, "__post_init__"))
        code = template.replace(
            co_varnames=tuple(names.get(name, name) for name in template.co_varnames),
            co_names=tuple(names.get(name, name) for name in template.co_names),
            co_consts=tuple(names.get(value, value) if type(value) is str else value for value in template.co_consts),
            co_qualname=f"{cls.__qualname__}.__init__",
        )
        closure = tuple(CellType(outer[name]) for name in code.co_freevars)
        compiled = FunctionType(code, vars(sys.modules[cls.__module__]), "__init__", tuple(defaults), closure)
        compiled.__kwdefaults__ = keywords or None
        compiled.__annotations__ = {field.name: field.type for field in fields if field.init} | {"return": None}
        return compiled

    @cache
    def _init_code(shape: tuple[tuple[bool, bool, bool, str], ...], post_init: bool) -> CodeType:
        """Return the code of `__init__` for fields named `field0`, `field1`, ...: of each, whether it is a parameter, by keyword
        only, has a factory, and how it is assigned."""
        positional, keywords, lines, outer = [], [], [], ["_assign"]
        for at, (is_parameter, by_keyword, made, how) in enumerate(shape):
            name = value = f"field{at}"
            if is_parameter:
                (keywords if by_keyword else positional).append(name)
            if made:
                outer.append(f"_make{at}")
                value = f"_make{at}() if {name} is _make{at} else {name}" if is_parameter else f"_make{at}()"
            if how == "slot":
                outer.append(f"_set{at}")
                lines.append(f"_set{at}(self, {value})")
            else:
                lines.append(f"self.{name} = {value}" if how == "open" else f"_assign(self, {name!r}, {value})")
        if post_init:
            lines.append("self.__post_init__()")
        parameters = ", ".join(["self", *positional, *(["*", *keywords] if keywords else [])])
        body = "\n  ".join(lines or ["pass"])
        built: dict[str, Any] = {}
        exec(f"def build({', '.join(outer)}):\n def __init__({parameters}):\n  {body}\n return __init__", built)  # noqa: S102
        code: CodeType = built["build"](*outer).__code__
        return code
