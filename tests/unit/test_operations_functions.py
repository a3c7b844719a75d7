"""What users might write, for the tests of operations; no test itself."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

import pyarrow as pa

calls = 0


def same(records):
    return [{"x": each["x"]} for each in records]


def total(records):
    return {"x": sum(each["x"] for each in records)}


def changing(records):
    for each in records:
        each["x"] += 1000
        each["tags"].append("seen")
    return {"x": len(records[0]["tags"])}


def generated(records):
    for each in records:
        yield {"x": each["x"]}


async def awaited(records):
    await asyncio.sleep(0)
    return {"x": records[0]["x"]}


async def streamed(records):
    for each in records:
        await asyncio.sleep(0)
        yield {"x": each["x"]}


waiting = set()


async def together(records):
    """Who is at work at the same time."""
    way = records[0]["way"]
    waiting.add(records[0]["x"])
    await asyncio.sleep(0.01)
    most = len(waiting)
    await asyncio.sleep(0.01)
    waiting.discard(records[0]["x"])
    if way:
        fail(way)
    return {"x": most}


broken = False


def spoiled(records):
    """Works until it has met something bad, and then never again."""
    global broken
    broken = broken or records[0]["way"] == "break"
    if broken:
        raise RuntimeError("the connection is closed")
    return {"x": records[0]["x"]}


def whole(records):
    return [dict(each) for each in records]


def napping(records):
    time.sleep(0.003)
    return work(records)


async def napping_together(records):
    await asyncio.sleep(0.003)
    return work(records)


def batch(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select(["x"])


def table(rows: "pa.RecordBatch"):
    return pa.table({"x": rows.column("x")})


def wide(records):
    return {"user": "taro", "score": 0.5, "tags": ["a"], "seen": None if len(records) > 100 else True}


def leaky(records):
    global calls
    calls += 1
    return {"x": calls}


def work(records):
    for each in records:
        way = each["way"]
        if way:
            fail(way)
    return [{"x": each["x"]} for each in records]


def fail(way):
    if way == "raise":
        raise ValueError("no good")
    if way == "leave":
        sys.exit(4)
    if way == "exit":
        os._exit(3)
    if way == "segfault":
        ctypes.string_at(0)
    if way == "abort":
        os.abort()
    if way == "loop":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            pass
    if way == "gil":
        ctypes.PyDLL(None).sleep(1000)
    if way == "sleep":
        time.sleep(1000)
    if way == "memory":
        bytearray(1 << 40)
    if way == "print":
        print("something")
        sys.stdout.write("on every way")
        os.write(1, b"there is")
    if way == "close":
        os.closerange(0, 4096)
    if way == "reopen":
        os.closerange(3, 4096)
        for _ in range(64):
            os.open(os.devnull, os.O_RDWR)
    if way == "garble":
        for file in range(3, 64):
            if os.path.exists(f"/proc/self/fd/{file}") and os.readlink(f"/proc/self/fd/{file}").startswith("socket"):
                os.write(file, b"A\5\0\0\0\0\0\0\0-----")
    if way == "thread":
        threading.Thread(target=time.sleep, args=(1000,)).start()
    if way == "fork" and os.fork() == 0:
        return
    if way == "orphan":
        subprocess.Popen(["sleep", "987654"], start_new_session=True)
    if way == "parent":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)
    if way == "stop":
        os.kill(os.getpid(), signal.SIGKILL)


class Strange(int):
    def __int__(self):
        raise RuntimeError("not with me")

    __index__ = __float__ = __repr__ = __str__ = __int__


def strange(records):
    way = records[0]["way"]
    if way == "strange":
        return {"x": Strange(1)}
    if way == "text":
        return {"x": "one"}
    if way == "number":
        return 7
    if way == "numbers":
        return [{"x": 1}, 7]
    if way == "unknown":
        return {"x": 1, "y": 2}
    if way == "batch":
        return pa.table({"x": ["one"]})
    if way == "columns":
        return pa.table({"x": [1], "y": [2]})
    if way == "null":
        return {"x": None}
    return {"x": records[0]["x"]}
