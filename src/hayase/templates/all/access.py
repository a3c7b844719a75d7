"""The functions of the job in pipeline.yaml."""


def by_address(record):
    """The address and the page that was asked for. What is no request raises, and is a dead letter."""
    _method, target, _version = record["request"].split(" ")
    return record["address"], target


def alert(address, targets, stored):
    """What came from an address, with the row of the list for it, or None."""
    if stored is not None:
        yield address, {"reason": stored["reason"], "requests": len(targets)}
