"""What an administrator applies once, and the simulated cluster that the tests run on."""
