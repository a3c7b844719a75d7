"""The functions of the operations in pipeline.yaml: each is called with the records of a window, oldest first."""


def score(records):
    """Return the price per item of an order. An order without items raises, and becomes a dead letter."""
    order = records[0]
    return {"id": order["id"], "user": order["user"], "score": order["amount"] / order["items"]}


def habit(records):
    """What a user spends on an order."""
    amounts = [each["amount"] for each in records]
    return {"user": records[0]["user"], "orders": len(amounts), "mean": sum(amounts) / len(amounts)}
