"""The function of the operation in pipeline.yaml: it is called with the records of a window, here one."""


def score(records):
    """How much an item of the order costs. An order without items raises, and is a dead letter."""
    order = records[0]
    return {"id": order["id"], "user": order["user"], "score": order["amount"] / order["items"]}
