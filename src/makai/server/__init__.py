"""Where a protocol meets a transport: the only place that knows both."""
