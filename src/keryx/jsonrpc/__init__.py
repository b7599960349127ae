"""JSON-RPC 2.0 over streams, one JSON object per line."""
