"""Where users' functions are: "module:function", or "path/to/file.py:function" for those of a script.

A script is not run to get a function out of it: that would start the pipeline again. Of its statements only those are
run that the function needs, by the names that it uses; the same statements are the text that a fingerprint covers.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from hayase.core.errors import DeclarationError, nearest

__all__ = ["FunctionSource", "needed_text", "source_of"]

_INSTALLED = tuple(Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib", "platlib"))
_DECORATORS = ("map", "merge", "operation", "reduce", "view")
"""Methods of a pipeline, or of a job, that take a function up."""
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """The name of a function, and the directory of its module, if that is not installed."""

    name: str
    directory: str | None = None

    @property
    def attribute(self) -> str:
        """The function's own name."""
        return self.name.rpartition(":")[2]

    @property
    def is_file(self) -> bool:
        """Whether it stands in a script."""
        return self.name.rpartition(":")[0].endswith(".py")

    def load(self) -> Callable[..., Any]:
        """The function itself, or a DeclarationError that says why it cannot be had."""
        return _loaded(self)

    def text(self) -> str:
        """All of its file that it depends on, without layout and comments; what other modules hold is not followed."""
        place = self.name.rpartition(":")[0]
        if self.is_file:
            return needed_text(_script(place), self.attribute)
        module = _module(place, self.directory)
        try:
            return needed_text(inspect.getsource(module), self.attribute)
        except (OSError, TypeError, SyntaxError):  # not written in Python
            return ""


def source_of(function: Callable[..., Any]) -> FunctionSource:
    """Where a function can be found again, by any process.

    >>> source_of(nearest).name
    'hayase.core.errors:nearest'
    >>> source_of(lambda record: None)
    Traceback (most recent call last):
    hayase.core.errors.DeclarationError: a lambda cannot be found by other processes; write it as a function with a name
    """
    if not callable(function):
        raise DeclarationError(f"{function!r} is no function", "give a function or its name, module:function")
    name = getattr(function, "__qualname__", "")
    if name == "<lambda>" or name.endswith(".<lambda>"):
        raise DeclarationError("a lambda cannot be found by other processes", "write it as a function with a name")
    if not name.isidentifier():
        hint = "other processes must find it; put it on the top level of its module"
        raise DeclarationError(f"{name or function!r} stands inside of something else", hint)
    module = sys.modules.get(function.__module__)
    main_spec = getattr(module, "__spec__", None)
    if function.__module__ == "__main__" and main_spec is None:
        file = getattr(module, "__file__", None)
        if file is None:
            raise DeclarationError(
                f"{name} stands in no file", "put it into a module; other processes must be able to load it"
            )
        return FunctionSource(f"{Path(file).resolve()}:{name}")
    module_name = main_spec.name if function.__module__ == "__main__" and main_spec else function.__module__
    return FunctionSource(f"{module_name}:{name}", _directory(module_name, getattr(module, "__file__", None)))


def _directory(module: str, file: str | None) -> str | None:
    """Where a module's outermost package lies, unless it is installed."""
    if file is None:
        return None
    path = Path(file).resolve()
    depth = module.count(".") + (path.stem in ("__init__", "__main__") and not module.endswith(path.stem))
    found = path.parents[depth]
    return None if any(found == each or each in found.parents for each in _INSTALLED) else str(found)


@lru_cache(maxsize=1024)
def _loaded(source: FunctionSource) -> Callable[..., Any]:
    place, attribute = source.name.rpartition(":")[0], source.attribute
    module = _script_module(place, attribute) if source.is_file else _module(place, source.directory)
    found = getattr(module, attribute, None)
    if found is None:
        others = [name for name, value in vars(module).items() if inspect.isfunction(value)]
        hint = nearest(attribute, others).removeprefix("; ") or "it has no function at all"
        raise DeclarationError(f'{place} has no "{attribute}"', hint)
    if not callable(found):
        raise DeclarationError(f"{source.name} is a {type(found).__name__} and no function", "name a function")
    return found


def _module(name: str, directory: str | None) -> ModuleType:
    main = sys.modules.get("__main__")
    if main is not None and getattr(getattr(main, "__spec__", None), "name", None) == name:
        return main  # it is running: python -m name
    if directory is not None:
        _look_first_in(directory)
        own, loaded = _own_file(name, directory), sys.modules.get(name)
        if own is not None and loaded is not None and not _is_of(loaded, own):
            return _beside(name, own, loaded)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise DeclarationError(f"the module {name} cannot be loaded: {error}") from error
        hint = "it must be installed, or lie in the directory of the pipeline"
        raise DeclarationError(f"there is no module {error.name}", hint) from error
    except Exception as error:
        told = f"the module {name} cannot be loaded: {type(error).__name__}: {error}{_place(error)}"
        raise DeclarationError(told) from error


def _own_file(name: str, directory: str) -> Path | None:
    """The file of a module in a directory, if it lies there."""
    path = Path(directory, *name.split("."))
    return next((each for each in (path / "__init__.py", path.with_name(f"{path.name}.py")) if each.is_file()), None)


def _is_of(module: ModuleType, file: Path) -> bool:
    """Whether a module was loaded from a file."""
    found = getattr(module, "__file__", None)
    return found is not None and Path(found).resolve() == file.resolve()


def _beside(name: str, file: Path, loaded: ModuleType) -> ModuleType:
    """A module whose name another one has that is loaded already, such as `signal`: under a name of its own."""
    if "." in name or file.name == "__init__.py":
        whose = getattr(loaded, "__file__", None) or "Python itself"
        hint = f"rename the package in {file.parent}"
        raise DeclarationError(f"the module {name} has the name of one that is loaded already, from {whose}", hint)
    alone = f"{name} of {file.parent}"
    if alone in sys.modules and _is_of(sys.modules[alone], file):
        return sys.modules[alone]
    spec = importlib.util.spec_from_file_location(alone, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[alone] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[alone]
        told = f"the module {name} cannot be loaded: {type(error).__name__}: {error}{_place(error)}"
        raise DeclarationError(told) from error
    return module


def _look_first_in(directory: str) -> None:
    """Have modules of a directory found before all others of their names."""
    if sys.path[:1] != [directory]:
        sys.path[:] = [directory, *(each for each in sys.path if each != directory)]
        importlib.invalidate_caches()


def _place(error: Exception) -> str:
    """Where a module that cannot be loaded raised an error, as the end of a sentence."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if _is_written_here(each.filename)]
    return f" in {frames[-1].name}, line {frames[-1].lineno}" if frames else ""


def _is_written_here(file: str) -> bool:
    """Whether a file is no library's, and not this one."""
    return not file.startswith(("<frozen", __file__, *map(str, _INSTALLED)))


# ---------------------------------------------------------------------------------------------------- scripts


def _script(place: str) -> str:
    try:
        return Path(place).read_text()
    except (OSError, UnicodeError) as error:
        raise DeclarationError(f"the file {place} cannot be read: {error}", "check the name") from error


def _script_module(place: str, attribute: str) -> ModuleType:
    """The script that is running, or a module made of what the function needs of it."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if main is not None and file is not None and Path(file).resolve() == Path(place) and hasattr(main, attribute):
        return main
    _look_first_in(str(Path(place).parent))
    text = _script(place)
    name = f"{Path(place).stem}:{attribute}"
    module = sys.modules.setdefault(name, ModuleType(name))
    module.__file__ = place
    try:
        tree = ast.Module(list(_needed(ast.parse(text, place), attribute)), [])
        exec(compile(tree, place, "exec"), module.__dict__)  # noqa: S102  (it is the user's own code)
    except Exception as error:
        told = f"{attribute} of {place} cannot be loaded: {type(error).__name__}: {error}{_place(error)}"
        raise DeclarationError(told) from error
    return module


def needed_text(source: str, attribute: str) -> str:
    """The statements of a module that a function needs, itself included.

    >>> print(needed_text("import re\\nimport os\\nLONG = 3\\ndef f(x):\\n  return re.escape(x)[:LONG]\\nprint(1)", "f"))
    import re
    LONG = 3
    def f(x):
        return re.escape(x)[:LONG]
    """
    return "\n".join(ast.unparse(each).strip() for each in _needed(ast.parse(source), attribute))


def _needed(tree: ast.Module, attribute: str) -> Iterator[ast.stmt]:
    """Statements that bind a name which the function uses, or which one of these uses, in their order."""
    statements = [_undecorated(each) for each in tree.body if not _is_entry(each)]
    bound = [set(_bound(each)) for each in statements]
    wanted, kept = {attribute, "*"}, [False] * len(statements)
    changed = True
    while changed:
        changed = False
        for at, statement in enumerate(statements):
            if not kept[at] and bound[at] & wanted:
                kept[at] = changed = True
                wanted |= {each.id for each in ast.walk(statement) if isinstance(each, ast.Name)}
    return (each for each, keep in zip(statements, kept) if keep)


def _is_entry(statement: ast.stmt) -> bool:
    """Whether it is what a script does when it is run: `if __name__ == "__main__"`."""
    return isinstance(statement, ast.If) and any(
        isinstance(each, ast.Name) and each.id == "__name__" for each in ast.walk(statement.test)
    )


def _undecorated(statement: ast.stmt) -> ast.stmt:
    """A function without the decorators by which a pipeline takes it up: they need the pipeline."""
    if isinstance(statement, _Definition):
        statement.decorator_list = [each for each in statement.decorator_list if not _takes_up(each)]
    return statement


def _takes_up(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Attribute) and called.attr in _DECORATORS


def _bound(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement gives a value to, or whose value it changes; "*" if that cannot be told."""
    if isinstance(statement, _Definition):
        yield statement.name
        return
    if isinstance(statement, ast.Expr):
        if isinstance(statement.value, ast.Call):
            yield from _roots(statement.value.func)
        return
    for each in ast.walk(statement):
        if isinstance(each, ast.Import | ast.ImportFrom):
            future = isinstance(each, ast.ImportFrom) and each.module == "__future__"
            yield from ("*" if future else (name.asname or name.name).partition(".")[0] for name in each.names)
        elif isinstance(each, _Definition):
            yield each.name
        elif isinstance(each, ast.Name | ast.Attribute | ast.Subscript) and isinstance(each.ctx, ast.Store):
            yield from _roots(each)


def _roots(target: ast.expr) -> Iterator[str]:
    while isinstance(target, ast.Attribute | ast.Subscript):
        target = target.value
    if isinstance(target, ast.Name):
        yield target.id
