"""The functions of the jobs in pipeline.yaml."""


def parse(record):
    """Return the requested page and the size. A malformed request raises, and becomes a dead letter."""
    _method, target, _version = record["request"].split(" ")
    return {"path": target.partition("?")[0], "size": record["size"]}


def by_address(record):
    """Return a key and a value."""
    return record["address"], record["request"]


def alert(address, requests, stored):
    """Yield an alert for an address if `stored`, its row of the list, is not None."""
    if stored is not None:
        yield address, {"reason": stored["reason"], "requests": len(requests)}
