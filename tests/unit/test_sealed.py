"""Small files with a checksum: whatever bit changes, it is noticed, and the file is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from hayase.core.errors import DamagedState
from hayase.streams.sealed import read_sealed, seal


def test_what_is_sealed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for body in (b"", b"{}", b'{"a": 1}\n{"b": 2}\n'):
        path.write_bytes(seal("manifest", body))
        assert read_sealed(path, "manifest", "") == body


def test_every_bit_every_cut_and_every_other_kind_is_noticed(tmp_path: Path) -> None:
    path, whole = tmp_path / "file", seal("manifest", b'{"version":12}')
    changed = [
        bytes([*whole[:at], whole[at] ^ 1 << bit, *whole[at + 1 :]]) for at in range(len(whole)) for bit in range(8)
    ]
    cut = [whole[:at] for at in range(len(whole))]
    for data in (*changed, *cut, whole + b" ", b'{"version":12}', seal("definition", b'{"version":12}')):
        path.write_bytes(data)
        with pytest.raises(DamagedState, match=rf"the manifest {path} cannot be read: .*; put it back"):
            read_sealed(path, "manifest", "put it back")
