"""What decides: pure functions and values over integers. No path, clock, environment, logger or global generator."""
