"""The MiniCodex WebSocket protocol, sans-IO."""
