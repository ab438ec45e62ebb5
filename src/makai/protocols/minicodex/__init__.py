"""The MiniCodex WebSocket protocol (document 002), sans-IO."""
