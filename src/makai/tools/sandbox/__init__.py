"""What confines the processes that tools start."""
