"""Our own KV connectors: a bounded in-memory store, and handoffs; copies are device tasks."""
