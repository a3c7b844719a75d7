"""The demo runs, ends by itself and adds up."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.spark
def test_the_demo_ends_by_itself_and_adds_up(tmp_path: Path) -> None:
    hayase = str(Path(sys.executable).with_name("hayase"))
    command = [hayase, "demo", "--fast", "--plain", "--home", str(tmp_path / "home")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "starting Spark" in done.stdout
    assert f"hayase dead list --grouped --home {tmp_path / 'home'}" in done.stdout
    assert "everything adds up" in done.stdout
    assert "✗" not in done.stdout
    (appended,) = re.findall(r"the shop's appends\s+([\d,]+)\s+([\d,]+)\s+([\d,]+)", done.stdout)
    sent, accepted, refused = (int(each.replace(",", "")) for each in appended)
    assert sent == accepted + refused
    read = {}
    for stage in ("spree", "revenue", "purchases", "traffic", "scores"):
        (figures,) = re.findall(rf"{stage}\s+([\d,]+)\s+([\d,]+)\s+([\d,]+)\s+0\s+✓", done.stdout)
        read[stage], processed, dead = (int(each.replace(",", "")) for each in figures)
        assert read[stage] == processed + dead
        assert dead > 0
    assert read["spree"] == read["revenue"] == read["purchases"] == read["scores"]
    assert read["spree"] + read["traffic"] == accepted
