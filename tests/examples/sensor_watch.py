"""Watch sensors: calibrate their readings, keep their history, and tell when a value jumps or goes past all before it."""

import hayase as hy

p = hy.Pipeline("sensors", home="./sensors")
p.stream("readings", schema="time timestamp, sensor string, raw double", time="time")

# What is stored: how a sensor is to be read, and what it has shown so far.
p.stream("measured", schema="time timestamp, id string, sensor string, scale double, zero double", time="time", id="id")
p.table("calibration", key="sensor", scale=hy.Register(), zero=hy.Register())
p.table(
    "history",
    key="sensor",
    columns={
        "count": hy.Counter(), "sum": hy.Counter(), "last": hy.Register(), "low": hy.MinRegister(), "high": hy.MaxRegister()
    },
)  # fmt: skip
p.rules(
    text="""
source: measured
rules: [{tables: {calibration: {key: .sensor, columns: {scale: .scale, zero: .zero}}}}]
"""
)

job = p.job("changes", reads="readings", every="5 seconds")
JUMP = 5.0


@job.map
def by_sensor(record):
    return record["sensor"], record["raw"]


@job.merge("calibration", order="time")
def calibrate(sensor, raw, stored):
    if stored is None:
        raise LookupError(f"{sensor} has no calibration")
    return [(sensor, (each - stored["zero"]) * stored["scale"]) for each in raw]


@job.merge("history", order="time", also="history")
def watch(sensor, values, stored):
    last, low, high = (stored[name] for name in ("last", "low", "high")) if stored else (values[0],) * 3
    for value in values:
        if abs(value - last) >= JUMP:
            yield sensor, {"jump": [last, value]}
        if not low <= value <= high:
            yield sensor, {"record": value}
        last, low, high = value, min(low, value), max(high, value)
    update = {"count": len(values), "sum": sum(values), "last": last, "low": low, "high": high}
    yield hy.to("history", sensor, update)


if __name__ == "__main__":
    p.run()
