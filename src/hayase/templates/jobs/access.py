"""The functions of the jobs in pipeline.yaml."""


def parse(record):
    """The page that was asked for. What is no request raises, and is a dead letter."""
    _method, target, _version = record["request"].split(" ")
    return {"path": target.partition("?")[0], "size": record["size"]}


def by_address(record):
    """A key and a value."""
    return record["address"], record["request"]


def alert(address, requests, stored):
    """What came from an address, with the row of the list for it, or None."""
    if stored is not None:
        yield address, {"reason": stored["reason"], "requests": len(requests)}
