"""KV connectors of this project (KV store, handoff), and observers of vLLM's offloading."""
