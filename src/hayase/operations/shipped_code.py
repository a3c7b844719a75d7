"""Ships the code of an operation: a copy of its module and of the local modules that it imports, kept in the home.

What runs is then what was checked, whatever happens to the files it came from, and every version can be gone back to.

Imports are found by reading the syntax trees, one module after the other, and only in the directory of the operation. Not
followed: imports whose names are computed at run time, such as those of `importlib.import_module`. Not copied: what is
installed, which workers must have anyway. Of files beside the modules that are no code, those are copied that the
declaration lists.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path

from hayase.core.declarations import OperationDeclaration
from hayase.core.errors import DamagedState, DeclarationError, nearest
from hayase.core.function_sources import needed_text
from hayase.streams import durable

__all__ = ["MOST_BYTES", "check_shipped", "ship"]

MOST_BYTES = 64 << 20
"""Of all modules of an operation together: more is data rather than code."""

_OURS = "hayase"
_INSTALLED = tuple(Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib", "platlib"))


def ship(declaration: OperationDeclaration, code_root: Path) -> OperationDeclaration:
    """The declaration with its code in `code_root`, in a directory that is called by its content; repeating is harmless.

    What is shipped already stays as it is. The caller sees to it that nobody else ships to that place at the same time.
    """
    if declaration.code is not None:
        return declaration
    place, _, attribute = declaration.function.rpartition(":")
    try:
        if place.endswith(".py"):
            module, files = _script(place, attribute, declaration.directory)
        else:
            module, files = place, _module_files(place, declaration.directory)
        if declaration.files:
            files = {**_data(declaration, bool(files)), **files}
    except DeclarationError as error:
        raise DeclarationError(
            replace(each, message=f'operation "{declaration.name}": {each.message}') for each in error.mistakes
        ) from error
    if files:
        code = _digest(files)
        _store(files, code_root / code)
    else:
        code = _digest(_installed_text(place))
    return replace(declaration, function=f"{module}:{attribute}", directory=None, code=code)


def _digest(files: Mapping[str, bytes]) -> str:
    found = hashlib.blake2b(digest_size=16)
    for name, content in sorted(files.items()):
        found.update(b"%d %d " % (len(os.fsencode(name)), len(content)))
        found.update(os.fsencode(name))
        found.update(content)
    return found.hexdigest()


def check_shipped(directory: Path) -> None:
    """See that shipped code is what it was: its directory is called by its content. There is none for installed modules."""
    if directory.is_dir() and _digest(_stored(directory)) != directory.name:
        raise DamagedState(
            f"the code in {directory} is damaged: it does not match its checksum, which is its name; put back a copy from a "
            "backup, or declare the operation again with the same code: `hayase apply FILE`"
        )


def _stored(directory: Path) -> dict[str, bytes]:
    """The files below a directory; not what Python has compiled there."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def _store(files: Mapping[str, bytes], target: Path) -> None:
    """Write files below a directory that is there as a whole or not at all, durably."""
    if target.is_dir():
        if _digest(_stored(target)) == target.name:
            return
        damaged = target.with_name(f"{target.name}.damaged{durable.TEMPORARY}")
        shutil.rmtree(damaged, ignore_errors=True)
        durable.rename(target, damaged)
        shutil.rmtree(damaged)
    draft = target.with_name(f"{target.name}{durable.TEMPORARY}")
    if draft.exists():  # of a process that did not come to its end
        shutil.rmtree(draft)
    durable.make_directory(target.parent)
    for name, content in files.items():
        path = draft / name
        durable.make_directory(path.parent)
        descriptor = durable.opened(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        try:
            durable.write(descriptor, content)
            durable.fsync_file(descriptor)
        finally:
            os.close(descriptor)
    for directory, _, _ in os.walk(draft, topdown=False):
        durable.fsync_directory(Path(directory))
    durable.rename(draft, target)


# ---------------------------------------------------------------------------------------------------- which files


def _script(place: str, attribute: str, directory: str | None) -> tuple[str, dict[str, bytes]]:
    """The name and the files of a module made of what a function needs of a script."""
    path = Path(directory or ".", place).absolute()
    source, tree = _parsed(path)
    functions = [each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    text = needed_text(source, attribute)
    if not any(name == attribute for each in ast.parse(text).body for name in _names(each)):
        hint = nearest(attribute, functions).removeprefix("; ") or "it has no function at all"
        raise DeclarationError(f'{place} has no "{attribute}"', hint)
    local = _Local(path.parent)
    for name in _imported(ast.parse(text), "", local):
        local.take(name)
    name = re.sub(r"\W", "_", path.stem)
    name = name if name.isidentifier() else f"_{name}"
    if f"{name}.py" in local.files or f"{name}/__init__.py" in local.files or _is_known(name):
        name = f"{name}_script"
    local.add(Path(f"{name}.py"), f"{text}\n".encode())
    return name, local.files


def _data(declaration: OperationDeclaration, has_code: bool) -> dict[str, bytes]:
    """The data files of an operation, which lie beside its script, or in the directory of its modules."""
    place = declaration.function.rpartition(":")[0]
    if not has_code:
        hint = "install its data with it, or move the function into a module beside the pipeline"
        raise DeclarationError(f"the module {place} is installed, and so nothing is shipped beside it", hint)
    directory = Path(declaration.directory or ".").absolute()
    root = Path(directory, place).parent if place.endswith(".py") else directory
    local = _Local(root)
    for pattern in declaration.files:
        found = sorted(each for each in root.glob(pattern) if each.is_file())
        if not found:
            raise DeclarationError(f'no file in {root} matches "{pattern}"', "check the name; it is relative to that")
        for each in found:
            if root.resolve() not in each.resolve().parents:
                raise DeclarationError(f"{each} leads out of {root}", "copy the file to there")
            try:
                local.add(each.relative_to(root), each.read_bytes())
            except OSError as error:
                raise DeclarationError(f"{each} cannot be read: {error.strerror}", "check its permissions") from error
    return local.files


def _is_known(name: str) -> bool:
    """Whether workers would find another module of that name."""
    return name in sys.stdlib_module_names or PathFinder.find_spec(name, [str(each) for each in _INSTALLED]) is not None


def _module_files(name: str, directory: str | None) -> dict[str, bytes]:
    """The files of a module and of what it imports; none if it is installed."""
    if name.partition(".")[0] == _OURS:
        return {}
    if directory is not None:
        local = _Local(Path(directory).absolute())
        if local.found(name) is not None:
            local.take(name)
            return local.files
    root = _root_of(name)
    if root is None:
        hint = "it must be installed, or lie in the directory of the pipeline"
        where = "" if directory is None else f" in {directory}"
        raise DeclarationError(f"there is no module {name}{where}", hint)
    if any(root == each or each in root.parents for each in _INSTALLED):
        return {}
    local = _Local(root)
    local.take(name)
    return local.files


def _root_of(name: str) -> Path | None:
    """The directory among those of Python in which a module is found; nothing is run for that."""
    if name in sys.builtin_module_names:
        return _INSTALLED[0]
    for entry in sys.path:
        if _Local(Path(entry).absolute()).found(name) is not None:
            return Path(entry).absolute()
    return None


def _installed_text(name: str) -> dict[str, bytes]:
    """What stands for the version of an installed module: its text, and the version of the package of its name."""
    outermost = name.partition(".")[0]
    try:
        version = importlib.metadata.version(outermost)
    except importlib.metadata.PackageNotFoundError:
        version = ""
    root = _root_of(name)
    path = None if root is None else _Local(root).found(name)
    text = b"" if root is None or path is None else (root / path).read_bytes()
    return {f"{name} {version}": text}


@dataclass(slots=True)
class _Local:
    """Modules below a directory, and what of them has been taken: content by relative path."""

    root: Path
    files: dict[str, bytes] = field(default_factory=dict)
    _size: int = 0

    def found(self, name: str) -> Path | None:
        """The file of a module, relative to the root, as Python would find it."""
        path = Path(*name.split("."))
        parts = [path / "__init__.py", *(path.with_name(path.name + each) for each in (*EXTENSION_SUFFIXES, ".py"))]
        return next((each for each in parts if (self.root / each).is_file()), None)

    def take(self, name: str) -> None:
        """Take a module, the packages it is in, and all that these import from here."""
        waiting, asked = [name], name
        while waiting:
            name = waiting.pop()
            path = self.found(name)
            if path is not None and name != asked and name.partition(".")[0] in sys.stdlib_module_names:
                hint = "rename it: whoever imports that name may get Python's own"
                raise DeclarationError(f"{self.root / path} has the name of a module of Python's own", hint)
            if "." in name:
                waiting.append(name.rpartition(".")[0])
            if path is None or path.as_posix() in self.files or name.partition(".")[0] == _OURS:
                continue
            content = (self.root / path).read_bytes()
            self.add(path, content)
            if path.suffix == ".py":
                package = name if path.name == "__init__.py" else name.rpartition(".")[0]
                waiting += _imported(_tree(self.root / path, content), package, self)

    def add(self, path: Path, content: bytes) -> None:
        self.files[path.as_posix()] = content
        self._size += len(content)
        if self._size > MOST_BYTES:
            raise DeclarationError(
                f"its modules and files in {self.root} have more than {MOST_BYTES >> 20} MB together",
                "install what is large, and let the function read its data from files",
            )

    def submodules(self, package: str) -> Iterator[str]:
        """The modules that lie directly in a package."""
        folder = self.root.joinpath(*package.split("."))
        names = {each.name.partition(".")[0] for each in folder.iterdir()} if folder.is_dir() else set()
        for each in sorted(names):
            if each.isidentifier() and each != "__init__" and self.found(f"{package}.{each}") is not None:
                yield f"{package}.{each}"


def _imported(tree: ast.AST, package: str, local: _Local) -> Iterator[str]:
    """The names of modules that statements import, wherever they stand; some of what is named may be no module."""
    for each in ast.walk(tree):
        if isinstance(each, ast.Import):
            yield from (alias.name for alias in each.names)
        elif isinstance(each, ast.ImportFrom):
            above = package.split(".")[: 1 - each.level or None] if each.level else []
            base = ".".join([*above, *([each.module] if each.module else [])])
            if not base or (each.level and not package):
                continue
            yield base
            for alias in each.names:
                yield from local.submodules(base) if alias.name == "*" else (f"{base}.{alias.name}",)


def _tree(path: Path, content: bytes) -> ast.Module:
    try:
        return ast.parse(content, str(path))
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        told = error.msg if isinstance(error, SyntaxError) else str(error)
        raise DeclarationError(f"{path}{line} is no Python: {told}", "correct it") from error


def _parsed(path: Path) -> tuple[str, ast.Module]:
    try:
        text = path.read_text()
    except (OSError, UnicodeError) as error:
        raise DeclarationError(f"the file {path} cannot be read: {error}", "check the name") from error
    return text, _tree(path, text.encode())


def _names(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement on the top level gives a value to."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
        return
    for each in ast.walk(statement):
        if isinstance(each, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in each.names)
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            yield each.id
