"""What fuzzing has found, and the inputs that take the most ways through the readers, tried once more (`make fuzz`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz_targets import TARGETS

CORPUS = Path(__file__).parents[1] / "corpus"


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_no_reader_fails_at_what_is_kept(target: str) -> None:
    kept = sorted((CORPUS / target).iterdir())
    assert kept
    for each in kept:
        try:
            TARGETS[target](each.read_bytes())
        except BaseException as error:
            error.add_note(f"with {each}")
            raise
