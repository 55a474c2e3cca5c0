"""What earlier releases wrote, byte for byte, and the tests that read it."""
