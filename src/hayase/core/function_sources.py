"""Sources of user functions: "module:function", or "path/to/file.py:function" for a function in a script. Loads them.

A script is not run as a whole to load a function from it: that would start the pipeline again. Only the statements that the
function depends on, by the names that it uses, are run; a fingerprint covers the text of the same statements.
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
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError, suggestion

__all__ = ["FunctionSource", "imported", "needed_text", "source_of"]

_INSTALLED = tuple(Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib", "platlib"))
_DECORATORS = ("function", "map", "merge", "operation", "reduce", "view")
"""Methods of a pipeline or a job that are used as decorators of functions."""
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """The name of a function, and the directory of its module if it is not installed."""

    name: str
    directory: str | None = None

    @property
    def attribute(self) -> str:
        """The name of the function without its module."""
        return self.name.rpartition(":")[2]

    @property
    def is_file(self) -> bool:
        """Whether the function is in a script."""
        return self.name.rpartition(":")[0].endswith(".py")

    def load(self) -> Callable[..., Any]:
        """Import and return the function; a DeclarationError says why that is not possible."""
        return _loaded(self)

    def text(self) -> str:
        """Return the statements of its file that the function depends on, without layout and comments.

        Imported modules are not followed.
        """
        place = self.name.rpartition(":")[0]
        if self.is_file:
            return needed_text(_script(place), self.attribute)
        module = _module(place, self.directory)
        try:
            return needed_text(inspect.getsource(module), self.attribute)
        except (OSError, TypeError, SyntaxError):  # the module is not written in Python
            return ""


def source_of(function: Callable[..., Any]) -> FunctionSource:
    """Return the source from which any process can load a function.

    >>> source_of(suggestion).name
    'hayase.core.errors:suggestion'
    >>> source_of(lambda record: None)
    Traceback (most recent call last):
    hayase.core.errors.DeclarationError: a lambda cannot be found by other processes; write it as a function with a name
    """
    if not callable(function):
        raise DeclarationError(f"{function!r} is not a function", "give a function or its name, module:function")
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
    """Return the directory of a module's outermost package, or None if it is installed."""
    if file is None:
        return None
    path = Path(file).resolve()
    depth = module.count(".") + (path.stem in ("__init__", "__main__") and not module.endswith(path.stem))
    directory = path.parents[depth]
    installed = any(directory == place or place in directory.parents for place in _INSTALLED)
    return None if installed else str(directory)


@lru_cache(maxsize=1024)
def _loaded(source: FunctionSource) -> Callable[..., Any]:
    place, attribute = source.name.rpartition(":")[0], source.attribute
    module = _script_module(place, attribute) if source.is_file else _module(place, source.directory)
    function = getattr(module, attribute, None)
    if function is None:
        others = [name for name, value in vars(module).items() if inspect.isfunction(value)]
        hint = suggestion(attribute, others) or "it has no function at all"
        raise DeclarationError(f'{place} has no "{attribute}"', hint)
    if not callable(function):
        raise DeclarationError(f"{source.name} is a {type(function).__name__}, not a function", "name a function")
    return function


def _module(name: str, directory: str | None) -> ModuleType:
    main = sys.modules.get("__main__")
    if main is not None and getattr(getattr(main, "__spec__", None), "name", None) == name:
        return main  # the module is running, as python -m name
    if directory is not None:
        _look_first_in(directory)
        own, loaded = _own_file(name, directory), sys.modules.get(name)
        if own is not None and loaded is not None and not _is_of(loaded, own):
            return _beside(name, own, loaded)
    return imported(name, "the directory of the pipeline")


def imported(name: str, searched: str) -> ModuleType:
    """Import a module; a DeclarationError says why that fails. `searched` is where a module may be that is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise DeclarationError(f"the module {name} cannot be loaded: {error}") from error
        hint = f"it must be installed, or lie in {searched}"
        raise DeclarationError(f"there is no module {error.name}", hint) from error
    except Exception as error:
        message = f"the module {name} cannot be loaded: {type(error).__name__}: {error}{_place(error)}"
        raise DeclarationError(message) from error


def _own_file(name: str, directory: str) -> Path | None:
    """Return the file of a module in a directory, or None if there is none."""
    path = Path(directory, *name.split("."))
    return next((file for file in (path / "__init__.py", path.with_name(f"{path.name}.py")) if file.is_file()), None)


def _is_of(module: ModuleType, file: Path) -> bool:
    """Return whether a module was loaded from a file."""
    origin = getattr(module, "__file__", None)
    return origin is not None and Path(origin).resolve() == file.resolve()


def _beside(name: str, file: Path, loaded: ModuleType) -> ModuleType:
    """Load a module whose name is taken by a loaded one, such as `signal`, under another name."""
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
        message = f"the module {name} cannot be loaded: {type(error).__name__}: {error}{_place(error)}"
        raise DeclarationError(message) from error
    return module


def _look_first_in(directory: str) -> None:
    """Put a directory first on the module search path."""
    if sys.path[:1] != [directory]:
        sys.path[:] = [directory, *(other for other in sys.path if other != directory)]
        importlib.invalidate_caches()


def _place(error: Exception) -> str:
    """Return where a module raised an error while it was loaded, as the end of a sentence."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_written_here(frame.filename)]
    return f" in {frames[-1].name}, line {frames[-1].lineno}" if frames else ""


def _is_written_here(file: str) -> bool:
    """Return whether a file belongs to the user: it is neither part of a library nor this file."""
    return not file.startswith(("<frozen", __file__, *map(str, _INSTALLED)))


# ---------------------------------------------------------------------------------------------------- scripts


def _script(place: str) -> str:
    try:
        return Path(place).read_text()
    except (OSError, UnicodeError) as error:
        raise DeclarationError(f"the file {place} cannot be read: {error}", "check the name") from error


def _script_module(place: str, attribute: str) -> ModuleType:
    """Return the running script, or a module with the statements of the script that the function depends on."""
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
        message = f"{attribute} of {place} cannot be loaded: {type(error).__name__}: {error}{_place(error)}"
        raise DeclarationError(message) from error
    return module


def needed_text(source: str, attribute: str) -> str:
    """Return the statements of a module that a function depends on, including its definition.

    >>> print(needed_text("import re\\nimport os\\nLONG = 3\\ndef f(x):\\n  return re.escape(x)[:LONG]\\nprint(1)", "f"))
    import re
    LONG = 3
    def f(x):
        return re.escape(x)[:LONG]
    """
    return "\n".join(ast.unparse(statement).strip() for statement in _needed(ast.parse(source), attribute))


def _needed(tree: ast.Module, attribute: str) -> Iterator[ast.stmt]:
    """Return the statements that bind a name which the function uses, directly or through other such statements, in order."""
    statements = [_undecorated(statement) for statement in tree.body if not _is_entry(statement)]
    bound = [set(_bound(statement)) for statement in statements]
    wanted, kept = {attribute, "*"}, [False] * len(statements)
    changed = True
    while changed:
        changed = False
        for at, statement in enumerate(statements):
            if not kept[at] and bound[at] & wanted:
                kept[at] = changed = True
                wanted |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    return (statement for statement, keep in zip(statements, kept) if keep)


def _is_entry(statement: ast.stmt) -> bool:
    """Return whether a statement is the entry point of a script: `if __name__ == "__main__"`."""
    return isinstance(statement, ast.If) and any(
        isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test)
    )


def _undecorated(statement: ast.stmt) -> ast.stmt:
    """Return a definition without the decorators of a pipeline or a job, which would need that object."""
    if isinstance(statement, _Definition):
        statement.decorator_list = [decorator for decorator in statement.decorator_list if not _is_declaring(decorator)]
    return statement


def _is_declaring(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Attribute) and called.attr in _DECORATORS


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds, or whose value it changes; "*" if these are unknown."""
    if isinstance(statement, _Definition):
        yield statement.name
        return
    if isinstance(statement, ast.Expr):
        if isinstance(statement.value, ast.Call):
            yield from _roots(statement.value.func)
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Import | ast.ImportFrom):
            future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
            yield from ("*" if future else (name.asname or name.name).partition(".")[0] for name in node.names)
        elif isinstance(node, _Definition):
            yield node.name
        elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            yield from _roots(node)


def _roots(target: ast.expr) -> Iterator[str]:
    while isinstance(target, ast.Attribute | ast.Subscript):
        target = target.value
    if isinstance(target, ast.Name):
        yield target.id
