"""The functions of the job in pipeline.yaml."""


def by_address(record):
    """Return the address and the requested page. A malformed request raises, and becomes a dead letter."""
    _method, target, _version = record["request"].split(" ")
    return record["address"], target


def alert(address, targets, stored):
    """Yield an alert for an address if `stored`, its row of the list, is not None."""
    if stored is not None:
        yield address, {"reason": stored["reason"], "requests": len(targets)}
