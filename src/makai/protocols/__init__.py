"""What we say: one folder per protocol, sans-IO. Messages in, commands out; events in, messages out."""
