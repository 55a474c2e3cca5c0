"""Where jobs run: one protocol, one module a backend."""
