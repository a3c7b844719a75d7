"""The function of the operation in pipeline.yaml: it is called with the records of a window, here one."""


def score(records):
    """Return the price per item of an order. An order without items raises, and becomes a dead letter."""
    order = records[0]
    return {"id": order["id"], "user": order["user"], "score": order["amount"] / order["items"]}
