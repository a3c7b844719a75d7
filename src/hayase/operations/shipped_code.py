"""Ships the code of operations and functions: copies the module and the local modules that it imports into the home.

So the code that runs is the code that was checked, whatever happens to the original files, and every version can be
restored.

Imports are found by parsing the modules recursively, and only in the directory of the module. Imports whose names
are computed at run time, such as those of `importlib.import_module`, are not followed. Installed packages are not
copied; workers must have them anyway. Of other files, those that the declaration lists are copied.
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
from dataclasses import field, replace
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path

from hayase.core.data_classes import dataclass
from hayase.core.declarations import OperationDeclaration
from hayase.core.errors import DamagedState, DeclarationError, suggestion
from hayase.core.function_declarations import FunctionDeclaration
from hayase.core.function_sources import needed_text
from hayase.streams import durable

__all__ = ["MOST_BYTES", "check_shipped", "ship", "ship_function", "source_texts"]

MOST_BYTES = 64 << 20
"""Maximal size of all files of an operation together: more is data rather than code."""

_OURS = "hayase"
_INSTALLED = tuple(Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib", "platlib"))


def ship(declaration: OperationDeclaration, code_root: Path) -> OperationDeclaration:
    """Copy the code of an operation to `code_root`, into a directory named by its digest, and return the declaration
    with that digest. Repeating it is harmless.

    A declaration that is already shipped is returned unchanged. The caller must ensure that nobody else ships to that
    directory at the same time.
    """
    if declaration.code is not None:
        return declaration
    code = _read_code("operation", declaration, declaration.function)
    return replace(declaration, function=code.function, directory=None, code=code.store(code_root))


def ship_function(declaration: FunctionDeclaration, code_root: Path) -> FunctionDeclaration:
    """Do the same for a function of queries. Its version is a digest of the statements that it depends on."""
    if declaration.code is not None or declaration.function is None:
        return declaration
    code = _read_code("function", declaration, declaration.function)
    stored = code.store(code_root)
    return replace(declaration, function=code.function, directory=None, code=stored, version=_digest(code.needed()))


@dataclass(frozen=True, slots=True)
class _Code:
    """The name of a function in shipped code, and the files of that code; none if its module is installed."""

    function: str
    files: Mapping[str, bytes]

    def store(self, code_root: Path) -> str:
        """Copy the files to a directory named by their digest, and return the digest."""
        if not self.files:
            return _digest(_installed_text(self.function.rpartition(":")[0]))
        code = _digest(self.files)
        _store(self.files, code_root / code)
        return code

    def needed(self) -> dict[str, bytes]:
        """Return what the function depends on: statements of its module, the modules that these import, and data."""
        module, _, attribute = self.function.rpartition(":")
        if not self.files:
            return _installed_text(module)
        trees = {path: ast.parse(text) for path, text in self.files.items() if path.endswith(".py")}
        own = self._path(module)
        if own in trees:
            trees[own] = ast.parse(needed_text(self.files[own].decode(), attribute))
        needed = {path: content for path, content in self.files.items() if path not in trees}
        waiting = [module]
        while waiting:
            name = waiting.pop()
            path = self._path(name)
            if path in trees and path not in needed:
                needed[path] = ast.unparse(trees[path]).encode()
                package = name if path.endswith("/__init__.py") else name.rpartition(".")[0]
                waiting += [*_imported(trees[path], package, self), name.rpartition(".")[0]]
        return needed

    def _path(self, module: str) -> str:
        """Return the path of a module among the files; empty if it is not a module in Python's source."""
        path = module.replace(".", "/")
        return next((name for name in (f"{path}/__init__.py", f"{path}.py") if name in self.files), "")

    def submodules(self, package: str) -> Iterator[str]:
        """Yield the modules directly in a package."""
        inside = package.replace(".", "/") + "/"
        for path in self.files:
            if path.startswith(inside) and path.endswith(".py") and "/" not in path.removeprefix(inside):
                yield f"{package}.{path.removeprefix(inside).removesuffix('.py')}"


def _read_code(kind: str, declaration: OperationDeclaration | FunctionDeclaration, function: str) -> _Code:
    place, _, attribute = function.rpartition(":")
    try:
        if place.endswith(".py"):
            module, files = _script(place, attribute, declaration.directory)
        else:
            module, files = place, _module_files(place, declaration.directory)
        if declaration.files:
            files = {**_data(declaration, place, bool(files)), **files}
    except DeclarationError as error:
        raise DeclarationError(
            replace(mistake, message=f'{kind} "{declaration.name}": {mistake.message}') for mistake in error.mistakes
        ) from error
    return _Code(f"{module}:{attribute}", files)


def _digest(files: Mapping[str, bytes]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, content in sorted(files.items()):
        digest.update(b"%d %d " % (len(os.fsencode(name)), len(content)))
        digest.update(os.fsencode(name))
        digest.update(content)
    return digest.hexdigest()


def check_shipped(directory: Path) -> None:
    """Raise DamagedState if shipped code does not match the digest that names its directory. Installed modules have no
    directory."""
    if directory.is_dir() and _digest(_stored(directory)) != directory.name:
        raise DamagedState(
            f"the code in {directory} is damaged: it does not match its checksum, which is its name",
            "put back a copy from a backup, or declare the operation again with the same code: `hayase apply FILE`",
        )


def source_texts(declaration: OperationDeclaration, code_root: Path) -> dict[str, str]:
    """Return the texts of a shipped operation's Python files by path, that of its function first. Of an installed module it is
    the one there is now, if that is still the code that was declared; else nothing."""
    assert declaration.code is not None, "it is not shipped"
    module = declaration.function.rpartition(":")[0]
    own = module.replace(".", "/")
    directory = code_root / declaration.code
    if directory.is_dir():
        check_shipped(directory)
        files = {path: content for path, content in _stored(directory).items() if path.endswith(".py")}
    else:
        installed = _installed_text(module)
        same = _digest(installed) == declaration.code
        files = {f"{own}.py": content for content in installed.values() if same and content and b"\0" not in content}
    first = [path for path in (f"{own}.py", f"{own}/__init__.py") if path in files]
    return {path: files[path].decode("utf-8", "replace") for path in dict.fromkeys([*first, *sorted(files)])}


def _stored(directory: Path) -> dict[str, bytes]:
    """Return the files below a directory, without Python's compiled files."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def _store(files: Mapping[str, bytes], target: Path) -> None:
    """Write files below a directory durably and atomically: the directory exists completely or not at all."""
    if target.is_dir():
        if _digest(_stored(target)) == target.name:
            return
        damaged = target.with_name(f"{target.name}.damaged{durable.TEMPORARY}")
        shutil.rmtree(damaged, ignore_errors=True)
        durable.rename(target, damaged)
        shutil.rmtree(damaged)
    draft = target.with_name(f"{target.name}{durable.TEMPORARY}")
    if draft.exists():  # left by a process that was interrupted
        shutil.rmtree(draft)
    durable.make_directory(target.parent)
    for name, content in files.items():
        path = draft / name
        durable.make_directory(path.parent)
        descriptor = durable.open_file(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
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
    """Return the name and files of a module that consists of what a function needs from a script."""
    path = Path(directory or ".", place).absolute()
    source, tree = _parsed(path)
    functions = [
        statement.name for statement in tree.body if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    text = needed_text(source, attribute)
    if not any(name == attribute for statement in ast.parse(text).body for name in _names(statement)):
        hint = suggestion(attribute, functions) or "it has no function at all"
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


def _data(declaration: OperationDeclaration | FunctionDeclaration, place: str, has_code: bool) -> dict[str, bytes]:
    """Return the data files of a declaration, which are beside its script or in the directory of its modules."""
    if not has_code:
        hint = "install its data with it, or move the function into a module beside the pipeline"
        raise DeclarationError(f"the module {place} is installed, and so nothing is shipped beside it", hint)
    directory = Path(declaration.directory or ".").absolute()
    root = Path(directory, place).parent if place.endswith(".py") else directory
    local = _Local(root)
    for pattern in declaration.files:
        matches = sorted(path for path in root.glob(pattern) if path.is_file())
        if not matches:
            raise DeclarationError(f'no file in {root} matches "{pattern}"', "check the name; it is relative to that")
        for path in matches:
            if root.resolve() not in path.resolve().parents:
                raise DeclarationError(f"{path} leads out of {root}", "copy the file to there")
            try:
                local.add(path.relative_to(root), path.read_bytes())
            except OSError as error:
                raise DeclarationError(f"{path} cannot be read: {error.strerror}", "check its permissions") from error
    return local.files


def _is_known(name: str) -> bool:
    """Return whether workers would find another module of that name."""
    return (
        name in sys.stdlib_module_names
        or PathFinder.find_spec(name, [str(directory) for directory in _INSTALLED]) is not None
    )


def _module_files(name: str, directory: str | None) -> dict[str, bytes]:
    """Return the files of a module and of its local imports; none if it is installed."""
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
    if any(root == installed or installed in root.parents for installed in _INSTALLED):
        return {}
    local = _Local(root)
    local.take(name)
    return local.files


def _root_of(name: str) -> Path | None:
    """Return the directory of `sys.path` that contains a module, without running any code; None if there is none."""
    if name in sys.builtin_module_names:
        return _INSTALLED[0]
    for entry in sys.path:
        if _Local(Path(entry).absolute()).found(name) is not None:
            return Path(entry).absolute()
    return None


def _installed_text(name: str) -> dict[str, bytes]:
    """Return what identifies the version of an installed module: its source, and the version of its package."""
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
    """Modules below a directory, and the contents of those taken so far, by relative path."""

    root: Path
    files: dict[str, bytes] = field(default_factory=dict)
    _size: int = 0

    def found(self, name: str) -> Path | None:
        """Return the file of a module, relative to the root, as Python would find it; None if there is none."""
        path = Path(*name.split("."))
        candidates = [
            path / "__init__.py",
            *(path.with_name(path.name + suffix) for suffix in (*EXTENSION_SUFFIXES, ".py")),
        ]
        return next((candidate for candidate in candidates if (self.root / candidate).is_file()), None)

    def take(self, name: str) -> None:
        """Take a module, the packages it is in, and all their local imports."""
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
        """Yield the modules directly in a package."""
        folder = self.root.joinpath(*package.split("."))
        names = {path.name.partition(".")[0] for path in folder.iterdir()} if folder.is_dir() else set()
        for name in sorted(names):
            if name.isidentifier() and name != "__init__" and self.found(f"{package}.{name}") is not None:
                yield f"{package}.{name}"


def _imported(tree: ast.AST, package: str, local: _Local | _Code) -> Iterator[str]:
    """Yield the names that import statements anywhere in the tree may refer to; some of them may not be modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: 1 - node.level or None] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            if not base or (node.level and not package):
                continue
            yield base
            for alias in node.names:
                yield from local.submodules(base) if alias.name == "*" else (f"{base}.{alias.name}",)


def _tree(path: Path, content: bytes) -> ast.Module:
    try:
        return ast.parse(content, str(path))
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        problem = error.msg if isinstance(error, SyntaxError) else str(error)
        raise DeclarationError(f"{path}{line} is not valid Python: {problem}", "correct it") from error


def _parsed(path: Path) -> tuple[str, ast.Module]:
    try:
        text = path.read_text()
    except (OSError, UnicodeError) as error:
        raise DeclarationError(f"the file {path} cannot be read: {error}", "check the name") from error
    return text, _tree(path, text.encode())


def _names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a top-level statement binds."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
