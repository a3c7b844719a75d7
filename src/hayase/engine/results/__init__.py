"""Results of queries: intervals, changes, snapshots at an instant, and subscriptions to what is committed."""
