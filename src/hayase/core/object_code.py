"""Object code of loops in the user's cache, and calling it without Numba.

`save` keeps the object code that Numba made of a loop. An `ObjectLoop` loads it with LLVM's linker (llvmlite) when it is first
called, and calls it through ctypes in the way in which compiled loops call each other: a pointer to the result, a pointer for an
exception, then the arguments. An array is passed as its owner (two words, none here), the number and size of its elements, its
address, its shape and its strides.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hayase.core.loop_types import Array, Kind, Record, Scalar, Tuple
from hayase.core.machine_code import go_over_to_numba, loop_directory

__all__ = ["ObjectLoop", "object_file", "save"]

_UNUSED = (
    "NRT_Free", "NRT_MemInfo_call_dtor", "NRT_adapt_ndarray_from_python", "numba_adapt_ndarray", "numba_do_raise",
    "numba_gil_ensure", "numba_gil_release", "numba_runtime_build_excinfo_struct", "numba_unpickle",
)  # fmt: skip
"""What object code asks of Numba only in its entry from Python, which is not used here, and to release owners of arrays."""

_C_TYPES = {
    "boolean": ctypes.c_bool, "int32": ctypes.c_int32, "int64": ctypes.c_int64, "uint8": ctypes.c_uint8,
    "uint32": ctypes.c_uint32, "uint64": ctypes.c_uint64, "float64": ctypes.c_double,
}  # fmt: skip


# ------------------------------------------------------------------------------------------------- files


def object_file(function: Callable[..., Any]) -> Path | None:
    """Return the file for the object code of a loop; None if the user's cache cannot be used, or Numba has another one."""
    code = function.__code__
    directory = None if os.environ.get("NUMBA_CACHE_DIR") else loop_directory(function.__module__, code.co_filename)
    return None if directory is None else directory / f"{function.__name__}-{code.co_firstlineno}.{_processor()}.object"


@functools.cache
def _processor() -> str:
    """Return a digest of what the machine code depends on besides the sources: the processor, and Numba's settings."""
    import llvmlite.binding as llvm  # type: ignore[import-untyped]

    settings = sorted(item for item in os.environ.items() if item[0].startswith("NUMBA_"))
    about = [llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), settings]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]


def save(function: Callable[..., Any], result: Any) -> None:
    """Keep the object code of what Numba has just compiled (a `CompileResult`), unless it needs more than a processor.

    The file is a line of JSON (the name of the code, the names that it needs from elsewhere, a checksum), and the object code.
    """
    file = object_file(function)
    module = result.library._final_module
    needs = [part.name for part in (*module.functions, *module.global_variables) if part.is_declaration]
    needs = sorted(name for name in needs if not name.startswith("llvm."))
    if file is None or any(name.startswith(("NRT_", "numba_")) and name not in _UNUSED for name in needs):
        return
    code = result.library._get_compiled_object()
    head = json.dumps({"name": result.fndesc.llvm_func_name, "needs": needs, "checksum": zlib.crc32(code)})
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    draft.write_bytes(head.encode() + b"\n" + code)
    draft.replace(file)


# ------------------------------------------------------------------------------------------------- calls


class ObjectLoop:
    """A loop that is loaded from its object code when it is first called, or left to Numba if there is none."""

    def __init__(self, function: Callable[..., Any], result: Kind, arguments: Sequence[Kind]) -> None:
        self.py_func = function
        self._file = object_file(function)
        self._result, self._arguments = result, tuple(arguments)
        self._entry: Any = None

    def __call__(self, *arguments: Any) -> Any:
        if self._entry is None:
            if type(getattr(sys.modules[self.py_func.__module__], self.py_func.__name__)) is ObjectLoop:
                self._entry = self._load()
            if self._entry is None:
                return self._by_numba(arguments)
        if len(arguments) != len(self._arguments):
            raise TypeError(f"{self.py_func.__name__} takes {len(self._arguments)} arguments, not {len(arguments)}")
        result, no_exception = _c_result(self._result)(), ctypes.c_void_p()
        words: list[Any] = [ctypes.byref(result), ctypes.byref(no_exception)]
        for kind, argument in zip(self._arguments, arguments):
            if isinstance(kind, Array):
                words += _array_words(kind, argument)
            else:
                words.append(argument)
        if status := self._entry(*words):
            raise RuntimeError(f"the loop {self.py_func.__qualname__} ended with status {status}")
        return _plain(self._result, result)

    def _by_numba(self, arguments: Sequence[Any]) -> Any:
        module = sys.modules[self.py_func.__module__]
        if getattr(module, self.py_func.__name__) is self:
            go_over_to_numba()
        return getattr(module, self.py_func.__name__)(*arguments)

    def _load(self) -> Any:
        """Return the entry of the machine code; None if it cannot be loaded."""
        try:
            head, _, code = (self._file or Path(os.devnull)).read_bytes().partition(b"\n")
            about = json.loads(head)
        except (OSError, ValueError):
            return None
        if about.get("checksum") != zlib.crc32(code):
            return None
        address = _linker().address(about["name"], about["needs"], code)
        if not address:
            return None
        words: list[Any] = [ctypes.c_void_p, ctypes.c_void_p]
        for kind in self._arguments:
            words += _c_words(kind)
        return ctypes.CFUNCTYPE(ctypes.c_int32, *words)(address)


class _Linker:
    """Puts object code into memory."""

    def __init__(self) -> None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
        self._llvm, self._engine = llvm, llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        abort = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value
        for name in _UNUSED:
            llvm.add_symbol(name, abort)

    def address(self, name: str, needs: Sequence[str], code: bytes) -> int | None:
        """Load object code; return the address of what it calls `name`, or None if something is missing that it needs."""
        if any(self._llvm.address_of_symbol(other) is None for other in needs):
            return None
        self._engine.add_object_file(self._llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        return int(self._engine.get_function_address(name))


_linker = functools.cache(_Linker)


def _c_words(kind: Kind) -> list[Any]:
    """Return the C types of the words of an argument."""
    if isinstance(kind, Array):
        return (
            [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 2 + [ctypes.c_void_p] + [ctypes.c_int64] * (2 * kind.dimensions)
        )
    assert isinstance(kind, Scalar)
    return [_C_TYPES[kind.name]]


def _array_words(kind: Array, array: Any) -> tuple[Any, ...]:
    """Return the words of an array, which must be as the loop expects it: the machine code does not check it."""
    if (
        array.dtype != kind.element.dtype
        or array.ndim != kind.dimensions
        or not array.flags.c_contiguous
        or not (kind.readonly or array.flags.writeable)
    ):
        raise TypeError(f"a loop expects {kind}, and got an array of {array.dtype} with the shape {array.shape}")
    address = array.__array_interface__["data"][0]
    return (None, None, array.size, array.itemsize, address, *array.shape, *array.strides)


@functools.cache
def _c_result(kind: Kind | Record) -> Any:
    """Return the C type of a result."""
    if isinstance(kind, Tuple):
        fields = [(f"part{at}", _c_result(part)) for at, part in enumerate(kind.parts)]
        return type("Parts", (ctypes.Structure,), {"_fields_": fields})
    assert isinstance(kind, Scalar)
    return _C_TYPES.get(kind.name, ctypes.c_void_p)


def _plain(kind: Kind, result: Any) -> Any:
    """Return a result as Numba returns it."""
    if isinstance(kind, Tuple):
        return tuple(getattr(result, f"part{at}") for at in range(len(kind.parts)))
    return None if kind == Scalar("void") else result.value
